"""Images for services that take PNG alone: what they see is what the policy saw."""

import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from lightrft_ray.data.media import load_image
from lightrft_ray.rewards.sample import EncodedMedia

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PLAIN_CHUNKS = (b"IHDR", b"IDAT", b"IEND", b"pHYs", b"sRGB", b"gAMA", b"cHRM")
_EIGHT_BIT_RGB = b"\x08\x02"  # bit depth and colour type in IHDR


def as_png(image: EncodedMedia) -> bytes:
    """An RGB PNG of the upright image, transparency laid over white and 16 bits scaled to 8.

    Servers convert palettes, alpha and 16-bit pixels each in their own way, and some not at all.
    Raises MediaError for what cannot be decoded.
    """
    if _is_plain(image.data):
        return image.data
    target = BytesIO()
    load_image(image.data, Path()).save(target, format="PNG")
    return target.getvalue()


def _is_plain(content: bytes) -> bool:
    """Whether it is an 8-bit RGB PNG with nothing that turns it or makes it transparent."""
    chunks = list(_chunks(content))
    return bool(chunks) and (
        chunks[0][1][8:10] == _EIGHT_BIT_RGB
        and all(name in _PLAIN_CHUNKS for name, _ in chunks)
        and chunks[-1][0] == b"IEND"
    )


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and content of each chunk of a PNG; none of anything else."""
    place = len(_SIGNATURE)
    if not content.startswith(_SIGNATURE):
        return
    while place + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, place)
        yield content[place + 4 : place + 8], content[place + 8 : place + 8 + min(length, 16)]
        place += 12 + length
