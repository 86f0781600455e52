"""Samples on disk: the documented format, images once, and what cannot be read."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lightrft_ray.config.errors import DataFault
from lightrft_ray.observe.sample_choice import choose_samples
from lightrft_ray.observe.trajectories import (
    ImagePart,
    StepSamples,
    TextPart,
    Trajectory,
    TrajectoryWriter,
    VideoPart,
    remove_after,
)


def _trajectory(read: Callable[[], bytes], **changes: object) -> Trajectory:
    facts = {
        "prompt_id": "p1",
        "epoch": 2,
        "sample_index": 3,
        "rules": ("best", "random"),
        "prompt": (TextPart("system", "be brief"), ImagePart("user", read)),
        "response": "7",
        "token_ids": [11, 12],
        "weight_versions": [4, 5],
        "values": {
            "rollout_log_prob": [-0.12345678, math.nan],
            "learner_log_prob": None,
            "advantage": [1.0, 1.0],
        },
        "reward": 0.9,
        "reward_components": {"accuracy": 1.0},
        "reference": "7",
        "label": None,
        "is_truncated": False,
    }
    return Trajectory(**{**facts, **changes})  # type: ignore[arg-type]


def _texts(token_ids: Sequence[int]) -> list[str]:
    return [f"<{token}>" for token in token_ids]


def _writer(folder: Path) -> TrajectoryWriter:
    return TrajectoryWriter(
        folder,
        _texts,
        lambda content: b"PNG of " + content,
        lambda content: [b"first of " + content, b"last of " + content],
    )


def _write(folder: Path, step: int, *samples: Trajectory) -> list[dict[str, object]]:
    _writer(folder).write(StepSamples(step, lambda: samples))
    text = (folder / f"step_{step:06d}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def test_a_sample_has_the_documented_form(tmp_path: Path) -> None:
    (entry,) = _write(tmp_path, 10, _trajectory(lambda: b"image"))
    name = hashlib.sha256(b"image").hexdigest()
    assert entry == {
        "step": 10,
        "prompt_id": "p1",
        "epoch": 2,
        "sample_index": 3,
        "rules": ["best", "random"],
        "prompt": [
            {"type": "text", "role": "system", "text": "be brief"},
            {"type": "image", "role": "user", "file": f"images/{name}.png"},
        ],
        "response": "7",
        "tokens": {
            "text": ["<11>", "<12>"],
            "id": [11, 12],
            "rollout_log_prob": [-0.123457, None],
            "learner_log_prob": None,
            "reference_log_prob": None,
            "entropy": None,
            "advantage": [1.0, 1.0],
            "weight_version": [4, 5],
        },
        "reward": 0.9,
        "reward_components": {"accuracy": 1.0},
        "reference": "7",
        "label": None,
        "finish_reason": "stop",
    }
    assert (tmp_path / "images" / f"{name}.png").read_bytes() == b"PNG of image"


def test_a_failed_and_a_cut_sample_say_so(tmp_path: Path) -> None:
    sample = _trajectory(lambda: b"", reward=math.nan, is_truncated=True)
    (entry,) = _write(tmp_path, 1, sample)
    assert (entry["reward"], entry["finish_reason"]) == (None, "length")


def test_an_image_is_written_once_for_all_its_samples(tmp_path: Path) -> None:
    _write(tmp_path, 1, _trajectory(lambda: b"a"), _trajectory(lambda: b"a"))
    (image,) = (tmp_path / "images").iterdir()
    image.write_bytes(b"kept")
    _write(tmp_path, 2, _trajectory(lambda: b"a"))
    assert image.read_bytes() == b"kept"
    _write(tmp_path, 3, _trajectory(lambda: b"b"))
    assert len(list((tmp_path / "images").iterdir())) == 2


def test_a_video_has_a_file_for_each_frame(tmp_path: Path) -> None:
    prompt = (VideoPart("user", lambda: b"clip"),)
    for step in (1, 2):
        (entry,) = _write(tmp_path, step, _trajectory(lambda: b"", prompt=prompt))
        (part,) = entry["prompt"]  # type: ignore[misc]
        assert part["type"] == "video"
        frames = [(tmp_path / file).read_bytes() for file in part["files"]]
        assert frames == [b"first of clip", b"last of clip"]
    assert len(list((tmp_path / "images").iterdir())) == 2


def test_an_image_that_is_gone_leaves_its_reason(tmp_path: Path) -> None:
    def gone() -> bytes:
        raise DataFault("image 7.png: does not exist")

    (entry,) = _write(tmp_path, 1, _trajectory(gone))
    text = "[image 7.png: does not exist]"
    assert entry["prompt"][1] == {"type": "text", "role": "user", "text": text}  # type: ignore[index]


def test_line_separators_in_a_response_stay_inside_its_line(tmp_path: Path) -> None:
    response = "a\u2028b\nc</script>"
    (entry,) = _write(tmp_path, 1, _trajectory(lambda: b"", response=response))
    assert entry["response"] == response


def test_going_back_removes_the_files_of_later_steps(tmp_path: Path) -> None:
    for step in (1, 5, 10):
        _write(tmp_path, step, _trajectory(lambda: b""))
    remove_after(tmp_path, 5)
    names = sorted(path.name for path in tmp_path.glob("step_*"))
    assert names == ["step_000001.jsonl", "step_000005.jsonl"]


def test_samples_are_chosen_by_rule() -> None:
    rewards = [0.5, math.nan, 1.0, 0.0, 1.0, math.nan]
    chosen = choose_samples(rewards, 2, seed=3)
    by_rule = {
        rule: [row for row, rules in chosen.items() if rule in rules]
        for rule in ("best", "worst", "random", "failed")
    }
    assert by_rule["best"] == [2, 4]
    assert sorted(by_rule["worst"]) == [0, 3]
    assert by_rule["failed"] == [1, 5]
    assert len(by_rule["random"]) == 2
    assert chosen == choose_samples(rewards, 2, seed=3)
    assert len({tuple(choose_samples(rewards, 2, seed=seed)) for seed in range(20)}) > 1


@pytest.mark.parametrize("rewards", [[], [math.nan], [1.0]])
def test_a_step_of_few_samples_shows_those_it_has(rewards: list[float]) -> None:
    assert set(choose_samples(rewards, 3, seed=0)) == set(range(len(rewards)))
