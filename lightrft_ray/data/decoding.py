"""The decoded media of a prompt, and processes that decode them.

A decoder is a C library that reads bytes from anywhere. In a process of its own, one that crashes,
hangs or asks for too much memory costs its prompt, and not the engine.
"""

import asyncio
import hashlib
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from PIL import Image

from lightrft_ray.config.errors import DataFault, UserError
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.child_process import ChildProcess, ChildProcessFault
from lightrft_ray.data.media import load_image
from lightrft_ray.data.media_source import MediaError, read_medium
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.video import Video, load_video

_THREADS = 2  # of a generator without processes: the processor works on one prompt at a time
_DIGEST_SIZE = 16  # bytes


@dataclass(frozen=True)
class DecodedMedia:
    """A prompt's images, RGB, and its videos' sampled frames, in their order."""

    images: tuple[Image.Image, ...] = ()
    videos: tuple[Video, ...] = ()


def load_media(prompt: Prompt, settings: MediaConfig) -> DecodedMedia:
    """Decode a prompt's media. Raises MediaError for the first that cannot be used."""
    root, limit = prompt.image_root, settings.max_decoded_pixels
    return DecodedMedia(
        tuple(load_image(each, root, limit) for each in prompt.images),
        tuple(load_video(each, root, settings) for each in prompt.videos),
    )


def media_digest(prompt: Prompt) -> bytes:
    """A hash of the encoded bytes of a prompt's media, in their order, wherever they lie.

    Raises MediaError for one that cannot be read.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for medium, references in (("image", prompt.images), ("video", prompt.videos)):
        for reference in references:
            content = read_medium(reference, prompt.image_root, medium)
            digest.update(medium.encode() + hashlib.blake2b(content).digest())
    return digest.digest()


class MediaDecoder:
    """Decodes in `decode_workers` processes, or without any in threads of this one.

    Results do not depend on how many there are. At most two prompts for each of them are decoded
    ahead of whoever asked, if that one takes `slots`.
    """

    def __init__(self, settings: MediaConfig) -> None:
        self._settings = settings
        workers = settings.decode_workers
        self._threads = ThreadPoolExecutor(workers or _THREADS, "decode-media")
        self._idle: queue.SimpleQueue[ChildProcess] = queue.SimpleQueue()
        self._children = [ChildProcess("lightrft_ray.data.decode_host") for _ in range(workers)]
        for child in self._children:
            self._idle.put(child)
        self.slots = asyncio.Semaphore(2 * (workers or _THREADS))
        """Prompts whose decoded pixels may be in memory at once: take one, and hold it as long."""

    async def decode(self, prompt: Prompt) -> DecodedMedia:
        """A prompt's media.

        Raises MediaError for what cannot be used, a decoder that crashed or hung included.
        """
        loop = asyncio.get_running_loop()
        work = self._decode_apart if self._children else self._decode_here
        return await loop.run_in_executor(self._threads, work, prompt)

    def close(self) -> None:
        """End the processes, at once."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.kill()

    def _decode_here(self, prompt: Prompt) -> DecodedMedia:
        return load_media(prompt, self._settings)

    def _decode_apart(self, prompt: Prompt) -> DecodedMedia:
        child = self._idle.get_nowait()  # there is one for each thread
        try:
            if not child.is_running:
                child.start()
            answer = child.exchange((prompt, self._settings), self._settings.decode_timeout)
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
