"""The JSON of LightRFT's and OpenRLHF's servers: what they are sent, and images of every mode."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from PIL import Image
from reward_samples import sample
from serving import client, http_server

from lightrft_ray.rewards.remote.json_protocol import decode_answer, encode_request
from lightrft_ray.rewards.remote.png_images import as_png
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore


def _encode(picture: Image.Image, kind: str = "PNG", **options: Any) -> EncodedMedia:
    target = BytesIO()
    picture.save(target, format=kind, **options)
    return EncodedMedia(target.getvalue(), f"image/{kind.lower()}")


def _pixels(content: bytes) -> list[tuple[int, ...]]:
    """The pixels of what must be a plain 8-bit RGB PNG, for any reader the same."""
    with Image.open(BytesIO(content)) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")
        assert not picture.has_transparency_data
        return [tuple(pixel) for row in np.asarray(picture).tolist() for pixel in row]


def _palette() -> EncodedMedia:
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.putpixel((1, 0), 1)
    return _encode(picture)


def _palette_with_transparency() -> EncodedMedia:
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.putpixel((1, 0), 1)
    return _encode(picture, transparency=0)


def _grey_alpha() -> EncodedMedia:
    picture = Image.new("LA", (2, 1), (0, 255))
    picture.putpixel((1, 0), (0, 0))
    return _encode(picture)


def _colour_alpha() -> EncodedMedia:
    picture = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    picture.putpixel((1, 0), (255, 0, 0, 51))  # a fifth of red over white
    return _encode(picture)


def _sixteen_bit() -> EncodedMedia:
    return _encode(Image.fromarray(np.array([[0, 32768, 65535]], dtype=np.uint16)))


def _turned() -> EncodedMedia:
    picture = Image.new("RGB", (2, 1), (1, 2, 3))
    picture.putpixel((1, 0), (4, 5, 6))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    return _encode(picture, exif=exif)


def _one_bit() -> EncodedMedia:
    picture = Image.new("1", (2, 1), 0)
    picture.putpixel((1, 0), 1)
    return _encode(picture)


def _four_inks() -> EncodedMedia:
    return _encode(Image.new("CMYK", (1, 1), (0, 0, 0, 255)), "TIFF")


_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)


@pytest.mark.parametrize(
    ("make", "pixels"),
    [
        (_palette, [(10, 20, 30), (200, 100, 50)]),
        (_palette_with_transparency, [_WHITE, (200, 100, 50)]),
        (_grey_alpha, [_BLACK, _WHITE]),
        (_colour_alpha, [(255, 0, 0), (255, 204, 204)]),
        (_sixteen_bit, [_BLACK, (128, 128, 128), _WHITE]),
        (_turned, [(4, 5, 6), (1, 2, 3)]),
        (_one_bit, [_BLACK, _WHITE]),
        (_four_inks, [_BLACK]),
    ],
)
def test_an_image_of_any_mode_becomes_the_same_pixels_in_rgb(
    make: Callable[[], EncodedMedia], pixels: list[tuple[int, ...]]
) -> None:
    assert _pixels(as_png(make())) == pixels


def test_a_plain_rgb_png_goes_as_it_is() -> None:
    plain = _encode(Image.new("RGB", (3, 2), (1, 2, 3)))
    assert as_png(plain) is plain.data


def _rgb(level: int) -> EncodedMedia:
    return _encode(Image.new("RGB", (2, 2), (level, 0, 0)))


def _fields(samples: Sequence[RewardSample], query_key: str = "query") -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(encode_request(samples, query_key).body)
    return fields


@pytest.mark.parametrize("query_key", ["query", "queries"])
def test_the_fields_of_a_request(query_key: str) -> None:
    one = replace(sample("a", response="three"), reference="3", label="count")
    assert _fields([one, replace(one, label="read")], query_key) == {
        query_key: ["How many?three", "How many?three"],
        "prompts": ["How many?", "How many?"],
        "responses": ["three", "three"],
        "references": ["3", "3"],
        "labels": ["count", "read"],
    }


def test_each_image_of_a_sample_goes_by_itself() -> None:
    first, second, third = map(_rgb, (1, 2, 3))
    fields = _fields(
        [sample("a", images=[first, second]), sample("b"), sample("c", images=[third])]
    )
    sent = [[_pixels(b64decode(each))[0][0] for each in images] for images in fields["images"]]
    assert sent == [[1, 2], [], [3]]


def test_a_sample_whose_media_cannot_be_sent_fails_alone() -> None:
    async def handle(request: web.Request) -> web.Response:
        responses = (await request.json())["responses"]
        return web.json_response({"scores": [float(each) for each in responses]})

    film = replace(sample("film"), videos=(EncodedMedia(b"x", "video/mp4"),))
    broken = sample("broken", images=[EncodedMedia(b"\x89PNG\r\n\x1a\nrubbish", "image/png")])
    asked = [sample("a", "1"), film, sample("b", "2"), broken]

    async def story() -> list[SampleScore]:
        async with http_server(handle) as address, client(address) as remote:
            return await remote.score(asked)

    scores = asyncio.run(story())
    assert [score.sample_id for score in scores] == ["a", "film", "b", "broken"]
    assert [score.score for score in scores] == [1.0, None, 2.0, None]
    assert "carries no videos" in str(scores[1].error)
    assert "damaged" in str(scores[3].error) or "decoded" in str(scores[3].error)


@pytest.mark.parametrize("key", ["rewards", "scores"])
def test_both_names_of_the_answer(key: str) -> None:
    answer = json.dumps({key: [1, -0.5, None, True, [1.0]], "extra_logs": {}}).encode()
    samples = [sample(name) for name in "abcde"]
    scores = decode_answer(answer, samples)
    assert [score.score for score in scores] == [1.0, -0.5, None, None, None]
    assert scores[2].error == "the reward is None, no finite number"


def test_rewards_come_before_scores() -> None:
    (score,) = decode_answer(b'{"scores": [0], "rewards": [1]}', [sample("a")])
    assert score.score == 1
