"""Decoding apart: the same pixels with any number of processes, and no fault of them lasts."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.decoding import DecodedMedia, MediaDecoder, load_media, read_media
from lightrft_ray.data.media_source import MediaError
from lightrft_ray.data.prompts import Prompt

COUNT = 6


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> list[Prompt]:
    """Prompts with one image more each, the last of them broken."""
    folder = tmp_path_factory.mktemp("decoding")
    for number in range(COUNT):
        pixels = np.random.RandomState(number).randint(0, 256, (30, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    images = [tuple(f"{each}.png" for each in range(number + 1)) for number in range(COUNT)]
    images.append(("0.png", "broken.png"))
    return [Prompt(f"p{at}", (), each, folder, "", "") for at, each in enumerate(images)]


def _decode(decoder: MediaDecoder, prompt: Prompt) -> DecodedMedia | MediaError:
    try:
        return decoder.decode(prompt, read_media(prompt))
    except MediaError as fault:
        return fault


def _decode_all(decoder: MediaDecoder, prompts: list[Prompt]) -> list[DecodedMedia | MediaError]:
    return list(decoder.threads.map(partial(_decode, decoder), prompts))


@pytest.mark.parametrize("workers", [0, 2])
def test_results_are_those_of_decoding_in_order(prompts: list[Prompt], workers: int) -> None:
    decoder = MediaDecoder(MediaConfig(decode_workers=workers))
    *decoded, broken = _decode_all(decoder, prompts)
    decoder.close()
    assert isinstance(broken, MediaError) and "image broken.png: " in str(broken)
    for prompt, media in zip(prompts[:-1], decoded, strict=True):
        expected = load_media(prompt, MediaConfig())
        assert len(media.images) == len(prompt.images)
        for one, other in zip(media.images, expected.images, strict=True):
            assert np.array_equal(np.asarray(one), np.asarray(other))


@pytest.fixture(scope="module")
def decoder() -> Iterator[MediaDecoder]:
    decoder = MediaDecoder(MediaConfig(decode_workers=1, decode_timeout=60.0))
    yield decoder
    decoder.close()


def _pid(decoder: MediaDecoder) -> int:
    (child,) = decoder._children
    return child._process.pid


def test_a_process_that_dies_costs_its_prompt_alone(
    decoder: MediaDecoder, prompts: list[Prompt]
) -> None:
    _decode_all(decoder, prompts[:1])
    os.kill(_pid(decoder), signal.SIGKILL)
    (fault,) = _decode_all(decoder, prompts[:1])
    assert isinstance(fault, MediaError)
    assert str(fault) == "prompt p0: the process that decoded its media died (exit status -9)"
    assert isinstance(_decode_all(decoder, prompts[:1])[0], DecodedMedia)


def test_a_process_that_hangs_is_killed_and_costs_its_prompt_alone(
    decoder: MediaDecoder, prompts: list[Prompt]
) -> None:
    _decode_all(decoder, prompts[:1])
    stopped = _pid(decoder)
    os.kill(stopped, signal.SIGSTOP)
    decoder._settings = MediaConfig(decode_workers=1, decode_timeout=0.3)
    (fault,) = _decode_all(decoder, prompts[:1])
    decoder._settings = MediaConfig(decode_workers=1)
    assert isinstance(fault, MediaError)
    assert "did not answer within 0.3 s and was killed" in str(fault)
    assert isinstance(_decode_all(decoder, prompts[:1])[0], DecodedMedia)
    assert _pid(decoder) != stopped


def test_a_digest_is_that_of_a_mediums_content(prompts: list[Prompt]) -> None:
    one = replace(prompts[1], images=("0.png", "1.png"))
    (one.image_root / "copy.png").write_bytes((one.image_root / "0.png").read_bytes())

    def digests(*images: str) -> dict[str, list[str]]:
        return read_media(replace(one, images=images)).digests()

    (first, second) = digests("0.png", "1.png")["image"]
    assert first != second
    assert digests("1.png", "copy.png") == {"image": [second, first]}
    (as_video,) = read_media(replace(one, images=(), videos=("0.png",))).digests()["video"]
    assert as_video != first
    with pytest.raises(MediaError, match=r"none\.png: does not exist"):
        digests("none.png")
