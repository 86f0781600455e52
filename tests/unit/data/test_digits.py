"""The embedded data set is ordinary files with a fixed, disjoint split."""

import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

from lightrft_ray.data import digits as digits_module
from lightrft_ray.data.task_files import TaskFiles

# Of the pixels and labels of scikit-learn 1.9.1's `load_digits`, as uint8.
_CONTENT = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def _source() -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels as they are shipped."""
    with np.load(Path(digits_module.__file__).with_name("digits.npz")) as arrays:
        return arrays["images"], arrays["labels"]


def _rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_pixels_and_labels_are_those_of_the_published_set() -> None:
    images, labels = _source()
    assert (images.shape, images.dtype, labels.shape) == ((1797, 8, 8), np.uint8, (1797,))
    assert hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() == _CONTENT


def test_the_splits_cover_every_image_once(digits: TaskFiles) -> None:
    train, held_out = _rows(digits.train_file), _rows(digits.eval_file)
    images = [row["images"][0] for row in train + held_out]
    assert (len(train), len(held_out), len(set(images))) == (1400, 397, 1797)
    assert all((digits.folder / image).is_file() for image in images)


def test_a_row_has_the_documented_form(digits: TaskFiles) -> None:
    row = _rows(digits.train_file)[0]
    content = [{"type": "image"}, {"type": "text", "text": "Which digit?"}]
    assert row == {
        "id": "digits-train-01081",
        "prompt": [{"role": "user", "content": content}],
        "images": ["images/01081.png"],
        "reference": "2",
        "label": "digits",
    }


def test_images_show_what_their_reference_says(digits: TaskFiles) -> None:
    """Shrunk back to 8x8, an image is the source's pixels up to the resampling."""
    pixels, labels = _source()
    for row in _rows(digits.eval_file)[:20]:
        index = int(row["id"].rsplit("-", 1)[1])
        with Image.open(digits.folder / row["images"][0]) as image:
            assert (image.size, image.mode) == ((56, 56), "RGB")
            small = np.asarray(image.convert("L").resize((8, 8), Image.Resampling.BOX)) / 255 * 16
        assert np.corrcoef(small.ravel(), pixels[index].ravel())[0, 1] > 0.97
        assert row["reference"] == str(labels[index])
