"""The embedded tasks: right answers, disjoint splits, ordinary files."""

from pathlib import Path

import numpy as np
import pytest

from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.digits import split_digits
from lightrft_ray.data.embedded import resolve_embedded
from lightrft_ray.data.media import load_images
from lightrft_ray.data.prompts import Prompt, read_prompts
from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.data.video import load_video

SIZES = {
    "digit-comparison": (1000, 200),
    "digit-video": (1000, 200),
    "easy-vqa": (4000, 300),
    "arithmetic": (210, 50),
}


def _splits(name: str) -> tuple[list[Prompt], list[Prompt]]:
    files = TaskFiles(resolve_embedded(f"embedded:{name}"))
    read = [
        read_prompts(path, max_bad_fraction=0)[0] for path in (files.train_file, files.eval_file)
    ]
    return read[0], read[1]


def _text(prompt: Prompt) -> str:
    (message,) = prompt.messages
    return str(message["content"][-1]["text"])


@pytest.mark.parametrize("name", SIZES)
def test_the_splits_are_readable_and_apart(name: str) -> None:
    train, held_out = _splits(name)
    assert (len(train), len(held_out)) == SIZES[name]
    media = [
        {each for p in split for each in (*p.images, *p.videos)} for split in (train, held_out)
    ]
    assert not media[0] & media[1]
    if name == "arithmetic":
        assert not {_text(prompt) for prompt in train} & {_text(prompt) for prompt in held_out}


def test_comparisons_are_right_and_of_digits_of_their_split() -> None:
    for prompts, (_, indices, labels) in zip(
        _splits("digit-comparison"), split_digits(), strict=True
    ):
        own = set(indices)
        for prompt in prompts:
            first, second = (int(Path(path).stem) for path in prompt.images)
            assert {first, second} <= own and first != second
            difference = labels[first] - labels[second]
            expected = "same" if difference == 0 else "first" if difference > 0 else "second"
            assert prompt.reference == expected


def test_videos_show_as_many_digits_as_they_say() -> None:
    for prompt in _splits("digit-video")[1][:40]:
        video = load_video(prompt.videos[0], prompt.image_root, MediaConfig())
        assert (len(video.frames), video.fps) == (4, 2.0)
        above_the_bar = video.frames[:, :-4]
        shown = int((above_the_bar.reshape(4, -1).max(axis=1) > 60).sum())
        assert prompt.reference == str(shown)


COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def test_the_shapes_have_the_colour_that_the_answer_names() -> None:
    checked = 0
    for prompt in _splits("easy-vqa")[1]:
        if prompt.reference in COLOURS:
            (image,) = load_images(prompt)
            assert image.size == (64, 64)
            near = np.abs(np.asarray(image).astype(int) - COLOURS[prompt.reference]).max(-1) < 110
            assert near.mean() > 0.01
            checked += 1
    assert checked > 10


def test_arithmetic_is_right() -> None:
    for prompt in (*_splits("arithmetic")[0], *_splits("arithmetic")[1]):
        a, operator, b = _text(prompt).removeprefix("What is ").removesuffix("?").split()
        expected = int(a) + int(b) if operator == "+" else int(a) - int(b)
        assert prompt.reference == str(expected)
        assert not prompt.images
