"""Images of a prompt, decoded to RGB. What cannot be decoded is a fault of that sample alone."""

import os
import re
import struct
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from lightrft_ray.config.errors import DataFault
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.stored_media import is_stored, read_stored

# Formats that data sets hold. Others stay closed: some of Pillow's readers start programs.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_PIXELS = 64_000_000  # decoded, 192 MB; below Pillow's own limit, which only warns
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|data:", re.IGNORECASE)
_SHOWN_LENGTH = 200  # characters of a reference in an error; a data: address may have millions
_DECODING_ERRORS = (
    OSError,
    SyntaxError,  # Pillow's word for a broken chunk
    ValueError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
)


class MediaError(DataFault):
    """An image that cannot be used: names the reference and the reason."""


def _unusable(reference: str, reason: str) -> MediaError:
    cut = reference if len(reference) <= _SHOWN_LENGTH else f"{reference[:_SHOWN_LENGTH]}..."
    return MediaError(f"image {cut}: {reason}")


def load_images(prompt: Prompt) -> list[Image.Image]:
    """The prompt's images in order, RGB. Raises MediaError for the first that cannot be used."""
    return [load_image(reference, prompt.image_root) for reference in prompt.images]


def load_image(reference: str | bytes, root: Path) -> Image.Image:
    """Decode a path under `root`, or an encoded image's bytes, to an upright RGB image.

    EXIF orientation is applied, transparency is laid over white, 16-bit grey is scaled to 8 bits,
    and of an animation the first frame is taken. Raises MediaError if the path is missing, is an
    address or leaves the root by its spelling (symbolic links inside the root are followed), and
    if the image is truncated, unreadable, of zero size or of more than MAX_PIXELS pixels.
    """
    if isinstance(reference, bytes):
        return _decode(reference, f"of {len(reference)} bytes")
    return _decode(read_image(reference, root), reference)


def read_image(reference: str, root: Path) -> bytes:
    """The bytes of an image's file; raises MediaError as `load_image` does for a path."""
    if is_stored(reference):
        return read_stored(reference)
    if _ADDRESS.match(reference):
        raise _unusable(reference, "addresses are not fetched; download it and give its path")
    base = os.path.normpath(root.absolute())
    path = Path(os.path.normpath(Path(base) / reference))
    if not path.is_relative_to(base):
        raise _unusable(reference, f"lies outside the image root {base}")
    try:
        if not path.is_file():  # a device or a pipe would block
            reason = "is not a file" if path.exists() else "does not exist"
            raise _unusable(reference, f"{reason} under the image root {base}")
        return path.read_bytes()
    except OSError as error:
        raise _unusable(reference, f"cannot be read ({error})") from error


def _decode(content: bytes, name: str) -> Image.Image:
    if not content:
        raise _unusable(name, "is empty")
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            _check_size(image, name)
            return _to_rgb(ImageOps.exif_transpose(image))
    except UnidentifiedImageError as error:
        raise _unusable(name, f"is not one of {', '.join(FORMATS)}, or damaged") from error
    except _DECODING_ERRORS as error:
        raise _unusable(name, f"cannot be decoded ({error})") from error


def _check_size(image: Image.Image, name: str) -> None:
    """Before the pixels are decoded."""
    width, height = image.size
    if width == 0 or height == 0:
        raise _unusable(name, f"has zero size ({width}x{height})")
    if width * height > MAX_PIXELS:
        raise _unusable(name, f"has {width}x{height} pixels, over the limit of {MAX_PIXELS}")


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return _sixteen_bit_to_eight(image).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode} have no defined brightness range")
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        white = Image.new("RGBA", colours.size, "white")
        return Image.alpha_composite(white, colours).convert("RGB")
    return image.convert("RGB")


def _sixteen_bit_to_eight(image: Image.Image) -> Image.Image:
    """Rounded, where Pillow's own conversion would clip at 255."""
    wide = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
