"""Sampling from actors."""

import pytest
import torch
from batches import MIXED_GROUPS, Samples
from tiny_models import IMAGE, PAD, VIDEO, VOCABULARY, prompt_group, text_model, vision_model
from transformers import GenerationConfig

from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL

_PLACEHOLDERS = (IMAGE, VIDEO, 62, 63)


_CASES = {"text": (ActorLanguage, text_model), "vision": (ActorVL, vision_model)}


_GRIDS = {"text": [None, None], "vision": [[(4, 4)], [(2, 4), (2, 2)]]}


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
    group = MIXED_GROUPS[2]
    actor = ActorVL(model, temperature=50.0)
    prompts = group.prompt_ids[None].repeat(40, 1)
    media = {name: value.repeat(40, 1) for name, value in group.media.items()}
    sequences, _, mask = actor.generate(prompts, max_new_tokens=20, **media)
    responses = sequences[:, prompts.shape[1] :]
    assert not torch.isin(responses[mask], torch.tensor(_PLACEHOLDERS)).any()
    assert actor(sequences, mask.shape[1], **media).shape == mask.shape


@pytest.mark.parametrize("name", ["text", "vision"])
def test_greedy_generation_takes_the_likeliest_tokens_for_left_padded_prompts(name: str) -> None:
    kind, build = _CASES[name]
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


def test_generation_without_a_stop_id_is_an_error() -> None:
    model = text_model()
    model.generation_config.eos_token_id = None
    with pytest.raises(ValueError, match="eos_token_id"):
        ActorLanguage(model).generate(torch.tensor([[3]]), max_new_tokens=1)


def test_sampling_places_a_video_as_scoring_does() -> None:
    """One of six frames that are two seconds apart: transformers' own ids would be others."""
    actor = ActorVL(vision_model())
    prompt = torch.tensor([[3, *[VIDEO] * 6, 4, 5], [PAD, PAD, *[VIDEO] * 6, 6]])
    media = {
        "pixel_values_videos": torch.randn(48, 96, generator=torch.Generator().manual_seed(0)),
        "video_grid_thw": torch.tensor([[6, 2, 2]] * 2),
        "second_per_grid_ts": torch.tensor([2.0, 1.0]),
    }
    sequences, mask, actions = actor.generate(
        prompt, attention_mask=(prompt != PAD).long(), temperature=0.0, max_new_tokens=4, **media
    )
    width = actions.shape[1]
    _, output = actor(sequences, width, mask, return_output=True, **media)
    logits = output.logits[:, -width - 1 : -1]
    logits[..., list(_PLACEHOLDERS)] = -torch.inf
    taken = sequences[:, -width:]
    assert torch.equal(logits.argmax(-1)[actions], taken[actions])
