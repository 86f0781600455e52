"""The JSON that reward servers of LightRFT and OpenRLHF speak.

A request has lists with one entry a sample: the whole text (`query` or `queries`), `prompts`,
`responses`, `references`, `labels` and, where a sample has images, `images`, a list of base64 PNG
for each sample. The answer has one number a sample in `rewards` or `scores`.
"""

import json
import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from lightrft_ray.config.errors import DataFault
from lightrft_ray.data.media_source import MediaError
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault
from lightrft_ray.rewards.remote.png_images import as_png
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed

_SHOWN = 100  # characters of a wrong value


@dataclass(frozen=True)
class JsonRequest:
    """The body for the samples that can be sent, and failures of those that cannot."""

    body: bytes
    samples: list[RewardSample]
    failures: list[SampleScore]


def encode_request(samples: Sequence[RewardSample], query_key: str) -> JsonRequest:
    """A request; an image that repeats is converted once."""
    encoded: dict[str, str] = {}
    sent: list[RewardSample] = []
    images: list[list[str]] = []
    failures: list[SampleScore] = []
    for sample in samples:
        try:
            images.append(_encode_images(sample, encoded))
            sent.append(sample)
        except DataFault as error:
            failures.append(failed(sample.sample_id, str(error)))
    fields: dict[str, object] = {
        query_key: [each.prompt + each.response for each in sent],
        "prompts": [each.prompt for each in sent],
        "responses": [each.response for each in sent],
        "references": [each.reference for each in sent],
        "labels": [each.label for each in sent],
    }
    if any(images):
        fields["images"] = images
    return JsonRequest(json.dumps(fields).encode(), sent, failures)


def decode_answer(content: bytes, samples: Sequence[RewardSample]) -> list[SampleScore]:
    """Scores in the order of the samples. RemoteFault for an answer that has not one for each."""
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise _invalid(
            f"its answer is no JSON: {_shown(content.decode(errors='replace'))}"
        ) from error
    values = None
    if isinstance(answer, dict):
        values = answer.get("rewards", answer.get("scores"))
    if not isinstance(values, list):
        raise _invalid(f"its answer has no list of rewards or scores: {_shown(answer)}")
    if len(values) != len(samples):
        raise _invalid(f"it answered with {len(values)} rewards for {len(samples)} samples")
    return [_score(each.sample_id, value) for each, value in zip(samples, values, strict=True)]


def _encode_images(sample: RewardSample, encoded: dict[str, str]) -> list[str]:
    if sample.videos:
        raise MediaError("the JSON protocol carries no videos: use gRPC")
    for image in sample.images:
        if image.content_id not in encoded:
            encoded[image.content_id] = b64encode(as_png(image)).decode()
    return [encoded[image.content_id] for image in sample.images]


def _score(sample_id: str, value: object) -> SampleScore:
    number = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    if not math.isfinite(number):
        return failed(sample_id, f"the reward is {_shown(value)}, no finite number")
    return SampleScore(sample_id, number)


def _invalid(message: str) -> RemoteFault:
    return RemoteFault(FaultKind.INVALID, message)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
