"""What actors take, and the errors for what they do not."""

import inspect
from typing import Any

import pytest
import torch
from batches import MIXED_GROUPS, Samples
from tiny_models import IMAGE, VIDEO, VOCABULARY, text_model, vision_model
from torch import Tensor, nn

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL

_PLACEHOLDERS = (IMAGE, VIDEO, 62, 63)


Actor = ActorLanguage | ActorVL


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
    samples = Samples.of(MIXED_GROUPS[2:])
    media = {**samples.media, "image_grid_thw": torch.tensor([[1, 4, 2]])}
    with pytest.raises(ValueError, match="4 image tokens in sequences, 2 in image_grid_thw"):
        ActorVL(vision_model())(samples.padded, 5, samples.mask, **media)
