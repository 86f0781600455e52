"""Images as files for people to look at."""

from io import BytesIO
from pathlib import Path

from lightrft_ray.data.media import load_image


def picture_png(content: bytes, longest_side: int) -> bytes:
    """A PNG of an encoded image, no side longer than `longest_side` pixels.

    Raises MediaError as `load_image` does.
    """
    image = load_image(content, Path())
    image.thumbnail((longest_side, longest_side))
    file = BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()
