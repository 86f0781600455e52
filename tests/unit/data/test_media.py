"""Images decode to what they show; what cannot be decoded is named and is a data fault."""

import os
import random
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightrft_ray.config.errors import DataFault
from lightrft_ray.config.media import MAX_DECODED_PIXELS
from lightrft_ray.data.media import load_image, load_images
from lightrft_ray.data.media_source import MediaError
from lightrft_ray.data.prompts import Prompt


def _encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _noise(width: int = 40, height: int = 30) -> Image.Image:
    pixels = np.random.RandomState(0).randint(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def _png_claiming(width: int, height: int) -> bytes:
    """A PNG that says it has this size and holds no pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b""))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def _only_colour(image: Image.Image) -> tuple[int, ...]:
    ((_, colour),) = image.getcolors()
    return colour


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_lossless_formats_come_back_exactly(tmp_path: Path, kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    content = _encoded(_noise(), kind, **options)
    (tmp_path / "picture").write_bytes(content)
    for image in (load_image("picture", tmp_path), load_image(content, tmp_path)):
        assert image.mode == "RGB"
        assert np.array_equal(np.asarray(image), np.asarray(_noise()))


def test_the_images_of_a_prompt_keep_their_order(tmp_path: Path) -> None:
    for name, colour in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (4, 4), colour).save(tmp_path / name)
    prompt = Prompt("p", (), ("b.png", "a.png", "b.png"), tmp_path, "", "")
    colours = [_only_colour(image) for image in load_images(prompt)]
    assert colours == [(0, 0, 255), (255, 0, 0), (0, 0, 255)]


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, (255, 255, 255)),
        ("L", 77, (77, 77, 77)),
        ("LA", (0, 0), (255, 255, 255)),
        ("LA", (100, 255), (100, 100, 100)),
        ("RGBA", (255, 0, 0, 0), (255, 255, 255)),
        ("RGBA", (255, 0, 0, 255), (255, 0, 0)),
        ("RGBA", (0, 0, 0, 51), (204, 204, 204)),
        ("I;16", 65535, (255, 255, 255)),
        ("I;16", 32896, (128, 128, 128)),
        ("I;16", 257, (1, 1, 1)),
    ],
)
def test_pixel_modes_keep_their_brightness(
    tmp_path: Path, mode: str, colour: int | tuple[int, ...], expected: tuple[int, ...]
) -> None:
    content = _encoded(Image.new(mode, (5, 3), colour))
    assert _only_colour(load_image(content, tmp_path)) == expected


def test_a_palette_is_looked_up_and_its_transparent_entry_is_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    opaque = load_image(_encoded(image), tmp_path)
    clear = load_image(_encoded(image, transparency=0), tmp_path)
    assert np.asarray(opaque).tolist() == [[[10, 20, 30], [40, 50, 60]]]
    assert np.asarray(clear).tolist() == [[[255, 255, 255], [40, 50, 60]]]


@pytest.mark.parametrize(("orientation", "turned"), [(3, "ROTATE_180"), (6, "ROTATE_270")])
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, turned: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = load_image(_encoded(_noise(), exif=exif), tmp_path)
    upright = _noise().transpose(Image.Transpose[turned])
    assert np.array_equal(np.asarray(image), np.asarray(upright))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"no image at all", "is not one of PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not one of PNG"),
        (_encoded(_noise())[:-200], "cannot be decoded"),
        (_encoded(_noise(), "JPEG")[:-200], "cannot be decoded"),
        (_encoded(Image.new("F", (2, 2), 0.5), "TIFF"), "mode F"),
        (_png_claiming(0, 5), "zero size|is not one of"),
        (_png_claiming(8001, 8000), "has 8001x8000 pixels, over the limit of 64000000"),
        (_png_claiming(100_000, 100_000), "cannot be decoded|over the limit"),
    ],
)
def test_bytes_that_are_no_image_are_a_data_fault(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    with pytest.raises(MediaError, match=f"image of {len(content)} bytes: .*({reason})"):
        load_image(content, tmp_path)
    assert issubclass(MediaError, DataFault)


def test_the_size_limit_lies_below_pillows_own(tmp_path: Path) -> None:
    """Between the two Pillow would only warn."""
    assert Image.MAX_IMAGE_PIXELS is not None
    assert MAX_DECODED_PIXELS < Image.MAX_IMAGE_PIXELS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_damaged_files_never_raise_anything_else(tmp_path: Path, kind: str) -> None:
    """Flipped and lost bytes: an image or a MediaError, whatever Pillow trips over."""
    content, rng = _encoded(_noise(), kind), random.Random(0)
    outcomes = set()
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 8)):
            damaged[min(rng.randrange(len(damaged)), rng.randrange(200))] = rng.randrange(256)
        del damaged[rng.randint(len(damaged) // 2, len(damaged)) :]
        try:
            outcomes.add(load_image(bytes(damaged), tmp_path).mode)
        except MediaError:
            outcomes.add("fault")
    assert "fault" in outcomes
    assert outcomes <= {"fault", "RGB"}


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("missing.png", "does not exist under the image root"),
        ("folder", "is not a file"),
        ("pipe", "is not a file"),
        ("../outside.png", "lies outside the image root"),
        ("folder/../../outside.png", "lies outside the image root"),
        ("/etc/hostname", "lies outside the image root"),
        ("http://example.com/a.png", "addresses are not fetched"),
        ("HTTPS://example.com/a.png", "addresses are not fetched"),
        ("file:///etc/hostname", "addresses are not fetched"),
        ("data:image/png;base64,AAAA", "is not one of PNG"),
        ("data:image/png;base64,A*A", "holds base64 that is damaged"),
        ("data:image/png,AAAA", "is a data: address that is not base64"),
        ("a\0.png", "does not exist"),
        ("x" * 5000 + ".png", "cannot be read .*File name too long"),
    ],
)
def test_a_reference_that_is_no_file_under_the_root(
    tmp_path: Path, reference: str, reason: str
) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "outside.png")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    os.mkfifo(root / "pipe")
    with pytest.raises(MediaError, match=reason) as caught:
        load_image(reference, root)
    shown = reference if len(reference) < 200 else reference[:200] + "..."
    assert str(caught.value).startswith(f"image {shown}: ")


def test_an_absolute_path_under_the_root_and_a_link_inside_it_are_fine(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "picture.png")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.png").symlink_to(tmp_path / "picture.png")
    for reference in ("link.png", str(root / "link.png")):
        assert _only_colour(load_image(reference, root)) == (255, 0, 0)
