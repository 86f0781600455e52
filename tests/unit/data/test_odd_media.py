"""A folder of broken and odd media: no crash, each bad one named, each odd one right."""

import base64
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightrft_ray.data.media import load_image
from lightrft_ray.data.media_source import MediaError, MediaReference
from tests.unit.data.odd_media import bad_media, encoded, odd_media, write_all

ODD, BAD = odd_media(), bad_media()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    write_all(folder)
    return folder


def test_there_are_many_kinds() -> None:
    assert len(BAD) >= 25
    assert len(ODD) >= 35


@pytest.mark.parametrize("name", ODD)
def test_an_odd_image_shows_what_was_put_into_it(folder: Path, name: str) -> None:
    image = load_image(name, folder)
    assert image.mode == "RGB"
    shown = np.asarray(image).astype(int)
    assert shown.shape == ODD[name].pixels.shape
    assert np.abs(shown - ODD[name].pixels).max() <= ODD[name].tolerance


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_named_with_its_reason(folder: Path, name: str) -> None:
    with pytest.raises(MediaError, match=f"^image {name}: .*({BAD[name].reason})"):
        load_image(name, folder)


@pytest.mark.parametrize(
    ("name", "reason"), [("folder.png", "not a file"), ("dangling.png", "not exist")]
)
def test_what_is_no_file_is_named_too(folder: Path, name: str, reason: str) -> None:
    with pytest.raises(MediaError, match=f"^image {name}: .*{reason}"):
        load_image(name, folder)


NOISE = Image.fromarray(np.random.RandomState(1).randint(0, 256, (9, 7, 3), dtype=np.uint8))
FILE = encoded(NOISE)
TEXT = base64.b64encode(FILE).decode()


@pytest.mark.parametrize(
    "reference",
    [
        FILE,
        TEXT,
        TEXT.rstrip("="),
        "\n".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76)),
        f"data:image/png;base64,{TEXT}",
        f"data:;base64,{TEXT}",
        {"bytes": FILE, "path": None},
        {"bytes": FILE, "path": "not/there.png"},
        {"bytes": TEXT},
        {"bytes": None, "path": "noise.png"},
        NOISE,
        NOISE.convert("RGBA"),
    ],
    ids=lambda reference: type(reference).__name__,
)
def test_all_that_an_image_may_be_given_as(tmp_path: Path, reference: MediaReference) -> None:
    (tmp_path / "noise.png").write_bytes(FILE)
    assert np.array_equal(np.asarray(load_image(reference, tmp_path)), np.asarray(NOISE))


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_base64_of_each_format_is_known_from_a_path(tmp_path: Path, kind: str) -> None:
    """A JPEG's begins like an absolute path."""
    content = encoded(NOISE, kind)
    shown = load_image(base64.b64encode(content).decode(), tmp_path)
    assert np.array_equal(np.asarray(shown), np.asarray(load_image(content, tmp_path)))


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ({"bytes": None, "path": None}, "image without bytes and path: has neither"),
        ({}, "image without bytes and path: has neither"),
        ({"path": "../x.png"}, r"image \.\./x\.png: lies outside"),
        (7, "image given as int: is neither a path nor"),
        (b"", "image of 0 bytes: is empty"),
        (TEXT[:64] + "A" * 4, r"image iVBORw0KGgo\S{29}\.\.\.: cannot be decoded|not one of"),
        (Image.new("RGB", (0, 3)), "image in memory of 0x3 pixels: has zero size"),
        (Image.new("F", (2, 2)), "image in memory of 2x2 pixels: cannot be decoded"),
    ],
)
def test_a_reference_that_is_no_image_is_named(
    tmp_path: Path, reference: MediaReference, reason: str
) -> None:
    with pytest.raises(MediaError, match=reason):
        load_image(reference, tmp_path)


def test_the_limit_of_pixels_is_the_callers(tmp_path: Path) -> None:
    assert load_image(FILE, tmp_path, max_pixels=63).size == (7, 9)
    with pytest.raises(MediaError, match="7x9 pixels, over the limit of 62"):
        load_image(FILE, tmp_path, max_pixels=62)
