"""Handwritten digits as an ordinary image data set: PNG files and two JSONL files.

The images are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and
C. Kaynak, UCI Machine Learning Repository, 1998, doi:10.24432/C50P49, CC BY 4.0): 1797 images of
8x8 pixels in the order of scikit-learn's `load_digits`. They lie beside this file: where
scikit-learn is installed, every process that imports transformers spends a second on it too.
Nothing else in the package treats this data set as special: it is read like a user's own.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from lightrft_ray.data.task_files import TaskFiles

QUESTION = "Which digit?"
IMAGE_SIDE = 56  # pixels; the least that Qwen-VL image processors leave unscaled by default
TRAIN_SIZE = 1400
_SPLIT_SEED = 0
_PIXELS = Path(__file__).with_name("digits.npz")
_BRIGHTEST = 16  # pixels count the dark bits of a 4x4 block


def build_digits_dataset(folder: Path) -> TaskFiles:
    """Write images/NNNNN.png (56x56 RGB), train.jsonl (1400 rows) and eval.jsonl (397).

    NNNNN is the image's row in the source. The split is a fixed permutation, so every
    build holds the same rows in the same order.
    """
    files = TaskFiles(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for split, indices, labels in split_digits():
        for index in indices:
            digit_image(index).save(folder / _image_path(index))
        path = files.train_file if split == "train" else files.eval_file
        _write_rows(path, split, indices, labels)
    return files


def split_digits() -> list[tuple[str, list[int], list[int]]]:
    """(train or eval, the rows of its images, the labels of all rows)."""
    labels = _digits()[1]
    # RandomState's streams are frozen by NumPy's compatibility policy; default_rng's are not.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(labels)).tolist()
    return [("train", order[:TRAIN_SIZE], labels), ("eval", order[TRAIN_SIZE:], labels)]


def digit_image(index: int) -> Image.Image:
    """The image in a row of the source, 56x56 RGB."""
    grey = Image.fromarray((_digits()[0][index] * (255 / _BRIGHTEST)).astype(np.uint8))
    return grey.resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BICUBIC).convert("RGB")


@cache
def _digits() -> tuple[np.ndarray, list[int]]:
    """Pixels (1797, 8, 8), uint8 from 0 to 16, and labels."""
    with np.load(_PIXELS) as arrays:
        return arrays["images"], arrays["labels"].tolist()


def _image_path(index: int) -> str:
    return f"images/{index:05d}.png"


def _write_rows(path: Path, split: str, indices: Iterable[int], labels: list[int]) -> None:
    content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    rows = (
        {
            "id": f"digits-{split}-{index:05d}",
            "prompt": [{"role": "user", "content": content}],
            "images": [_image_path(index)],
            "reference": str(labels[index]),
            "label": "digits",
        }
        for index in indices
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
