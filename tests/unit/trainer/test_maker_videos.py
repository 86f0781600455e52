"""Videos of prompts: their frame rate places them, and they share batches with all else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from makers import IMAGE, maker, picture, strategy
from transformers import ProcessorMixin

from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, build_rows
from lightrft_ray.models.token_models import TokenPolicy
from lightrft_ray.trainer.batch_media import media_of
from lightrft_ray.trainer.experience_maker_vl import NaiveExperienceMakerVL, SamplesVL
from lightrft_ray.trainer.experience_rows import join_rows, split_experience
from lightrft_ray.trainer.prompt_inputs import Video

_VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
_TEXTS = ["How many?", f"{IMAGE}What?", f"{_VIDEO}When?", f"{_VIDEO}{IMAGE}{_VIDEO}Which?"]


def _video(seed: int, fps: float, frames: int = 8) -> Video:
    return Video([picture(seed + frame) for frame in range(frames)], fps)


_SHOWN = [None, picture(1), _video(2, 0.5), [_video(3, 4.0), picture(4), _video(5, 0.25, 4)]]


def _maker(folder: Path, **changes: Any) -> NaiveExperienceMakerVL:
    settings = strategy(n_samples_per_prompt=2, micro_rollout_batch_size=8)
    return maker(folder, strategy=settings, prompt_max_len=128, **changes)


def _samples(own: NaiveExperienceMakerVL) -> SamplesVL:
    (samples,) = own.generate_samples(_TEXTS, _SHOWN, ["a"] * 4, None, min_new_tokens=4)
    return samples


def test_text_images_and_videos_share_a_batch(tiny_folder: Path) -> None:
    samples = _samples(_maker(tiny_folder))
    assert samples.image_num == [0, 0, 1, 1, 0, 0, 1, 1]
    assert samples.video_num == [0, 0, 0, 0, 1, 1, 2, 2]
    assert samples.video_grid_thws.tolist() == [[4, 4, 4]] * 2 + [[4, 4, 4], [2, 4, 4]] * 2
    assert samples.media_inputs is not None
    seconds = [each.get("second_per_grid_ts", torch.tensor([])) for each in samples.media_inputs]
    assert [each.tolist() for each in seconds] == [[]] * 4 + [[4.0]] * 2 + [[0.5, 8.0]] * 2


def test_videos_equal_the_distributed_paths_rows(tiny_folder: Path) -> None:
    own = _maker(tiny_folder)
    samples = _samples(own)
    groups = []
    width = samples.sequences.shape[1] - int(samples.num_actions)
    for row, media in enumerate(media_of(samples, 8)):
        named = {
            "pixel_values": media.images.pixels,
            "image_grid_thw": media.images.grids,
            "pixel_values_videos": media.videos.pixels,
            "video_grid_thw": media.videos.grids,
            **media.extras,
        }
        inputs = {name: value for name, value in named.items() if value is not None}
        prompt = samples.sequences[row, :width][samples.attention_mask[row, :width].bool()]
        response = samples.sequences[row, width:][samples.action_mask[row]]
        groups.append(PromptGroup(prompt, [response], inputs))
    model = own.actor.model
    rows = build_rows(groups, "padded", position_rule(model.config), 0)
    with torch.no_grad():
        expected, _ = TokenPolicy(model)(rows, own.actor.sampling)
    got = own.make_experience(samples).action_log_probs
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_the_frame_rate_is_kept_and_matters(tiny_folder: Path) -> None:
    own = _maker(tiny_folder)
    samples = _samples(own)
    experience = own.make_experience(samples)
    again = join_rows(split_experience(experience)[::-1], 0)
    seconds = [each.get("second_per_grid_ts") for each in again.info["media_inputs"]]
    assert [None if each is None else each.tolist() for each in seconds[:3]] == [
        [0.5, 8.0],
        [0.5, 8.0],
        [4.0],
    ]
    samples.media_inputs = None
    difference = own.make_experience(samples).action_log_probs - experience.action_log_probs
    changed = difference.abs().amax(dim=1) > 1e-5
    assert changed.tolist() == [False] * 4 + [True] * 4


def test_a_video_that_the_processor_does_not_make_is_named(tiny_folder: Path) -> None:
    own = _maker(tiny_folder)
    processor = own.processor
    assert processor is not None

    def without_videos(**arguments: Any) -> Any:
        made = processor(**arguments)
        del made["video_grid_thw"], made["pixel_values_videos"]
        return made

    own.processor = without_videos  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"When\?': 1 videos, of which the processor made 0"):
        own.generate_samples(_TEXTS[2:3], _SHOWN[2:3], None, None)
    assert isinstance(processor, ProcessorMixin)
