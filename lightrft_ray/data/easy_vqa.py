"""Natural-language questions on images of shapes: easy-VQA by Victor Zhou (MIT licence).

The package `easy-vqa` holds 5,000 images of 64x64 pixels and 48,248 questions with thirteen
answers: yes, no, three shapes and eight colours.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lightrft_ray.data.task_files import Question, write_questions

_SIZES = {"train": 4000, "test": 300}
_SPLITS = {"train": "train", "test": "eval"}
_SEED = 0
_YES_NO = ("yes", "no")


def build_easy_vqa(folder: Path) -> None:
    """Write the images (PNG), train.jsonl (4,000 rows) and eval.jsonl (300) into `folder`.

    The rows are a fixed draw from the package's own two splits.
    """
    import easy_vqa

    package = Path(easy_vqa.__file__).parent / "data"
    questions = {
        "train": easy_vqa.get_train_questions(),
        "test": easy_vqa.get_test_questions(),
    }
    for split, rows in questions.items():
        target = folder / _SPLITS[split]
        shutil.copytree(package / split / "images", target)
        path = folder / f"{_SPLITS[split]}.jsonl"
        write_questions(path, f"easy-vqa-{split}", _drawn(split, list(zip(*rows, strict=True))))


def _drawn(split: str, rows: Sequence[tuple[str, str, int]]) -> list[Question]:
    order = np.random.RandomState(_SEED).permutation(len(rows))[: _SIZES[split]]
    return [_question(_SPLITS[split], *rows[index]) for index in order]


def _question(folder: str, text: str, answer: str, image: int) -> Question:
    label = "yes-no" if answer in _YES_NO else "open"
    return Question(text, answer, label, images=[f"{folder}/{image}.png"])
