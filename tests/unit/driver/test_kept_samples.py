"""Samples as they are described for their writer."""

import math
from pathlib import Path

import pytest
import torch
from PIL import Image
from rollouts import rollout_group, sample

from lightrft_ray.config.errors import DataFault
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.embedded import resolve_embedded
from lightrft_ray.data.picture_files import picture_png, video_pngs
from lightrft_ray.data.processing import load_processor, tokenizer_of
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.token_texts import token_texts
from lightrft_ray.driver.trajectories import _describe, _prompt_parts, _Row
from lightrft_ray.observe.trajectories import ImagePart, TextPart, VideoPart
from lightrft_ray.trainer.experience_types import ExperienceVL


def _experience() -> ExperienceVL:
    return ExperienceVL(
        sequences=torch.zeros(2, 5),
        base_action_log_probs=torch.tensor([[-9.0, -9.0, -9.0], [-1.0, -2.0, 0.0]]),
        advantages=torch.tensor([[9.0, 9.0, 9.0], [0.5, 0.5, 0.0]]),
        info={
            "reward": torch.tensor([math.nan, 0.75]),
            "reward_components": [{}, {"accuracy": 1.0}],
        },
    )


def test_a_sample_has_its_own_row_without_padding() -> None:
    group = rollout_group("a", [1], [sample([1, 2, 3]), sample([4, 5], is_truncated=True)])
    shown = _describe(group, 1, ("best",), _Row(1, _experience()))
    assert (shown.prompt_id, shown.epoch, shown.sample_index) == ("a", 2, 1)
    assert list(shown.token_ids) == [4, 5]
    assert list(shown.weight_versions) == [0, 0]
    assert shown.values == {
        "rollout_log_prob": pytest.approx([-0.04, -0.05]),
        "reference_log_prob": [-1.0, -2.0],
        "advantage": [0.5, 0.5],
    }
    assert (shown.reward, shown.reward_components) == (0.75, {"accuracy": 1.0})
    assert (shown.reference, shown.label) == ("reference of a", "label of a")
    assert shown.is_truncated


def test_a_run_without_reference_and_components_has_none() -> None:
    experience = _experience()
    experience.base_action_log_probs = None  # type: ignore[assignment]
    experience.info = {"reward": torch.tensor([math.nan, 0.75])}
    group = rollout_group("a", [1], [sample([1, 2, 3]), sample([4, 5])])
    shown = _describe(group, 0, ("failed",), _Row(0, experience))
    assert shown.values["reference_log_prob"] is None
    assert shown.reward_components == {}
    assert math.isnan(shown.reward)


def test_images_stand_in_a_prompt_where_their_parts_do(tmp_path: Path) -> None:
    for name, colour in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (4, 4), colour).save(tmp_path / name)
    prompt = Prompt(
        id="p",
        messages=(
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "image"},
                    {"type": "text", "text": "and"},
                    {"type": "image"},
                ],
            },
        ),
        images=("a.png", "b.png"),
        image_root=tmp_path,
        reference="",
        label="",
    )
    system, first, text, second = _prompt_parts(prompt)
    assert (system, text) == (TextPart("system", "be brief"), TextPart("user", "and"))
    assert isinstance(first, ImagePart)
    assert isinstance(second, ImagePart)
    assert first.read() == (tmp_path / "a.png").read_bytes()
    assert second.read() == (tmp_path / "b.png").read_bytes()


def test_a_video_is_a_part_of_its_prompt_and_shown_by_some_frames(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (40, 20), (10 * index, 0, 0)) for index in range(20)]
    clip = tmp_path / "clip.gif"
    frames[0].save(clip, save_all=True, append_images=frames[1:], duration=100)
    message = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "?"}]}
    prompt = Prompt("p", (message,), (), tmp_path, "", "", ("clip.gif",))  # type: ignore[arg-type]
    video, _ = _prompt_parts(prompt)
    assert isinstance(video, VideoPart)
    pngs = video_pngs(video.read(), MediaConfig(video_fps=10.0), longest_side=20)
    assert len(pngs) == 8
    (tmp_path / "first.png").write_bytes(pngs[0])
    with Image.open(tmp_path / "first.png") as picture:
        assert picture.size == (20, 10)


def test_pictures_are_small_enough_to_look_at(tmp_path: Path) -> None:
    path = tmp_path / "wide.jpg"
    Image.new("RGB", (400, 100), "red").save(path)
    (tmp_path / "small.png").write_bytes(picture_png(path.read_bytes(), longest_side=100))
    with Image.open(tmp_path / "small.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (100, 25))
    with pytest.raises(DataFault):
        picture_png(b"no image", longest_side=100)


def test_the_texts_of_tokens_make_up_the_whole_text() -> None:
    tokenizer = tokenizer_of(load_processor(resolve_embedded("embedded:tiny-qwen2.5-vl")))
    for text in ("7<|im_end|>", "naïve 数字 🙂 end", "a  b\n"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        texts = token_texts(tokenizer, ids)
        assert len(texts) == len(ids)
        assert "".join(texts) == tokenizer.decode(ids, skip_special_tokens=False)


def test_half_a_character_at_the_end_is_not_lost() -> None:
    tokenizer = tokenizer_of(load_processor(resolve_embedded("embedded:tiny-qwen2.5-vl")))
    ids = tokenizer("🙂", add_special_tokens=False)["input_ids"]
    if len(ids) > 1:  # spelled in bytes
        assert "".join(token_texts(tokenizer, ids[:-1])) == tokenizer.decode(ids[:-1])
    assert token_texts(tokenizer, []) == []
