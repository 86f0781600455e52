"""The documented interface of samples and experience."""

from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lightrft_ray.trainer import experience_maker_vl
from lightrft_ray.trainer.experience_maker_vl import (
    ExperienceVL,
    SamplesVL,
    cumulative_product,
    pin_memory,
    to,
)

_META = torch.device("meta")

# Names in order; `sequences` alone has no default, and every other default is None.
_SAMPLES = [
    "sequences",
    "attention_mask",
    "action_mask",
    "pixel_values",
    "image_grid_thws",
    "raw_images",
    "image_num",
    "pixel_values_videos",
    "video_grid_thws",
    "video_num",
    "num_actions",
    "packed_seq_lens",
    "response_length",
    "total_length",
    "references",
    "labels",
    "prompts",
    "output_texts",
]
_EXPERIENCE = [
    "sequences",
    "pixel_values",
    "image_grid_thws",
    "raw_images",
    "pixel_values_videos",
    "video_grid_thws",
    "action_log_probs",
    "base_action_log_probs",
    "values",
    "returns",
    "advantages",
    "attention_mask",
    "action_mask",
    "info",
    "kl",
    "action_entropy",
]


@pytest.mark.parametrize(
    ("kind", "names"), [(SamplesVL, _SAMPLES), (ExperienceVL, _EXPERIENCE)], ids=["samples", "exp"]
)
def test_fields_are_the_documented_ones(kind: Any, names: list[str]) -> None:
    assert [field.name for field in fields(kind)] == names
    defaults = [field.default for field in fields(kind)]
    assert defaults == [MISSING] + [None] * (len(names) - 1)
    positional = kind(*range(len(names)))
    assert [getattr(positional, name) for name in names] == list(range(len(names)))


def test_the_documented_module_gives_the_documented_names() -> None:
    assert set(experience_maker_vl.__all__) == {
        "ExperienceVL",
        "NaiveExperienceMakerVL",
        "SamplesVL",
        "cumulative_product",
        "pin_memory",
        "to",
    }


@pytest.mark.parametrize(
    ("data", "product"),
    [
        (5, 5),
        (np.int32(7), 7),
        ([], 1),
        ([2, 3, 4], 24),
        ([3, 0], 0),
        ([torch.tensor(2), torch.tensor(5)], 10),
        (np.array([[2, 3], [4, 5]], dtype=np.int16), 120),
        (np.array([], dtype=np.int64), 1),
        (np.array([200, 200], dtype=np.uint8), 40_000),
        (torch.tensor([1, 4, 6]), 24),
        (torch.tensor([200, 200], dtype=torch.uint8), 40_000),
        (torch.tensor([0.5, 4.0]), 2),
        (torch.tensor(9), 9),
    ],
    ids=repr,
)
def test_cumulative_product(data: Any, product: int) -> None:
    result = cumulative_product(data)
    assert result == product
    assert type(result) is int


@pytest.mark.parametrize(
    ("data", "kind"), [((2, 3), "tuple"), ("23", "str"), (2.0, "float"), (None, "NoneType")]
)
def test_cumulative_product_names_a_type_it_does_not_take(data: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=kind):
        cumulative_product(data)


def test_to_moves_tensors_and_lists_and_nothing_else() -> None:
    tensor = torch.ones(2)
    assert to(tensor, "meta").is_meta
    moved = to([tensor, [tensor], "text"], _META)
    assert moved[0].is_meta
    assert moved[1][0].is_meta
    assert moved[2] == "text"
    for other in (None, "text", 3, {"key": tensor}, (tensor,)):
        assert to(other, _META) is other


def test_to_device_moves_every_tensor_and_returns_the_experience() -> None:
    tensor, image = torch.ones(2), Image.new("RGB", (2, 2))
    nested = {"list": [tensor, "text"], "deeper": {"pair": (tensor, 3)}, "number": 0.5}
    experience = ExperienceVL(
        **{name: tensor for name in _EXPERIENCE if name not in ("info", "raw_images", "values")},
        values=[tensor, tensor],
        raw_images=[image],
        info={"reward": tensor, "nested": nested, "none": None},
    )
    assert experience.to_device(_META) is experience
    for name in _EXPERIENCE:
        if name not in ("info", "raw_images", "values"):
            assert getattr(experience, name).is_meta, name
    assert all(value.is_meta for value in experience.values)
    assert experience.raw_images == [image]
    info = experience.info
    assert info is not None
    assert info["reward"].is_meta
    assert info["nested"]["list"][0].is_meta
    assert info["nested"]["list"][1] == "text"
    assert info["nested"]["deeper"]["pair"][0].is_meta
    assert info["nested"]["deeper"]["pair"][1] == 3
    assert (info["nested"]["number"], info["none"]) == (0.5, None)


def test_an_experience_without_info_moves_and_pins() -> None:
    experience = ExperienceVL(torch.ones(1, 2))
    assert experience.to_device("meta").info is None
    assert ExperienceVL(torch.ones(1, 2)).pin_memory().info is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="pins where there is an accelerator")
def test_pinning_without_an_accelerator_does_nothing() -> None:
    tensor = torch.ones(2)
    listed = [tensor]
    assert pin_memory(tensor) is tensor
    assert pin_memory(listed) is listed
    experience = ExperienceVL(tensor, info={"a": tensor})
    assert experience.pin_memory() is experience
    assert experience.sequences is tensor


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_pinning_reaches_every_tensor() -> None:
    experience = ExperienceVL(torch.ones(2), values=torch.ones(2), info={"a": [torch.ones(2)]})
    experience.pin_memory()
    info = experience.info
    assert info is not None
    assert experience.sequences.is_pinned()
    assert experience.values.is_pinned()
    assert info["a"][0].is_pinned()
    assert all(tensor.is_pinned() for tensor in pin_memory([torch.ones(2)]))
