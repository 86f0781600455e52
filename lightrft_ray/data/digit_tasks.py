"""Tasks made of handwritten digits: two images to compare, and short videos to count in.

Both draw their digits from the split of `digits.py` that they belong to, so that no held-out row
shows a digit that was trained on.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from lightrft_ray.data.digits import IMAGE_SIDE, digit_image, split_digits
from lightrft_ray.data.task_files import Question, write_questions

COMPARISON_QUESTION = "Which digit is larger: first, second or same?"
VIDEO_QUESTION = "How many digits?"
VIDEO_FRAMES = 4
FRAME_MS = 500  # two frames a second, as many as are sampled by default
_SIZES = {"train": 1000, "eval": 200}
_SEEDS = {"train": 1, "eval": 2}


def build_digit_comparison(folder: Path) -> None:
    """Write images/ (56x56 RGB), train.jsonl (1000 rows) and eval.jsonl (200) into `folder`.

    A third of the pairs show the same digit, written by different hands.
    """
    (folder / "images").mkdir(parents=True)
    for split, indices, labels in split_digits():
        rng = np.random.RandomState(_SEEDS[split])  # its streams are frozen, unlike default_rng's
        questions = []
        for _ in range(_SIZES[split]):
            first, second = _pair(rng, indices, labels)
            images = [_save_digit(folder, index) for index in (first, second)]
            answer = _comparison(labels[first], labels[second])
            questions.append(Question(COMPARISON_QUESTION, answer, "comparison", images=images))
        write_questions(folder / f"{split}.jsonl", f"comparison-{split}", questions)


def _pair(rng: np.random.RandomState, indices: list[int], labels: list[int]) -> tuple[int, int]:
    first = indices[rng.randint(len(indices))]
    wants_same = rng.randint(3) == 0
    fitting = [
        index
        for index in indices
        if index != first and (labels[index] == labels[first]) == wants_same
    ]
    return first, fitting[rng.randint(len(fitting))]


def _comparison(first: int, second: int) -> str:
    if first == second:
        return "same"
    return "first" if first > second else "second"


def _save_digit(folder: Path, index: int) -> str:
    path = f"images/{index:05d}.png"
    if not (folder / path).exists():
        digit_image(index).save(folder / path)
    return path


def build_digit_video(folder: Path) -> None:
    """Write videos/ (animated PNG of 4 frames of 56x56), train.jsonl (1000 rows) and eval.jsonl.

    Some frames show a digit and the others none; a bar at the bottom tells the frames apart.
    """
    (folder / "videos").mkdir(parents=True)
    for split, indices, _ in split_digits():
        rng = np.random.RandomState(_SEEDS[split])
        questions = []
        for number in range(_SIZES[split]):
            count = rng.randint(VIDEO_FRAMES + 1)
            shown = set(rng.permutation(VIDEO_FRAMES)[:count].tolist())
            chosen = [indices[each] for each in rng.randint(len(indices), size=VIDEO_FRAMES)]
            path = f"videos/{split}-{number:05d}.png"
            frames = [
                _frame(place, digit if place in shown else None)
                for place, digit in enumerate(chosen)
            ]
            frames[0].save(
                folder / path, save_all=True, append_images=frames[1:], duration=FRAME_MS
            )
            questions.append(Question(VIDEO_QUESTION, str(count), "counting", videos=[path]))
        write_questions(folder / f"{split}.jsonl", f"counting-{split}", questions)


def _frame(place: int, digit: int | None) -> Image.Image:
    """Frames must differ: an encoder stores equal ones as one that lasts longer."""
    frame = Image.new("L", (IMAGE_SIDE, IMAGE_SIDE))
    if digit is not None:
        frame = digit_image(digit).convert("L")
    width = IMAGE_SIDE // VIDEO_FRAMES
    frame.paste(255, (place * width, IMAGE_SIDE - 2, (place + 1) * width, IMAGE_SIDE))
    return frame
