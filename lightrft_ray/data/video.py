"""Videos as sampled frames: files by PyAV, animated images by Pillow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from PIL import Image, ImageSequence, UnidentifiedImageError

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.media import DECODING_ERRORS, FORMATS, to_rgb
from lightrft_ray.data.media_source import MediaReference, read_medium, unusable

if TYPE_CHECKING:
    from av.container import InputContainer

_COMPLETE = 0.9  # of the frames that duration and rate let expect; rates are averages
_DEFAULT_FRAME_MS = 100  # what viewers take where an animation names no duration


@dataclass(frozen=True)
class Video:
    """Sampled frames (T, H, W, 3) uint8 and where in the video they are from."""

    frames: np.ndarray
    indices: tuple[int, ...]
    frame_count: int
    """Frames of the whole video."""
    fps: float
    """Frames a second of the whole video."""

    def metadata(self) -> dict[str, object]:
        """The same as processors take it."""
        return {
            "fps": self.fps,
            "duration": self.frame_count / self.fps,
            "total_num_frames": self.frame_count,
            "frames_indices": list(self.indices),
            "video_backend": "pyav",
        }


class _Opened(Protocol):
    """A video of which nothing is decoded yet."""

    size: tuple[int, int]
    frame_count: int

    @property
    def fps(self) -> float:
        """Frames a second; 0 where it is unknown."""

    def frames(self) -> Iterator[Image.Image]:
        """All frames in order, each decoded when it is asked for."""


def load_video(reference: MediaReference, root: Path, settings: MediaConfig) -> Video:
    """Sampled RGB frames of a video file, or of an animated GIF, WebP or PNG.

    Raises MediaError as `read_medium` does, and if the video is truncated, unreadable, has no
    frames, or its sampled frames have more than `max_decoded_pixels` pixels together; UserError if
    it takes PyAV and that is missing.
    """
    if isinstance(reference, Image.Image):
        raise unusable("video", reference, "is an image")
    return decode_video(read_medium(reference, root, "video"), reference, settings)


def decode_video(content: bytes, reference: MediaReference, settings: MediaConfig) -> Video:
    """As `load_video`, of a file's bytes; `reference` names it in errors."""
    if not content:
        raise unusable("video", reference, "is empty")
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            return _sample(_Animation(image), reference, settings)
    except UnidentifiedImageError:
        return _load_file(content, reference, settings)
    except DECODING_ERRORS as error:
        raise unusable("video", reference, f"cannot be decoded ({error})") from error


def sample_indices(frame_count: int, fps: float, settings: MediaConfig) -> tuple[int, ...]:
    """Evenly spread frames, the first and the last among them: `video_fps` of each second.

    At least two, as far as there are, and at most `video_max_frames`.
    """
    wanted = round(frame_count / fps * settings.video_fps)
    count = min(max(wanted, 2), settings.video_max_frames, frame_count)
    return tuple(np.linspace(0, frame_count - 1, count).round().astype(int).tolist())


def _sample(opened: _Opened, reference: MediaReference, settings: MediaConfig) -> Video:
    _check_pixels(opened, 1, reference, settings)  # the speed may take decoding a frame
    fps = opened.fps
    if opened.frame_count < 1 or fps <= 0:
        raise unusable("video", reference, "has no frames")
    indices = sample_indices(opened.frame_count, fps, settings)
    _check_pixels(opened, len(indices), reference, settings)
    frames = _chosen(opened.frames(), indices)
    if len(frames) < len(indices):
        raise unusable(
            "video", reference, f"ends before frame {indices[-1] + 1} of {opened.frame_count}"
        )
    return Video(np.stack(frames), indices, opened.frame_count, fps)


def _check_pixels(
    opened: _Opened, frames: int, reference: MediaReference, settings: MediaConfig
) -> None:
    width, height = opened.size
    if width * height * frames > settings.max_decoded_pixels:
        raise unusable(
            "video",
            reference,
            f"has {frames} sampled frame(s) of {width}x{height} pixels, over the limit of "
            f"{settings.max_decoded_pixels} together (media.max_decoded_pixels)",
        )


def _chosen(frames: Iterator[Image.Image], indices: Sequence[int]) -> list[np.ndarray]:
    """The frames at ascending indices, as far as there are; what comes after is not decoded."""
    chosen: list[np.ndarray] = []
    for index, frame in enumerate(frames):
        if index == indices[len(chosen)]:
            chosen.append(np.asarray(to_rgb(frame)))
        if len(chosen) == len(indices):
            break
    return chosen


class _Animation:
    """An animated image."""

    def __init__(self, image: Image.Image) -> None:
        self._image = image
        self.size = image.size
        self.frame_count = int(getattr(image, "n_frames", 1))

    @property
    def fps(self) -> float:
        """By the duration of the first frame, which a WebP tells once that is decoded."""
        self._image.load()
        return 1000 / float(self._image.info.get("duration") or _DEFAULT_FRAME_MS)

    def frames(self) -> Iterator[Image.Image]:
        """Frames as they are shown, one laid over another where the format does so."""
        yield from ImageSequence.Iterator(self._image)


def _load_file(content: bytes, reference: MediaReference, settings: MediaConfig) -> Video:
    try:
        import av
    except ImportError as error:
        raise UserError(
            "videos take PyAV, which is not installed: pip install 'lightrft-ray[video]'"
        ) from error
    try:
        with av.open(BytesIO(content), mode="r") as container:
            streams = container.streams.video
            if not streams or streams[0].codec_context is None:
                raise unusable("video", reference, "has no pictures that can be decoded")
            return _sample(_File(container, content), reference, settings)
    except (av.FFmpegError, *DECODING_ERRORS) as error:
        raise unusable("video", reference, f"cannot be decoded ({error})") from error


class _File:
    """The first stream of pictures in a container."""

    def __init__(self, container: "InputContainer", content: bytes) -> None:
        self._container = container
        stream = container.streams.video[0]
        self.size = (stream.width, stream.height)
        self.fps = float(stream.average_rate or stream.guessed_rate or Fraction(0))
        self.frame_count = stream.frames or self._count_frames(content)

    def frames(self) -> Iterator[Image.Image]:
        """Upright frames in the order in which they are shown."""
        for frame in self._container.decode(video=0):
            turned = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90))
            yield Image.fromarray(np.ascontiguousarray(turned))

    def _count_frames(self, content: bytes) -> int:
        """By their packets, or by the duration of a container that ends long before it."""
        import av

        with av.open(BytesIO(content), mode="r") as container:
            found = sum(packet.size > 0 for packet in container.demux(video=0))
        expected = round((self._container.duration or 0) / av.time_base * self.fps)
        return expected if found < _COMPLETE * expected else found
