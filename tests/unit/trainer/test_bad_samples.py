"""Batches whose parts do not fit together: the field, the prompt and both numbers are named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from makers import IMAGES, LABELS, PROMPTS, REFERENCES, maker, strategy
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_maker_vl import NaiveExperienceMakerVL, SamplesVL
from lightrft_ray.trainer.experience_rows import split_experience
from lightrft_ray.trainer.sample_layouts import pack_samples


@pytest.fixture(scope="module")
def own(tiny_folder: Path) -> NaiveExperienceMakerVL:
    return maker(tiny_folder, strategy=strategy(generate_max_len=5))


def _samples(own: NaiveExperienceMakerVL) -> SamplesVL:
    """Three of the first prompt, which is text, and one of the second, which has an image."""
    return own.generate_samples(PROMPTS, IMAGES, REFERENCES, LABELS, min_new_tokens=5)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_actions": 3}, r"action_mask of prompt How many\?: it is \(4, 5\), for \(4, 3\)"),
        ({"num_actions": 99}, r"num_actions of prompt How many\?: 99 in sequences of 22 tokens"),
        (
            {"attention_mask": torch.ones(3, 22)},
            r"attention_mask of prompt .*What is it\?: it is \(3, 22\), for \(4, 22\)",
        ),
        (
            {"action_mask": torch.ones(4, 2).bool()},
            r"action_mask of prompt How many\?: it is \(4, 2\), for \(4, 5\)",
        ),
        ({"action_mask": None}, "action_mask is missing"),
        ({"attention_mask": None}, "attention_mask is missing"),
        ({"sequences": torch.ones(4).long()}, r"sequences is \(4,\): it must be \(B, S\)"),
        ({"labels": ["x"]}, r"labels of prompt How many\?: 1 entries for 4 samples"),
        ({"references": ["x"] * 3}, r"references of prompt .*it\?: 3 entries for 4 samples"),
        ({"prompts": ["x"]}, "prompts of sample 1: 1 entries for 4 samples"),
        (
            {"response_length": torch.tensor([5, 4, 5, 5])},
            r"response_length of prompt How many\?: 4, its masks have 5 tokens",
        ),
        (
            {"total_length": torch.tensor([14, 14, 14, 9])},
            r"total_length of prompt .*it\?: 9, its masks have 22 tokens",
        ),
        (
            {"total_length": torch.tensor([14])},
            r"total_length of prompt How many\?: 1 entries for 4 samples",
        ),
    ],
)
def test_wrong_shapes(own: NaiveExperienceMakerVL, changes: dict[str, Any], message: str) -> None:
    samples = _samples(own)
    for name, value in changes.items():
        setattr(samples, name, value)
    with pytest.raises(ValueError, match=message):
        own.make_experience(samples)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"image_num": [0, 0, 0, 0]},
            r"image_num: .*What is it\?.* counts 0 rows, image_grid_thws has 1",
        ),
        (
            {"image_num": [0, 0, 0, 2]},
            r"image_num: .*What is it\?.* 2 rows, image_grid_thws has 1",
        ),
        ({"image_num": [0, 0, -1, 2]}, r"image_num: sample 2 of prompt How many\? has -1"),
        (
            {"image_num": [0, 1, 0, 0]},
            r"image_grid_thws of prompt How many\?: they fill 4 tokens, sequences has 0 placehold",
        ),
        (
            {"image_grid_thws": torch.tensor([[1, 4, 6]])},
            r"image_grid_thws: .*What is it\?.* counts 24 rows, pixel_values has 16",
        ),
        (
            {"image_grid_thws": torch.tensor([[4, 4]])},
            r"image_grid_thws is \(1, 2\): a grid is 3 numbers",
        ),
        (
            {"video_num": [0, 0, 1, 0]},
            r"video_num: .*How many\?.* counts 1 rows, pixel_values_videos has 0",
        ),
    ],
)
def test_counts_that_do_not_match_grids(
    own: NaiveExperienceMakerVL, changes: dict[str, Any], message: str
) -> None:
    test_wrong_shapes(own, changes, message)


def test_samples_without_counts_are_scored_all_the_same(own: NaiveExperienceMakerVL) -> None:
    samples = _samples(own)
    counted = own.make_experience(samples)
    samples.image_num = samples.video_num = None
    got = own.make_experience(samples)
    assert torch.equal(got.action_log_probs, counted.action_log_probs)
    assert "image_num" not in got.info


def _cut_response(samples: SamplesVL) -> None:
    samples.attention_mask[3, -2:] = 0


def _hole_in_response(samples: SamplesVL) -> None:
    samples.attention_mask[3, -3] = 0


def _hole_in_prompt(samples: SamplesVL) -> None:
    samples.attention_mask[3, 2] = 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cut_response, r"action_mask of .*it\?: 5 actions in a response of 3 tokens"),
        (_hole_in_response, r"attention_mask of .*it\?: its response has 4 tokens, 2 of them next"),
        (_hole_in_prompt, r"attention_mask of .*it\?: its prompt has 16 tokens, 14 of them next"),
    ],
)
def test_masks_that_do_not_match_the_response(
    own: NaiveExperienceMakerVL, change: Callable[[SamplesVL], None], message: str
) -> None:
    samples = _samples(own)
    change(samples)
    with pytest.raises(ValueError, match=message):
        own.make_experience(samples)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_actions": torch.tensor([5, 5, 5, 30])},
            r"num_actions of prompt .*it\?: 30 in a sample of 22 tokens",
        ),
        (
            {"num_actions": torch.tensor([5, 5])},
            r"num_actions of prompt How many\?: 2 entries for 4 samples",
        ),
        (
            {"packed_seq_lens": torch.tensor([14, 14, 14, 23])},
            r"sequences is \(1, 64\), packed_seq_lens sum to 65 up to prompt .*it\?",
        ),
        (
            {"packed_seq_lens": torch.tensor([14, 14, 15, 21])},
            r"attention_mask of prompt How many\?: 14 tokens have its number 3, .* says 15",
        ),
    ],
)
def test_packed_samples_that_do_not_fit(
    own: NaiveExperienceMakerVL, changes: dict[str, Any], message: str
) -> None:
    packed = pack_samples(_samples(own)).changed(**changes)
    with pytest.raises(ValueError, match=message):
        own.make_experience(packed)


def test_experience_that_does_not_fit(own: NaiveExperienceMakerVL) -> None:
    experience = own.make_experience(_samples(own))
    experience.advantages = torch.zeros(3, 5)
    with pytest.raises(
        ValueError, match=r"advantages of prompt .*it\?: it is \(3, 5\), for \(4, 5\)"
    ):
        split_experience(experience)
    experience.advantages = None
    experience.info["reward"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"info\['reward'\] has 3: .* each of 4 samples"):
        split_experience(experience)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rewards_and_values_that_are_no_numbers(own: NaiveExperienceMakerVL, value: float) -> None:
    good, bad, mask = torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3).bool()
    bad[1, 2] = value
    estimate = own.get_advantages_and_returns
    with pytest.raises(ValueError, match=f"rewards of sample 1: {value} at action 2"):
        estimate(good, bad, mask, 1.0, 1.0)
    with pytest.raises(ValueError, match=f"values of sample 1: {value} at action 2"):
        estimate(bad, good, mask, 1.0, 1.0)
    with pytest.raises(ValueError, match=f"rewards of sample 1: {value} at action 2"):
        own.get_cumulative_returns(bad, mask, 1.0)
    mask[1, 2] = False
    assert own.get_cumulative_returns(bad, mask, 1.0).eq(0).all()
    assert all(part.eq(0).all() for part in estimate(bad, bad, mask, 1.0, 1.0))


def test_an_unknown_estimator(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match="advantage_estimator"):
        maker(tiny_folder, strategy=strategy(advantage_estimator="gea"))
    unchecked = AlgorithmConfig().model_copy(update={"advantage_estimator": "gea"})
    mask: Tensor = torch.ones(1, 2).bool()
    samples = SamplesVL(torch.ones(1, 3).long(), action_mask=mask)
    scores = Scores(torch.ones(1), torch.zeros(1).long(), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="advantage_estimator gea: it is none of gae, reinforce"):
        assemble_experience(samples, scores, unchecked, kl_coef=0.0)
