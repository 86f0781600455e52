"""Videos become the frames that they show at even distances, whatever holds them."""

from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.media_source import MediaError
from lightrft_ray.data.video import load_video, sample_indices
from tests.unit.data.odd_media import encoded

FRAMES, FPS = 20, 10
SETTINGS = MediaConfig(video_fps=2, video_max_frames=16)


def _brightness(index: int) -> int:
    return 12 * index


def _frame(index: int) -> np.ndarray:
    """A grey level that tells the frame, and a white corner that tells what is up."""
    frame = np.full((48, 64, 3), _brightness(index), np.uint8)
    frame[:8, :8] = 255
    return frame


def _file(kind: str, codec: str, pixels: str = "yuv420p", frames: int = FRAMES) -> bytes:
    buffer = BytesIO()
    with av.open(buffer, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 64, 48, pixels
        for index in range(frames):
            packets = stream.encode(av.VideoFrame.from_ndarray(_frame(index), format="rgb24"))
            container.mux(packets)
        container.mux(stream.encode())
    return buffer.getvalue()


def _animation(kind: str, **options: object) -> bytes:
    frames = [Image.fromarray(_frame(index)) for index in range(FRAMES)]
    options |= {"save_all": True, "append_images": frames[1:], "duration": 1000 // FPS}
    return encoded(frames[0], kind, **options)


VIDEOS = {
    "mp4": _file("mp4", "libx264"),
    "mpeg4": _file("avi", "mpeg4"),
    "webm": _file("webm", "libvpx-vp9"),
    "lossless": _file("matroska", "ffv1", "bgr0"),
    "gif": _animation("GIF"),
    "webp": _animation("WEBP", lossless=True),
    "apng": _animation("PNG"),
}


@pytest.mark.parametrize("name", VIDEOS)
def test_frames_are_those_at_even_distances(tmp_path: Path, name: str) -> None:
    (tmp_path / "clip").write_bytes(VIDEOS[name])
    for reference in ("clip", VIDEOS[name]):
        video = load_video(reference, tmp_path, SETTINGS)
        assert video.indices == (0, 6, 13, 19)
        assert video.frames.shape == (4, 48, 64, 3) and video.frames.dtype == np.uint8
        expected = [_brightness(index) for index in video.indices]
        np.testing.assert_allclose(video.frames[:, 30, 30].mean(-1), expected, atol=4)
        assert (video.frames[:, 2, 2] > 200).all()
        assert (video.frame_count, video.fps) == (FRAMES, FPS)
        assert video.metadata()["duration"] == 2


@pytest.mark.parametrize(
    ("frames", "fps", "settings", "expected"),
    [
        (20, 10, {}, (0, 6, 13, 19)),
        (20, 10, {"video_fps": 1}, (0, 19)),
        (20, 10, {"video_fps": 0.1}, (0, 19)),
        (1, 10, {}, (0,)),
        (3000, 30, {"video_max_frames": 3}, (0, 1500, 2999)),
        (4, 2, {}, (0, 1, 2, 3)),
    ],
)
def test_how_many_frames_are_taken(
    frames: int, fps: float, settings: dict, expected: tuple[int, ...]
) -> None:
    assert sample_indices(frames, fps, MediaConfig(**settings)) == expected


def test_a_turned_video_is_upright(tmp_path: Path) -> None:
    """As phones store them: the corner that is up on the left comes from another place."""
    buffer = BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(4):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(_frame(index), format="rgb24")))
        container.mux(stream.encode())
    content = bytearray(buffer.getvalue())
    # The matrix of the track header: a quarter turn clockwise when shown.
    matrix = content.index(b"tkhd") + 4 + 40
    turn = (0, 0x10000, 0, -0x10000, 0, 0, 48 << 16, 0, 0x40000000)
    content[matrix : matrix + 36] = b"".join(each.to_bytes(4, "big", signed=True) for each in turn)
    video = load_video(bytes(content), tmp_path, SETTINGS)
    assert video.frames.shape[1:] == (64, 48, 3)
    assert (video.frames[:, 2, -3] > 200).all()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"no video", "cannot be decoded"),
        (VIDEOS["mp4"][: len(VIDEOS["mp4"]) // 2], "cannot be decoded"),
        (VIDEOS["mpeg4"][: len(VIDEOS["mpeg4"]) // 2], "cannot be decoded|ends before"),
        (VIDEOS["webm"][: len(VIDEOS["webm"]) * 3 // 4], "ends before frame 20 of 20"),
        (VIDEOS["lossless"][: len(VIDEOS["lossless"]) // 2], "ends before frame 20 of 20"),
        (VIDEOS["gif"][: len(VIDEOS["gif"]) // 2], "cannot be decoded|ends before"),
        (VIDEOS["webp"][: len(VIDEOS["webp"]) // 2], "cannot be decoded|ends before"),
        (VIDEOS["apng"][: len(VIDEOS["apng"]) // 2], "cannot be decoded|ends before"),
    ],
)
def test_a_bad_video_is_named_with_its_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(MediaError, match=f"^video of {len(content)} bytes: .*({reason})"):
        load_video(content, tmp_path, SETTINGS)


@pytest.mark.parametrize("name", ["mp4", "webp"])
def test_the_limit_of_pixels_is_that_of_all_sampled_frames(tmp_path: Path, name: str) -> None:
    limit = 4 * 48 * 64
    assert load_video(VIDEOS[name], tmp_path, MediaConfig(max_decoded_pixels=limit)) is not None
    with pytest.raises(MediaError, match=r"4 sampled frame\(s\) of 64x48 pixels, over the limit"):
        load_video(VIDEOS[name], tmp_path, MediaConfig(max_decoded_pixels=limit - 1))
