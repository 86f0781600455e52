"""The buffer loses nothing, holds pixels once, and normalises once over everything."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from lightrft_ray.models.sequences import SequenceLayout
from lightrft_ray.trainer.batch_media import media_of_experience
from lightrft_ray.trainer.experience_rows import PER_ACTION, join_rows, split_experience
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.media import held_bytes
from lightrft_ray.trainer.replay_buffer import ReplayBuffer

_PAD = 0
_GRID = torch.tensor([[1, 2, 2]])


def _experience(
    prompts: list[int], responses: list[int], image_num: list[int], *, seed: int = 0, wider: int = 0
) -> ExperienceVL:
    """Random samples of these lengths; every image of a batch is the same one."""
    generator = torch.Generator().manual_seed(seed)
    narrow = SequenceLayout.of_lengths(torch.tensor(prompts), torch.tensor(responses))
    layout = SequenceLayout(
        narrow.prompt_lengths,
        narrow.response_lengths,
        narrow.prompt_width + wider,
        narrow.response_width + wider,
    )
    mask = layout.action_mask
    actions = {
        name: torch.randn(mask.shape, generator=generator) * mask
        for name in PER_ACTION
        if name != "action_mask"
    }
    tokens = torch.randint(1, 50, (int(layout.total_lengths.sum()),), generator=generator)
    image = torch.randn(4, 3, generator=generator)
    count, size = sum(image_num), len(prompts)
    return ExperienceVL(
        sequences=layout.unpack(tokens, fill=_PAD),
        attention_mask=layout.attention_mask.long(),
        action_mask=mask,
        pixel_values=image.repeat(count, 1) if count else None,
        image_grid_thws=_GRID.repeat(count, 1) if count else None,
        raw_images=[Image.new("RGB", (2, 2)) for _ in range(count)],
        info={
            "reward": torch.randn(size, generator=generator),
            "image_num": image_num,
            "labels": [f"label {seed} {row}" for row in range(size)],
            "references": [f"reference {seed} {row}" for row in range(size)],
            "prompts": [f"prompt {seed} {row}" for row in range(size)],
            "weight_versions": torch.arange(size) + 10 * seed,
        },
        **actions,
    )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value


def _assert_equal(one: ExperienceVL, other: ExperienceVL) -> None:
    for field in fields(one):
        if field.name != "info":
            assert _plain(getattr(one, field.name)) == _plain(getattr(other, field.name)), (
                field.name
            )
    assert one.info is not None
    assert other.info is not None
    assert {k: _plain(v) for k, v in one.info.items()} == {
        k: _plain(v) for k, v in other.info.items()
    }


def test_cutting_and_joining_loses_nothing() -> None:
    experience = _experience([3, 1, 4], [2, 5, 1], [0, 2, 1])
    _assert_equal(join_rows(split_experience(experience), _PAD), experience)


def test_batches_hold_whole_samples_of_any_rollout() -> None:
    first = _experience([3, 1], [2, 4], [0, 2], wider=3)
    second = _experience([2, 6, 1], [1, 3, 2], [1, 0, 1], seed=1)
    buffer = ReplayBuffer(5)
    buffer.append(first)
    buffer.append(second)
    assert len(buffer) == 5
    batch = buffer.collate([buffer[4], buffer[0], buffer[1]])
    assert batch.sequences.shape == (3, 3 + 4)
    assert batch.info is not None
    assert batch.info["image_num"] == [1, 0, 2]
    assert batch.info["labels"] == ["label 1 2", "label 0 0", "label 0 1"]
    assert batch.info["weight_versions"].tolist() == [12, 0, 1]
    assert first.advantages is not None
    assert batch.advantages is not None
    assert torch.equal(batch.advantages[2], first.advantages[1, :4])
    assert batch.pixel_values is not None
    assert second.pixel_values is not None
    assert torch.equal(batch.pixel_values[:4], second.pixel_values[:4])
    assert sorted(_labels(buffer.sample())) == sorted(_labels(first) + _labels(second))


def _labels(experience: ExperienceVL) -> list[str]:
    assert experience.info is not None
    return list(experience.info["labels"])


def test_pixels_are_held_once_for_a_group_also_over_two_batches() -> None:
    buffer = ReplayBuffer(2)
    for _ in range(2):
        buffer.append(_experience([3, 3], [2, 1], [1, 1]))
    buffer.append(_experience([3, 3], [2, 1], [1, 1], seed=1))
    media = [buffer[index].media for index in range(6)]
    assert held_bytes(media) == 2 * 4 * 3 * 4  # two images of 4 rows and 3 float32 numbers
    assert media[0].images.pixels is media[3].images.pixels


def test_media_may_come_beside_a_batch_without_pixels() -> None:
    whole = _experience([3, 3], [2, 1], [1, 1])
    media = media_of_experience(whole)
    bare = replace(whole, pixel_values=None, image_grid_thws=None)
    buffer = ReplayBuffer(2)
    buffer.append(bare, [media[0]] * 2)
    assert buffer[0].media.images.pixels is buffer[1].media.images.pixels
    _assert_equal(buffer.collate([buffer[0], buffer[1]]), whole)
    with pytest.raises(ValueError, match="media of prompt prompt 0 1: 1 entries for 2"):
        buffer.append(bare, media[:1])


def test_the_appended_batch_stays_as_it_was() -> None:
    experience = _experience([3], [2], [1])
    before = experience.sequences
    ReplayBuffer(1).append(experience)
    assert experience.sequences is before


def test_the_oldest_samples_go_past_the_limit() -> None:
    buffer = ReplayBuffer(1, limit=3)
    buffer.append(_experience([1, 1], [1, 1], [0, 0]))
    buffer.append(_experience([1, 1], [1, 1], [0, 0], seed=1))
    labels = [buffer[index].info["labels"] for index in range(len(buffer))]
    assert labels == ["label 0 1", "label 1 0", "label 1 1"]
    buffer.clear()
    assert len(buffer) == 0


def test_sampling_follows_the_seed() -> None:
    drawn = []
    for seed in (1, 1, 2):
        buffer = ReplayBuffer(4, seed=seed)
        buffer.append(_experience([1] * 20, [1] * 20, [0] * 20))
        drawn.append(_labels(buffer.sample()))
        assert len(set(drawn[-1])) == 4
    assert drawn[0] == drawn[1] != drawn[2]


def test_advantages_are_normalised_once_over_the_whole_buffer() -> None:
    buffer = ReplayBuffer(1)
    experiences = [_experience([2, 2], [4, 1], [0, 0]), _experience([1], [6], [0], seed=1)]
    assert experiences[0].action_mask is not None
    experiences[0].action_mask[0, 1] = False  # the output of a tool
    values = []
    for experience in experiences:
        buffer.append(experience)
        assert experience.advantages is not None
        values.append(experience.advantages[experience.action_mask])
    everything = torch.cat(values)
    expected = (everything - everything.mean()) / (everything.var() + 1e-8).sqrt()
    buffer.normalize()
    batch = buffer.collate([buffer[0], buffer[1], buffer[2]])
    assert batch.advantages is not None
    torch.testing.assert_close(batch.advantages[batch.action_mask], expected)
    assert batch.advantages[0, 1] == 0
    with pytest.raises(ValueError, match="advantages of the buffer are normalised already"):
        buffer.normalize()
    with pytest.raises(ValueError, match="clear it before you append"):
        buffer.append(experiences[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_mask": None}, "needs an action_mask"),
        (
            {"values": torch.zeros(1, 3)},
            r"values of prompt prompt 0 0: it is \(1, 3\), for \(1, 2\)",
        ),
        ({"info": {"image_num": [2]}}, "image_num: .* counts 2 rows, image_grid_thws has 1"),
        ({"raw_images": []}, "image_num counts 1 images, raw_images has 0"),
        ({"info": {"image_num": [1], "step": 3}}, r"info\['step'\] is 3: it must"),
    ],
)
def test_fields_that_do_not_fit_are_named(changes: dict[str, Any], message: str) -> None:
    experience = _experience([3], [2], [1])
    for name, value in changes.items():
        setattr(experience, name, value)
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(1).append(experience)


def test_samples_that_differ_in_what_they_have_cannot_share_a_batch() -> None:
    buffer = ReplayBuffer(2)
    buffer.append(_experience([3], [2], [0]))
    other = _experience([3], [2], [0])
    other.values = None  # type: ignore[assignment]
    buffer.append(other)
    with pytest.raises(ValueError, match="differ in their fields: values"):
        buffer.sample()


def test_limits_of_the_buffer_are_checked() -> None:
    with pytest.raises(ValueError, match="sample_batch_size 0"):
        ReplayBuffer(0)
    with pytest.raises(ValueError, match="sample_batch_size 2, but the buffer holds 0"):
        ReplayBuffer(2).sample()
    with pytest.raises(ValueError, match="advantages: the buffer is empty"):
        ReplayBuffer(2).normalize()
