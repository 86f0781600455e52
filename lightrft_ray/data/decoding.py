"""The decoded media of a prompt, and processes that decode them.

A decoder is a C library that reads bytes from anywhere. In a process of its own, one that crashes,
hangs or asks for too much memory costs its prompt, and not the engine.
"""

import hashlib
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from PIL import Image

from lightrft_ray.config.errors import DataFault, UserError
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.child_process import ChildProcess, ChildProcessFault
from lightrft_ray.data.media import decode_image
from lightrft_ray.data.media_source import MediaError, read_medium
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.video import Video, decode_video

_THREADS = 2  # without processes: one decodes while the other's media are processed
_DIGEST_SIZE = 16  # bytes


@dataclass(frozen=True)
class EncodedMedia:
    """The bytes of a prompt's images and videos as they lie in files, in their order."""

    images: tuple[bytes, ...] = ()
    videos: tuple[bytes, ...] = ()

    def digests(self) -> dict[str, list[str]]:
        """A hash of each medium, by kind; a file has another as a video than as an image."""
        by_kind = {"image": self.images, "video": self.videos}
        return {
            kind: [_digest(each, kind) for each in some] for kind, some in by_kind.items() if some
        }


@dataclass(frozen=True)
class DecodedMedia:
    """A prompt's images, RGB, and its videos' sampled frames, in their order."""

    images: tuple[Image.Image, ...] = ()
    videos: tuple[Video, ...] = ()


def read_media(prompt: Prompt) -> EncodedMedia:
    """A prompt's media, wherever they lie. Raises MediaError for one that cannot be read."""
    root = prompt.image_root
    return EncodedMedia(
        tuple(read_medium(each, root) for each in prompt.images),
        tuple(read_medium(each, root, "video") for each in prompt.videos),
    )


def decode_media(prompt: Prompt, encoded: EncodedMedia, settings: MediaConfig) -> DecodedMedia:
    """Decode what was read of a prompt. Raises MediaError for the first that cannot be used."""
    images = zip(encoded.images, prompt.images, strict=True)
    videos = zip(encoded.videos, prompt.videos, strict=True)
    return DecodedMedia(
        tuple(decode_image(content, name, settings.max_decoded_pixels) for content, name in images),
        tuple(decode_video(content, name, settings) for content, name in videos),
    )


def load_media(prompt: Prompt, settings: MediaConfig) -> DecodedMedia:
    """Read and decode a prompt's media. Raises MediaError for what cannot be used."""
    return decode_media(prompt, read_media(prompt), settings)


def _digest(content: bytes, kind: str) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_SIZE, person=kind.encode()).hexdigest()


class MediaDecoder:
    """Decodes in `decode_workers` processes, or without any in the thread that asks.

    Results do not depend on how many there are.
    """

    def __init__(self, settings: MediaConfig) -> None:
        self._settings = settings
        self._idle: queue.SimpleQueue[ChildProcess] = queue.SimpleQueue()
        workers = settings.decode_workers
        self._children = [ChildProcess("lightrft_ray.data.decode_host") for _ in range(workers)]
        for child in self._children:
            self._idle.put(child)
        self.width = workers or _THREADS
        """Prompts that are decoded at once."""
        self.threads = ThreadPoolExecutor(self.width, "decode-media")
        """Where to decode: a thread for each process, which waits for it."""

    def decode(self, prompt: Prompt, encoded: EncodedMedia) -> DecodedMedia:
        """What was read of a prompt; to be called in `threads`.

        Raises MediaError for what cannot be used, a decoder that crashed or hung included.
        """
        if not self._children:
            return decode_media(prompt, encoded, self._settings)
        child = self._idle.get_nowait()  # there is one for each thread
        timeout = self._settings.decode_timeout
        try:
            if not child.is_running:
                child.start()
            answer = child.exchange((prompt, encoded, self._settings), timeout)
        except ChildProcessFault as fault:
            raise MediaError(
                f"prompt {prompt.id}: the process that decoded its media {fault}"
            ) from None
        finally:
            self._idle.put(child)
        if isinstance(answer, DecodedMedia):
            return answer
        if isinstance(answer, DataFault | UserError):
            raise answer
        raise TypeError(f"a decoding process sent a {type(answer).__name__}, no media")

    def close(self) -> None:
        """End the processes, at once."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.kill()
