"""Images of a prompt, decoded to RGB. What cannot be decoded is a fault of that sample alone."""

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from lightrft_ray.config.media import MAX_DECODED_PIXELS
from lightrft_ray.data.media_source import MediaReference, read_medium, unusable
from lightrft_ray.data.prompts import Prompt

# Formats that data sets hold. Others stay closed: some of Pillow's readers start programs.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
DECODING_ERRORS = (
    OSError,
    SyntaxError,  # Pillow's word for a broken chunk
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""What Pillow's readers raise on damaged files."""


def load_images(prompt: Prompt, max_pixels: int = MAX_DECODED_PIXELS) -> list[Image.Image]:
    """The prompt's images in order, RGB. Raises MediaError for the first that cannot be used."""
    return [load_image(reference, prompt.image_root, max_pixels) for reference in prompt.images]


def load_image(
    reference: MediaReference, root: Path, max_pixels: int = MAX_DECODED_PIXELS
) -> Image.Image:
    """An image as an upright RGB image, whatever it is given as.

    EXIF orientation is applied, transparency is laid over white, 16-bit grey is scaled to 8 bits,
    and of an animation the first frame is taken. What the bytes are counts, not the file's name.
    Raises MediaError as `read_medium` does, and if the image is truncated, unreadable, of zero size
    or of more than `max_pixels` pixels.
    """
    if not isinstance(reference, Image.Image):
        return decode_image(read_medium(reference, root), reference, max_pixels)
    try:
        return upright_rgb(reference, reference, max_pixels)
    except DECODING_ERRORS as error:
        raise unusable("image", reference, f"cannot be decoded ({error})") from error


def decode_image(
    content: bytes, reference: MediaReference, max_pixels: int = MAX_DECODED_PIXELS
) -> Image.Image:
    """As `load_image`, of a file's bytes; `reference` names it in errors."""
    if not content:
        raise unusable("image", reference, "is empty")
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            return upright_rgb(image, reference, max_pixels)
    except UnidentifiedImageError as error:
        formats = ", ".join(FORMATS)
        raise unusable("image", reference, f"is not one of {formats}, or damaged") from error
    except DECODING_ERRORS as error:
        raise unusable("image", reference, f"cannot be decoded ({error})") from error


def upright_rgb(image: Image.Image, reference: MediaReference, max_pixels: int) -> Image.Image:
    """The RGB image of an opened one; its size is checked before its pixels are decoded.

    Raises MediaError for its size, and what Pillow raises for its pixels.
    """
    width, height = image.size
    if width == 0 or height == 0:
        raise unusable("image", reference, f"has zero size ({width}x{height})")
    if width * height > max_pixels:
        raise unusable(
            "image",
            reference,
            f"has {width}x{height} pixels, over the limit of {max_pixels} "
            "(media.max_decoded_pixels)",
        )
    return to_rgb(ImageOps.exif_transpose(image))


def to_rgb(image: Image.Image) -> Image.Image:
    """RGB pixels of any mode, transparency over white.

    Raises ValueError for one without a defined brightness.
    """
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
