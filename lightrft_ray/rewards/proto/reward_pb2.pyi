from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Placeholder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLACEHOLDER_UNSPECIFIED: _ClassVar[Placeholder]
    IMAGE: _ClassVar[Placeholder]
    VIDEO: _ClassVar[Placeholder]
PLACEHOLDER_UNSPECIFIED: Placeholder
IMAGE: Placeholder
VIDEO: Placeholder

class Version(_message.Message):
    __slots__ = ("major", "minor")
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    major: int
    minor: int
    def __init__(self, major: _Optional[int] = ..., minor: _Optional[int] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: Version
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("version", "reward", "max_message_bytes", "max_batch_samples")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    version: Version
    reward: str
    max_message_bytes: int
    max_batch_samples: int
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ..., reward: _Optional[str] = ..., max_message_bytes: _Optional[int] = ..., max_batch_samples: _Optional[int] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("version", "samples")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    version: Version
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("sample_id", "prompt", "messages", "response", "response_token_ids", "reference", "label", "images", "videos")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    VIDEOS_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    prompt: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    response: str
    response_token_ids: _containers.RepeatedScalarFieldContainer[int]
    reference: str
    label: str
    images: _containers.RepeatedCompositeFieldContainer[Media]
    videos: _containers.RepeatedCompositeFieldContainer[Media]
    def __init__(self, sample_id: _Optional[str] = ..., prompt: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., response: _Optional[str] = ..., response_token_ids: _Optional[_Iterable[int]] = ..., reference: _Optional[str] = ..., label: _Optional[str] = ..., images: _Optional[_Iterable[_Union[Media, _Mapping]]] = ..., videos: _Optional[_Iterable[_Union[Media, _Mapping]]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("role", "text", "parts", "extra_json")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_JSON_FIELD_NUMBER: _ClassVar[int]
    role: str
    text: str
    parts: Parts
    extra_json: str
    def __init__(self, role: _Optional[str] = ..., text: _Optional[str] = ..., parts: _Optional[_Union[Parts, _Mapping]] = ..., extra_json: _Optional[str] = ...) -> None: ...

class Parts(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("text", "placeholder", "json")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PLACEHOLDER_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    text: str
    placeholder: Placeholder
    json: str
    def __init__(self, text: _Optional[str] = ..., placeholder: _Optional[_Union[Placeholder, str]] = ..., json: _Optional[str] = ...) -> None: ...

class Media(_message.Message):
    __slots__ = ("media_type", "data", "sha256")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    data: bytes
    sha256: bytes
    def __init__(self, media_type: _Optional[str] = ..., data: _Optional[bytes] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("version", "scores")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    version: Version
    scores: _containers.RepeatedCompositeFieldContainer[SampleScore]
    def __init__(self, version: _Optional[_Union[Version, _Mapping]] = ..., scores: _Optional[_Iterable[_Union[SampleScore, _Mapping]]] = ...) -> None: ...

class SampleScore(_message.Message):
    __slots__ = ("sample_id", "reward", "error")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    reward: Reward
    error: SampleError
    def __init__(self, sample_id: _Optional[str] = ..., reward: _Optional[_Union[Reward, _Mapping]] = ..., error: _Optional[_Union[SampleError, _Mapping]] = ...) -> None: ...

class Reward(_message.Message):
    __slots__ = ("score", "components", "token_scores", "step_scores")
    class ComponentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SCORE_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_SCORES_FIELD_NUMBER: _ClassVar[int]
    STEP_SCORES_FIELD_NUMBER: _ClassVar[int]
    score: float
    components: _containers.ScalarMap[str, float]
    token_scores: Scores
    step_scores: Scores
    def __init__(self, score: _Optional[float] = ..., components: _Optional[_Mapping[str, float]] = ..., token_scores: _Optional[_Union[Scores, _Mapping]] = ..., step_scores: _Optional[_Union[Scores, _Mapping]] = ...) -> None: ...

class Scores(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class SampleError(_message.Message):
    __slots__ = ("code", "message", "missing_sha256")
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CODE_UNSPECIFIED: _ClassVar[SampleError.Code]
        INVALID_SAMPLE: _ClassVar[SampleError.Code]
        MEDIA_NOT_FOUND: _ClassVar[SampleError.Code]
        REWARD_FAILED: _ClassVar[SampleError.Code]
    CODE_UNSPECIFIED: SampleError.Code
    INVALID_SAMPLE: SampleError.Code
    MEDIA_NOT_FOUND: SampleError.Code
    REWARD_FAILED: SampleError.Code
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MISSING_SHA256_FIELD_NUMBER: _ClassVar[int]
    code: SampleError.Code
    message: str
    missing_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, code: _Optional[_Union[SampleError.Code, str]] = ..., message: _Optional[str] = ..., missing_sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...
