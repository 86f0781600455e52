"""Settings of images and videos: their limits, how they are sampled, and who decodes them."""

from typing import Annotated, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import Section

MAX_DECODED_PIXELS = 64_000_000
"""The default limit; decoded they take 192 MB."""
_PILLOW_LIMIT = 89_478_485  # beyond it Pillow warns, and further on refuses by a limit of its own


class MediaConfig(Section):
    """Images and videos of prompts."""

    max_decoded_pixels: Annotated[int, Field(gt=0, le=_PILLOW_LIMIT)] = MAX_DECODED_PIXELS
    """Pixels of an image, or of a video's sampled frames together, past which it is refused before
    it is decoded."""
    image_min_pixels: PositiveInt | None = None
    """Pixels that smaller images are scaled up to (null: as the model's processor has it)."""
    image_max_pixels: PositiveInt | None = None
    """Pixels that larger images are scaled down to (null: as the model's processor has it)."""
    video_min_pixels: PositiveInt | None = None
    """The same for a video, counted as the model's processor does: of a frame, or of all."""
    video_max_pixels: PositiveInt | None = None
    """Pixels that larger videos are scaled down to, counted alike."""
    video_fps: PositiveFloat = 2.0
    """Frames to sample of a second of video."""
    video_max_frames: Annotated[int, Field(ge=2)] = 16
    """Most frames of a video; longer ones are sampled more sparsely."""
    decode_workers: NonNegativeInt = 0
    """Processes of a generator that decode media, so that a crash or a hang costs one prompt (0:
    threads of the generator itself)."""
    decode_timeout: PositiveFloat = 60.0
    """Seconds after which a process that decodes a prompt's media is killed and the prompt
    skipped."""
    ahead_mb: NonNegativeInt = 256
    """Processed media of the next step's prompts that a generator makes ready while it samples, in
    MB (0: none)."""
    media_cache_mb: NonNegativeInt = 256
    """Processed media that a generator keeps for prompts that come again, in MB."""

    @model_validator(mode="after")
    def _limits_leave_room(self) -> Self:
        for medium in ("image", "video"):
            low, high = getattr(self, f"{medium}_min_pixels"), getattr(self, f"{medium}_max_pixels")
            if low is not None and high is not None and low > high:
                raise ValueError(
                    f"media.{medium}_min_pixels {low} is above media.{medium}_max_pixels {high}: "
                    "set it lower, or one of them to null"
                )
        return self
