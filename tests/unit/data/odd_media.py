"""A folder of images as users really have them: odd ones that are good, and bad ones.

Each odd one comes with the pixels that it shows, computed here with NumPy from what was put into
the file; each bad one with a part of the reason that it must be refused with.
"""

import struct
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, PngImagePlugin

_HEIGHT, _WIDTH = 6, 8
_RNG = np.random.RandomState(3)
_COLOURS = _RNG.randint(0, 256, (_HEIGHT, _WIDTH, 3), dtype=np.uint8)
_GREY = _RNG.randint(0, 256, (_HEIGHT, _WIDTH), dtype=np.uint8)
_ALPHA = _RNG.randint(0, 256, (_HEIGHT, _WIDTH), dtype=np.uint8)
_WIDE = _RNG.randint(0, 65536, (_HEIGHT, _WIDTH)).astype(np.uint16)
_TABLE = _RNG.randint(0, 256, (16, 3), dtype=np.uint8)
_INKS = _RNG.randint(0, 256, (_HEIGHT, _WIDTH, 4), dtype=np.uint8)
_ORIENTATION = 0x0112


@dataclass(frozen=True)
class Odd:
    """A good file: what it must decode to, up to `tolerance` for lossy formats and rounding."""

    content: bytes
    pixels: np.ndarray
    tolerance: int = 0


@dataclass(frozen=True)
class Bad:
    """A file that must be refused, and a part of the reason."""

    content: bytes
    reason: str


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_claiming(width: int, height: int) -> bytes:
    """A PNG that says it has this size and holds no pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _over_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    share = alpha[..., None] / 255
    return np.rint(colours * share + 255 * (1 - share)).astype(np.uint8)


def _three(grey: np.ndarray) -> np.ndarray:
    return np.repeat(grey[..., None], 3, axis=2)


def _rgba() -> Image.Image:
    return Image.fromarray(np.dstack([_COLOURS, _ALPHA]), "RGBA")


def _palette() -> tuple[Image.Image, np.ndarray]:
    indices = (_GREY % 16).astype(np.uint8)
    image = Image.fromarray(indices, "P")
    image.putpalette(_TABLE.flatten().tolist())
    return image, _TABLE[indices]


def _turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return encoded(Image.fromarray(_COLOURS), exif=exif)


# What must be done to the stored pixels, by EXIF 2.32 ("the 0th row is the visual …").
_UPRIGHT = {
    2: _COLOURS[:, ::-1],
    3: _COLOURS[::-1, ::-1],
    4: _COLOURS[::-1],
    5: _COLOURS.transpose(1, 0, 2),
    6: np.rot90(_COLOURS, -1),
    7: np.rot90(_COLOURS.transpose(1, 0, 2), 2),
    8: np.rot90(_COLOURS, 1),
}


def _animation(kind: str, **options: object) -> bytes:
    frames = [Image.fromarray(_COLOURS), *(Image.new("RGB", (_WIDTH, _HEIGHT)) for _ in range(2))]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)


def _commented(size: int) -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_text("comment", "x" * size, zip=True)
    return encoded(Image.fromarray(_COLOURS), pnginfo=text)


def _cmyk() -> tuple[Image.Image, np.ndarray]:
    light = 255 - _INKS.astype(int)
    rgb = np.rint(light[..., :3] * light[..., 3:] / 255).astype(np.uint8)
    return Image.fromarray(_INKS, "CMYK"), rgb


def odd_media() -> dict[str, Odd]:
    """Good files by name."""
    plain, grey = Image.fromarray(_COLOURS), Image.fromarray(_GREY)
    palette, looked_up = _palette()
    cmyk, inked = _cmyk()
    wide = np.rint(_WIDE / 257).astype(np.uint8)
    clear_first = looked_up.copy()
    clear_first[(_GREY % 16) == 0] = 255
    smooth = np.full((16, 16, 3), (90, 120, 200), np.uint8)
    bilevel = ((_GREY > 127) * 255).astype(np.uint8)
    la = Image.fromarray(np.dstack([_GREY, _ALPHA]), "LA")
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    odd = {
        "plain.png": Odd(encoded(plain), _COLOURS),
        "plain.bmp": Odd(encoded(plain, "BMP"), _COLOURS),
        "plain.tiff": Odd(encoded(plain, "TIFF"), _COLOURS),
        "compressed.tiff": Odd(encoded(plain, "TIFF", compression="tiff_lzw"), _COLOURS),
        "lossless.webp": Odd(encoded(plain, "WEBP", lossless=True), _COLOURS),
        "smooth.jpg": Odd(encoded(Image.fromarray(smooth), "JPEG", quality=95), smooth, 3),
        "progressive.jpg": Odd(
            encoded(Image.fromarray(smooth), "JPEG", quality=95, progressive=True), smooth, 3
        ),
        "grey.jpg": Odd(encoded(Image.new("L", (9, 9), 77), "JPEG"), np.full((9, 9, 3), 77), 2),
        "grey.png": Odd(encoded(grey), _three(_GREY)),
        "grey_alpha.png": Odd(encoded(la), _over_white(_three(_GREY), _ALPHA), 1),
        "alpha.png": Odd(encoded(_rgba()), _over_white(_COLOURS, _ALPHA), 1),
        "alpha.webp": Odd(
            encoded(_rgba(), "WEBP", lossless=True, exact=True), _over_white(_COLOURS, _ALPHA), 1
        ),
        "alpha.tiff": Odd(encoded(_rgba(), "TIFF"), _over_white(_COLOURS, _ALPHA), 1),
        "palette.png": Odd(encoded(palette), looked_up),
        "palette_clear.png": Odd(encoded(palette, transparency=0), clear_first),
        "palette.gif": Odd(encoded(palette, "GIF"), looked_up),
        "palette.bmp": Odd(encoded(palette, "BMP"), looked_up),
        "bilevel.png": Odd(encoded(Image.fromarray(bilevel).convert("1")), _three(bilevel)),
        "bilevel.tiff": Odd(
            encoded(Image.fromarray(bilevel).convert("1"), "TIFF", compression="group4"),
            _three(bilevel),
        ),
        "sixteen_bit.png": Odd(encoded(Image.fromarray(_WIDE)), _three(wide)),
        "sixteen_bit.tiff": Odd(encoded(Image.fromarray(_WIDE), "TIFF"), _three(wide)),
        "cmyk.tiff": Odd(encoded(cmyk, "TIFF"), inked, 1),
        "profile.png": Odd(encoded(plain, icc_profile=profile), _COLOURS),
        "comment.png": Odd(_commented(5000), _COLOURS),
        "animated.gif": Odd(
            encoded(palette, "GIF", save_all=True, append_images=[Image.new("P", palette.size)]),
            looked_up,
        ),
        "animated.webp": Odd(_animation("WEBP", lossless=True), _COLOURS),
        "animated.png": Odd(_animation("PNG"), _COLOURS),
        "pages.tiff": Odd(_animation("TIFF"), _COLOURS),
        "a_png_called.jpg": Odd(encoded(plain), _COLOURS),
        "a_webp_without_extension": Odd(encoded(plain, "WEBP", lossless=True), _COLOURS),
        "trailing_bytes.png": Odd(encoded(plain) + b"behind the end", _COLOURS),
        "one_pixel.png": Odd(encoded(Image.new("RGB", (1, 1), (1, 2, 3))), np.array([[[1, 2, 3]]])),
        "name with ümlaut and space.png": Odd(encoded(plain), _COLOURS),
    }
    turned = {f"turned_{each}.png": Odd(_turned(each), _UPRIGHT[each]) for each in _UPRIGHT}
    return odd | turned


def bad_media() -> dict[str, Bad]:
    """Files that must be refused, by name."""
    noise = np.random.RandomState(0).randint(0, 256, (40, 40, 3), dtype=np.uint8)
    png, jpeg = encoded(Image.fromarray(noise)), encoded(Image.fromarray(noise), "JPEG")
    half = {kind: encoded(Image.fromarray(noise), kind) for kind in ("WEBP", "GIF", "BMP", "TIFF")}
    broken = "cannot be decoded|is not one of"
    return {
        "empty.png": Bad(b"", "is empty"),
        "text.png": Bad(b"no image at all", "is not one of PNG"),
        "page.jpg": Bad(b"<!DOCTYPE html><html>404 Not Found</html>", "is not one of PNG"),
        "drawing.svg": Bad(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is not one of PNG"),
        "script.eps": Bad(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not one of"),
        "document.pdf": Bad(b"%PDF-1.7\n%%EOF\n", "is not one of PNG"),
        "archive.png": Bad(b"PK\x03\x04" + bytes(60), "is not one of PNG"),
        "zeros.png": Bad(bytes(512), "is not one of PNG"),
        "pointer.png": Bad(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is not one of"
        ),
        "other_format.ppm": Bad(b"P6 1 1 255\n\1\2\3", "is not one of PNG"),
        "half.png": Bad(png[: len(png) // 2], broken),
        "half.jpg": Bad(jpeg[: len(jpeg) // 2], broken),
        "half.webp": Bad(half["WEBP"][: len(half["WEBP"]) // 2], broken),
        "half.gif": Bad(half["GIF"][: len(half["GIF"]) // 2], broken),
        "half.bmp": Bad(half["BMP"][: len(half["BMP"]) // 2], broken),
        "half.tiff": Bad(half["TIFF"][: len(half["TIFF"]) // 2], broken),
        "header_alone.png": Bad(png[:33], broken),
        "signature_alone.png": Bad(png[:8], broken),
        "wrong_checksum.png": Bad(png[:20] + b"\xff" + png[21:], broken),
        "wrong_pixels.png": Bad(png[:60] + bytes(200) + png[260:], broken),
        "no_pixels.png": Bad(png_claiming(4, 4), broken),
        "zero_size.png": Bad(png_claiming(0, 5), "zero size|is not one of"),
        "gigantic.png": Bad(png_claiming(8001, 8000), "8001x8000 pixels, over the limit"),
        "bomb.png": Bad(png_claiming(100_000, 100_000), "cannot be decoded|over the limit"),
        "text_bomb.png": Bad(_commented(5_000_000), broken),
        "float.tiff": Bad(encoded(Image.new("F", (2, 2), 0.5), "TIFF"), "mode F"),
        "integers.tiff": Bad(encoded(Image.new("I", (2, 2), 70_000), "TIFF"), "mode I"),
    }


def write_all(folder: Path) -> None:
    """All files of both kinds, a folder with the name of an image, and a link to nowhere."""
    for name, each in (odd_media() | bad_media()).items():
        (folder / name).write_bytes(each.content)
    (folder / "folder.png").mkdir()
    (folder / "dangling.png").symlink_to(folder / "nowhere")
