"""Samples and scores as messages of the protocol, and back.

What comes from outside is checked here: a message that is no valid sample or score is a
ValueError that says why, never a guess.
"""

import json
from collections.abc import Callable, Mapping, Sequence

from lightrft_ray.rewards.proto import reward_pb2 as pb
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore, failed

PACKAGE = "lightrft.reward.v1"
VERSION = pb.Version(major=1, minor=0)

_PLACEHOLDERS = {"image": pb.Placeholder.IMAGE, "video": pb.Placeholder.VIDEO}
_KINDS = {number: kind for kind, number in _PLACEHOLDERS.items()}


def check_version(version: pb.Version, whose: str) -> None:
    """ValueError for a message of another major version of the protocol."""
    if version.major != VERSION.major:
        raise ValueError(
            f"{whose} version {version.major}.{version.minor} of the reward protocol, this is "
            f"{VERSION.major}.{VERSION.minor}: both need the same major version"
        )


def encode_samples(
    samples: Sequence[RewardSample], encode_medium: Callable[[EncodedMedia], pb.Media]
) -> list[pb.Sample]:
    """Samples as messages; `encode_medium` chooses between bytes and hash."""
    chats: dict[int, list[pb.Message]] = {}  # those of a prompt are most often one object
    for sample in samples:
        if id(sample.messages) not in chats:
            chats[id(sample.messages)] = [_encode_message(each) for each in sample.messages]
    return [_encode_sample(each, chats[id(each.messages)], encode_medium) for each in samples]


def _encode_sample(
    sample: RewardSample,
    messages: Sequence[pb.Message],
    encode_medium: Callable[[EncodedMedia], pb.Media],
) -> pb.Sample:
    return pb.Sample(
        sample_id=sample.sample_id,
        prompt=sample.prompt,
        messages=messages,
        response=sample.response,
        response_token_ids=sample.response_token_ids,
        reference=sample.reference,
        label=sample.label,
        images=[encode_medium(image) for image in sample.images],
        videos=[encode_medium(video) for video in sample.videos],
    )


class ChatDecoder:
    """Decodes chats; one that follows its equal, as a prompt's samples have it, is not again."""

    def __init__(self) -> None:
        self._last: Sequence[pb.Message] | None = None
        self._decoded: list[dict[str, object]] = []

    def decode(self, messages: Sequence[pb.Message]) -> list[dict[str, object]]:
        """The chat of messages. ValueError says what is wrong with it."""
        if self._last is None or self._last != messages:
            self._decoded = [_decode_message(each) for each in messages]
            self._last = messages
        return self._decoded


def decode_sample(
    message: pb.Sample,
    chats: ChatDecoder,
    images: Sequence[EncodedMedia],
    videos: Sequence[EncodedMedia],
) -> RewardSample:
    """A sample of a message and its media. ValueError says what is wrong with it."""
    return RewardSample(
        sample_id=message.sample_id,
        prompt=message.prompt,
        messages=chats.decode(message.messages),
        response=message.response,
        response_token_ids=list(message.response_token_ids),
        reference=message.reference,
        label=message.label,
        images=tuple(images),
        videos=tuple(videos),
    )


def encode_score(score: SampleScore) -> pb.SampleScore:
    """A score, or why the reward failed, as a message."""
    if score.score is None:
        code = pb.SampleError.REWARD_FAILED
        error = pb.SampleError(code=code, message=score.error or "")
        return pb.SampleScore(sample_id=score.sample_id, error=error)
    return pb.SampleScore(
        sample_id=score.sample_id,
        reward=pb.Reward(
            score=score.score,
            components=score.components,
            token_scores=_encode_scores(score.token_scores),
            step_scores=_encode_scores(score.step_scores),
        ),
    )


def decode_score(message: pb.SampleScore) -> SampleScore:
    """The score of a message; numbers that are none, or no result, are a failure of the sample."""
    result = message.WhichOneof("result")
    if result == "error":
        code = pb.SampleError.Code.Name(message.error.code)
        return failed(message.sample_id, f"{code}: {message.error.message}")
    if result is None:
        return failed(message.sample_id, "the answer has neither a reward nor an error")
    reward = message.reward
    tokens = list(reward.token_scores.values) if reward.HasField("token_scores") else None
    steps = list(reward.step_scores.values) if reward.HasField("step_scores") else None
    name = message.sample_id
    try:
        return SampleScore(name, reward.score, dict(reward.components), tokens, steps)
    except ValueError as error:  # a number that is none
        return failed(name, str(error))


def _encode_message(message: Mapping[str, object]) -> pb.Message:
    extra = {key: value for key, value in message.items() if key not in ("role", "content")}
    encoded = pb.Message(
        role=str(message["role"]), extra_json=json.dumps(extra, sort_keys=True) if extra else ""
    )
    content = message.get("content")
    if isinstance(content, str):
        encoded.text = content
    elif isinstance(content, Sequence):
        encoded.parts.SetInParent()
        encoded.parts.parts.extend(map(_encode_part, content))
    return encoded


def _encode_part(part: Mapping[str, object]) -> pb.Part:
    kind, text = part.get("type"), part.get("text")
    if kind == "text" and isinstance(text, str) and len(part) == 2:
        return pb.Part(text=text)
    if kind in _PLACEHOLDERS and len(part) == 1:
        return pb.Part(placeholder=_PLACEHOLDERS[str(kind)])
    return pb.Part(json=json.dumps(part))


def _decode_message(message: pb.Message) -> dict[str, object]:
    kind = message.WhichOneof("content")
    decoded: dict[str, object] = {"role": message.role}
    if kind == "text":
        decoded["content"] = message.text
    elif kind == "parts":
        decoded["content"] = [_decode_part(part) for part in message.parts.parts]
    if message.extra_json:
        decoded |= _decode_object(message.extra_json)
    return decoded


def _decode_part(part: pb.Part) -> dict[str, object]:
    content = part.WhichOneof("content")
    if content == "text":
        return {"type": "text", "text": part.text}
    if content == "placeholder" and part.placeholder in _KINDS:
        return {"type": _KINDS[part.placeholder]}
    return _decode_object(part.json)


def _decode_object(text: str) -> dict[str, object]:
    value = json.loads(text)  # its error is a ValueError
    if not isinstance(value, dict):
        raise ValueError("a part of a message is no JSON object")
    return value


def _encode_scores(values: Sequence[float] | None) -> pb.Scores | None:
    return None if values is None else pb.Scores(values=values)
