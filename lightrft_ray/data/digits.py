"""Handwritten digits as an ordinary image data set: PNG files and two JSONL files.

The images are scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" test set
(1797 images of 8x8 pixels), so no download is needed. Nothing else in the package treats this data
set as special: it is read like a user's own.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

QUESTION = "Which digit?"
IMAGE_SIDE = 56  # pixels; the least that Qwen-VL image processors leave unscaled by default
TRAIN_SIZE = 1400
_SPLIT_SEED = 0
_BRIGHTEST = 16  # scikit-learn's pixels count the dark bits of a 4x4 block


@dataclass(frozen=True)
class DigitsDataset:
    """Where a built digits data set keeps its two splits; image paths are relative to `folder`."""

    folder: Path

    @property
    def train_file(self) -> Path:
        """JSONL with 1400 rows."""
        return self.folder / "train.jsonl"

    @property
    def eval_file(self) -> Path:
        """JSONL with the 397 held-out rows."""
        return self.folder / "eval.jsonl"


def build_digits_dataset(folder: Path) -> DigitsDataset:
    """Write images/NNNNN.png (56x56 RGB), train.jsonl and eval.jsonl into `folder`.

    NNNNN is the image's row in scikit-learn's data set. The split is a fixed permutation, so every
    build holds the same rows in the same order.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for index, pixels in enumerate(bunch.images):
        _as_image(pixels).save(folder / _image_path(index))
    # RandomState's streams are frozen by NumPy's compatibility policy; default_rng's are not.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(bunch.target)).tolist()
    labels = bunch.target.tolist()
    dataset = DigitsDataset(folder)
    _write_rows(dataset.train_file, "train", order[:TRAIN_SIZE], labels)
    _write_rows(dataset.eval_file, "eval", order[TRAIN_SIZE:], labels)
    return dataset


def _as_image(pixels: np.ndarray) -> Image.Image:
    grey = Image.fromarray((pixels * (255 / _BRIGHTEST)).astype(np.uint8))
    return grey.resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BICUBIC).convert("RGB")


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
