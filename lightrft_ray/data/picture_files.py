"""Images as files for people to look at."""

from io import BytesIO
from pathlib import Path

from PIL import Image

from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.media import load_image
from lightrft_ray.data.video import load_video

_MOST_FRAMES = 8  # of a video: enough to tell what happens


def picture_png(content: bytes, longest_side: int) -> bytes:
    """A PNG of an encoded image, no side longer than `longest_side` pixels.

    Raises MediaError as `load_image` does.
    """
    return _png(load_image(content, Path()), longest_side)


def video_pngs(content: bytes, settings: MediaConfig, longest_side: int) -> list[bytes]:
    """PNGs of some of a video's frames, first and last among them. Raises as `load_video` does."""
    most = min(settings.video_max_frames, _MOST_FRAMES)
    few = settings.model_copy(update={"video_max_frames": most})
    video = load_video(content, Path(), few)
    return [_png(Image.fromarray(frame), longest_side) for frame in video.frames]


def _png(image: Image.Image, longest_side: int) -> bytes:
    image.thumbnail((longest_side, longest_side))
    file = BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()
