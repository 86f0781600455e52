"""Actors give the same in every layout, and the same as plain transformers."""

import inspect
from typing import Any

import pytest
import torch
from batches import Samples
from tiny_models import IMAGE, PAD, VIDEO, VOCABULARY, prompt_group, text_model, vision_model
from torch import Tensor, nn
from transformers import GenerationConfig

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.log_probs import sampled_distribution, token_entropy, token_log_probs
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, build_rows
from lightrft_ray.models.token_models import TokenPolicy

_TEXT = [prompt_group(8, 3, [2, 3]), prompt_group(9, 6, [1, 4, 2])]
_MIXED = [
    prompt_group(3, 5, [4, 1]),
    prompt_group(4, 7, [2, 6], [(4, 4), (2, 4), (2, 2)]),
    prompt_group(6, 4, [5], [(4, 4)]),
]
_PLACEHOLDERS = (IMAGE, VIDEO, 62, 63)
Actor = ActorLanguage | ActorVL


def _one_by_one(actor: Actor, samples: Samples, groups: list[Any]) -> list[tuple[Tensor, Tensor]]:
    """Log-probs and entropies of each sample's tokens but the first, by transformers alone."""
    results = []
    for group in groups:
        for response in group.responses:
            ids = torch.cat([group.prompt_ids, response])[None]
            media: dict[str, Tensor] = dict(group.media)
            if media:
                media["mm_token_type_ids"] = (ids == IMAGE).long()
            logits = actor.model(input_ids=ids, **media).logits[0, :-1]
            distribution = sampled_distribution(
                logits,
                temperature=actor.sampling.temperature,
                forbidden=actor.sampling.forbidden_token_ids,
            )
            log_probs = token_log_probs(distribution, ids[0, 1:])
            results.append((log_probs, token_entropy(distribution)))
    return results


def _actions(values: list[Tensor], samples: Samples) -> list[Tensor]:
    lengths = samples.layout.response_lengths.tolist()
    return [row[len(row) - length :] for row, length in zip(values, lengths, strict=True)]


def _gradients(actor: Actor, values: Tensor) -> dict[str, Tensor]:
    actor.zero_grad()
    (values * torch.linspace(-1, 2, len(values))).sum().backward()
    named = actor.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


_CASES = {
    "text": (ActorLanguage, text_model, _TEXT),
    "vision": (ActorVL, vision_model, _MIXED),
    "vision-text-only": (ActorVL, vision_model, _TEXT),
}


@pytest.mark.parametrize("packs", [False, True], ids=["padded", "packs"])
@pytest.mark.parametrize("name", _CASES)
def test_log_probs_equal_those_one_by_one(name: str, packs: bool) -> None:
    kind, build, groups = _CASES[name]
    samples = Samples.of(groups)
    actor = kind(build(), packing_samples=packs, temperature=0.8, high_entropy_token_ratio=0.2)
    solo = _one_by_one(actor, samples, groups)
    expected = torch.cat(_actions([row for row, _ in solo], samples))
    entropies = torch.cat(_actions([row for _, row in solo], samples))
    mask = samples.layout.action_mask
    expected_gradients = _gradients(actor, expected)

    log_probs = actor(samples.padded, samples.num_actions, samples.mask, **samples.media)
    assert log_probs.dtype == torch.float32
    assert log_probs.shape == mask.shape
    assert (log_probs[~mask] == 0).all()
    torch.testing.assert_close(log_probs[mask], expected, rtol=0, atol=1e-5)
    _assert_close(_gradients(actor, log_probs[mask]), expected_gradients)

    again, output = actor(
        samples.padded, samples.num_actions, samples.mask, return_output=True, **samples.media
    )
    torch.testing.assert_close(again, log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(output["action_entropy"][mask], entropies, rtol=0, atol=1e-5)


def _assert_close(gradients: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        scale = expected[name].abs().max().item()
        assert (gradient - expected[name]).abs().max().item() <= 1e-4 * scale, name


@pytest.mark.parametrize("name", _CASES)
def test_a_packed_row_equals_its_samples(name: str) -> None:
    kind, build, groups = _CASES[name]
    samples, actor = Samples.of(groups), kind(build())
    solo = [row for row, _ in _one_by_one(actor, samples, groups)]
    lengths, counts = samples.layout.total_lengths, samples.layout.response_lengths
    for given in ((counts, lengths), (counts.tolist(), lengths.tolist())):
        log_probs = actor(samples.packed[None], given[0], packed_seq_lens=given[1], **samples.media)
        expected = torch.cat(_actions(solo, samples))[None]
        torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-5)
    everything = actor(samples.packed[None], packed_seq_lens=lengths, **samples.media)
    expected = torch.cat([part for row in solo for part in (torch.zeros(1), row)])[None, 1:]
    torch.testing.assert_close(everything, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("packs", [False, True])
def test_without_a_number_of_actions_all_next_tokens_are_scored(packs: bool) -> None:
    samples = Samples.of(_TEXT)
    actor = ActorLanguage(text_model(), packing_samples=packs)
    log_probs = actor(samples.padded, attention_mask=samples.mask)
    assert log_probs.shape == (5, samples.padded.shape[1] - 1)
    for row, mask, expected in zip(
        log_probs, samples.mask.bool(), _one_by_one(actor, samples, _TEXT), strict=True
    ):
        scored = mask[1:] & mask[:-1]
        torch.testing.assert_close(row[scored], expected[0], rtol=0, atol=1e-5)
        assert (row[~scored] == 0).all()


def test_a_batch_without_a_mask_has_no_padding() -> None:
    actor, tokens = ActorLanguage(text_model()), torch.randint(2, 60, (2, 6))
    expected = actor(tokens, 3, torch.ones(2, 6))
    assert torch.equal(actor(tokens, 3), expected)
    assert actor(tokens, 0).shape == (2, 0)


@pytest.mark.parametrize("packs", [False, True])
def test_videos_and_images_of_one_batch(packs: bool) -> None:
    """As the rows of prompt groups compute them, whose positions are those of vLLM."""
    video = torch.tensor([[3, 2, 4]])  # 3 · 1 · 2 tokens
    prompt = torch.tensor([5, *[VIDEO] * 6, 9])
    media = {"video_grid_thw": video, "pixel_values_videos": torch.randn(24, 96)}
    groups = [PromptGroup(prompt, [torch.tensor([7, 8]), torch.tensor([9])], media), *_MIXED]
    samples, actor = Samples.of(groups), ActorVL(vision_model(), packing_samples=packs)
    rows = build_rows(groups, "padded", position_rule(actor.model.config), PAD)
    expected, _ = TokenPolicy(actor.model)(rows, actor.sampling)
    log_probs = actor(samples.padded, samples.num_actions, samples.mask, **samples.media)
    torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-5)


def test_a_bfloat16_model_gives_float32_log_probs_of_its_logits() -> None:
    actor = ActorLanguage(text_model().to(torch.bfloat16))
    tokens = torch.randint(2, 60, (1, 6))
    logits = actor.model(tokens).logits.float()
    expected = logits[:, 2:-1].log_softmax(-1).gather(-1, tokens[:, 3:, None])[..., 0]
    assert torch.equal(actor(tokens, 3), expected)


def test_media_placeholders_are_never_part_of_the_distribution() -> None:
    assert ActorVL(vision_model()).sampling.forbidden_token_ids == tuple(sorted(_PLACEHOLDERS))
    assert ActorVL(vision_model(), forbidden_token_ids=()).sampling.forbidden_token_ids == ()
    assert ActorLanguage(text_model()).sampling.forbidden_token_ids == ()


def test_the_modality_compares_equal_to_text() -> None:
    assert ActorLanguage.modality == "text"
    assert ActorLanguage(text_model()).modality == "text"


def test_the_signature_is_the_documented_one() -> None:
    parameters = inspect.signature(ActorLanguage.__init__).parameters.values()
    assert [(p.name, p.default) for p in parameters][1:-1] == [
        ("pretrain_or_model", inspect.Parameter.empty),
        ("use_flash_attention_2", False),
        ("bf16", True),
        ("lora_rank", 0),
        ("lora_alpha", 16),
        ("lora_dropout", 0.0),
        ("target_modules", None),
        ("ds_config", None),
        ("device_map", None),
        ("packing_samples", False),
    ]
    forward = inspect.signature(ActorLanguage.forward).parameters.values()
    assert [(p.name, p.default) for p in forward][2:] == [
        ("num_actions", None),
        ("attention_mask", None),
        ("return_output", False),
        ("packed_seq_lens", None),
    ]
    assert list(inspect.signature(ActorLanguage.generate).parameters) == [
        "self",
        "input_ids",
        "pixel_values",
        "image_grid_thw",
        "kwargs",
    ]
    process = inspect.signature(ActorLanguage.process_sequences).parameters
    assert list(process) == ["self", "sequences", "input_len", "eos_token_id", "pad_token_id"]


@pytest.mark.parametrize("kind", [ActorLanguage, ActorVL])
def test_an_unknown_keyword_is_a_type_error(kind: type[Actor]) -> None:
    with pytest.raises(TypeError, match="temprature"):
        kind(text_model(), temprature=0.5)
    with pytest.raises(TypeError, match="max_tokens"):
        kind(text_model()).generate(torch.tensor([[3, 4]]), max_tokens=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"load_in_4bit": True}, "load_in_4bit"),
        ({"device_map": "cpu"}, "device_map"),
        ({"ds_config": {}}, "ds_config"),
        ({"use_flash_attention_2": True}, "use_flash_attention_2"),
        ({"temperature": 0.0}, "temperature 0.0"),
        ({"high_entropy_token_ratio": 1.5}, "high_entropy_token_ratio 1.5"),
        ({"target_modules": ["q_proj"]}, "target_modules do nothing"),
    ],
)
def test_arguments_that_cannot_be_honoured_are_named(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        ActorLanguage(text_model(), **arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without CUDA")
@pytest.mark.parametrize("name", ["load_in_4bit", "use_flash_attention_2"])
def test_what_needs_cuda_says_so(name: str, tmp_path: Any) -> None:
    text_model().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"{name} needs CUDA"):
        ActorLanguage(str(tmp_path), **{name: True})


@pytest.mark.parametrize("bf16", [True, False])
def test_a_folder_is_loaded_in_the_asked_type(bf16: bool, tmp_path: Any) -> None:
    text_model().save_pretrained(tmp_path)
    actor = ActorLanguage(str(tmp_path), bf16=bf16)
    dtype = torch.bfloat16 if bf16 else torch.float32
    assert {parameter.dtype for parameter in actor.parameters()} == {dtype}


class _Plain(nn.Module):
    """A module that is no transformers model."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Embedding(VOCABULARY, VOCABULARY)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        return type("Output", (), {"logits": self.logits(input_ids)})


def test_any_module_with_logits_can_be_an_actor() -> None:
    module, tokens = _Plain(), torch.randint(2, 60, (2, 5))
    expected = module.logits(tokens).log_softmax(-1)[:, 2:-1].gather(-1, tokens[:, 3:, None])
    torch.testing.assert_close(ActorLanguage(module)(tokens, 2), expected[..., 0])


def test_a_family_that_cannot_be_packed_says_so_at_once() -> None:
    with pytest.raises(UserError, match="'_Plain' cannot be packed; those that can are gemma3"):
        ActorLanguage(_Plain(), packing_samples=True)


def test_images_for_a_model_that_sees_none_are_an_error() -> None:
    tokens, pixels = torch.tensor([[3, 4]]), torch.zeros(4, 96)
    with pytest.raises(UserError, match="pixel_values: models of the family 'qwen2'"):
        ActorVL(text_model())(tokens, 1, pixel_values=pixels)
    with pytest.raises(UserError, match="use ActorVL"):
        ActorLanguage(text_model()).generate(tokens, pixel_values=pixels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_actions": 5}, "num_actions 5 for sequences of 4"),
        ({"num_actions": [1, 2]}, r"num_actions \[1, 2\]: a padded batch takes one number"),
        ({"attention_mask": torch.ones(1, 3)}, r"attention_mask \(1, 3\) for sequences \(1, 4\)"),
        ({"attention_mask": torch.tensor([[1, 0, 1, 1]])}, "sample 0: real tokens"),
        ({"packed_seq_lens": [2, 3], "num_actions": [1, 1]}, r"packed_seq_lens \[2, 3\]"),
        ({"packed_seq_lens": [2, 2], "num_actions": [1, 2]}, "leave a sample without a prompt"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActorLanguage(text_model())(torch.tensor([[3, 4, 5, 6]]), **arguments)


def test_grids_that_do_not_match_the_tokens_are_an_error() -> None:
    samples = Samples.of(_MIXED[2:])
    media = {**samples.media, "image_grid_thw": torch.tensor([[1, 4, 2]])}
    with pytest.raises(ValueError, match="4 image tokens in sequences, 2 in image_grid_thw"):
        ActorVL(vision_model())(samples.padded, 5, samples.mask, **media)


def test_generation_draws_from_the_scored_distribution() -> None:
    """Not from a checkpoint's own sampling settings, such as a top-k of one."""
    model = text_model()
    model.generation_config = GenerationConfig(
        top_k=1, top_p=0.01, repetition_penalty=9.0, eos_token_id=1, pad_token_id=PAD
    )
    actor = ActorLanguage(model, temperature=2.0).train()
    torch.manual_seed(0)
    prompts = torch.tensor([[3, 4]]).repeat(1500, 1)
    sequences, _, action_mask = actor.generate(prompts, max_new_tokens=1)
    assert actor.training
    assert action_mask.all()
    counts = torch.bincount(sequences[:, 2], minlength=VOCABULARY) / 1500
    logits = model(prompts[:1]).logits[0, -1] / 2.0
    assert (counts - logits.softmax(-1)).abs().sum() < 0.3


def test_generation_never_samples_a_placeholder_and_sees_the_image() -> None:
    model = vision_model()
    group = _MIXED[2]
    actor = ActorVL(model, temperature=50.0)
    prompts = group.prompt_ids[None].repeat(40, 1)
    media = {name: value.repeat(40, 1) for name, value in group.media.items()}
    sequences, _, mask = actor.generate(prompts, max_new_tokens=20, **media)
    responses = sequences[:, prompts.shape[1] :]
    assert not torch.isin(responses[mask], torch.tensor(_PLACEHOLDERS)).any()
    assert actor(sequences, mask.shape[1], **media).shape == mask.shape


@pytest.mark.parametrize("name", ["text", "vision"])
def test_greedy_generation_takes_the_likeliest_tokens_for_left_padded_prompts(name: str) -> None:
    kind, build, _ = _CASES[name]
    prompts = Samples.of([prompt_group(i, 3 + i, [1], g) for i, g in enumerate(_GRIDS[name])])
    width = prompts.layout.prompt_width
    actor = kind(build())
    sequences, attention, actions = actor.generate(
        prompts.padded[:, :width],
        attention_mask=prompts.mask[:, :width],
        max_new_tokens=4,
        temperature=0.0,
        eos_token_id=[1],
        **prompts.media,
    )
    _, output = actor(sequences, actions.shape[1], attention, return_output=True, **prompts.media)
    logits = output.logits[:, width - 1 : -1]
    logits[..., list(actor.sampling.forbidden_token_ids)] = -torch.inf
    assert torch.equal(logits.argmax(-1)[actions], sequences[:, width:][actions])


_GRIDS = {"text": [None, None], "vision": [[(4, 4)], [(2, 4), (2, 2)]]}


def test_generation_without_a_stop_id_is_an_error() -> None:
    model = text_model()
    model.generation_config.eos_token_id = None
    with pytest.raises(ValueError, match="eos_token_id"):
        ActorLanguage(model).generate(torch.tensor([[3]]), max_new_tokens=1)


def test_gradient_checkpointing_changes_nothing_but_memory() -> None:
    actor, tokens = ActorLanguage(text_model()).train(), torch.randint(2, 60, (2, 6))
    plain = _gradients(actor, actor(tokens, 3).flatten())
    actor.gradient_checkpointing_enable()
    assert actor.model.is_gradient_checkpointing
    _assert_close(_gradients(actor, actor(tokens, 3).flatten()), plain)
    actor.gradient_checkpointing_disable()
    assert not actor.model.is_gradient_checkpointing
