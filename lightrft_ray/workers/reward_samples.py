"""What rewards see of prompts and responses: media are read here, never by the driver."""

from collections.abc import Sequence
from io import BytesIO

from PIL import Image

from lightrft_ray.config.errors import DataFault
from lightrft_ray.data.media import FORMATS
from lightrft_ray.data.media_source import read_medium
from lightrft_ray.data.prompt_text import user_text
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore, failed
from lightrft_ray.workers.messages import GroupResponses

_VIDEO_MARKS = (
    (4, b"ftypqt", "video/quicktime"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/x-matroska"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"\x89PNG", "image/png"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
)
"""How files of videos begin: at which byte with what; animations are such, too."""
_HEADER = 64  # bytes of a Matroska file in which WebM names itself


def reward_samples(
    groups: Sequence[GroupResponses], system_prompt: str | None, *, with_media: bool
) -> list[RewardSample | SampleScore]:
    """One entry for each response, in order: a sample, or a failure if its media cannot be read.

    `system_prompt` leads the messages of prompts without their own, as it did for the generator.
    """
    entries: list[RewardSample | SampleScore] = []
    for group in groups:
        prompt = group.prompt
        try:
            images = encoded_images(prompt) if with_media else ()
            videos = encoded_videos(prompt) if with_media else ()
        except DataFault as fault:
            entries += [failed(name, str(fault)) for name in group.sample_ids]
            continue
        question, messages = user_text(prompt), _messages(prompt, system_prompt)
        responses = zip(group.sample_ids, group.texts, group.token_ids, strict=True)
        entries += [
            RewardSample(
                sample_id=name,
                prompt=question,
                messages=messages,
                response=text,
                response_token_ids=token_ids.tolist(),
                reference=prompt.reference,
                label=prompt.label,
                images=images,
                videos=videos,
            )
            for name, text, token_ids in responses
        ]
    return entries


def encoded_images(prompt: Prompt) -> tuple[EncodedMedia, ...]:
    """The files of a prompt's images. Raises DataFault for the first that cannot be used."""
    return tuple(_encoded(read_medium(path, prompt.image_root), path) for path in prompt.images)


def encoded_videos(prompt: Prompt) -> tuple[EncodedMedia, ...]:
    """The files of a prompt's videos. Raises DataFault for the first that cannot be read.

    Their type is by the first bytes, whatever the file's name is; application/octet-stream for a
    container that these do not tell.
    """
    contents = (read_medium(path, prompt.image_root, "video") for path in prompt.videos)
    return tuple(EncodedMedia(content, _video_type(content)) for content in contents)


def _video_type(content: bytes) -> str:
    for place, mark, media_type in _VIDEO_MARKS:
        if content[place:].startswith(mark):
            is_webm = media_type == "video/x-matroska" and b"webm" in content[:_HEADER]
            return "video/webm" if is_webm else media_type
    return "application/octet-stream"


def _encoded(content: bytes, path: str) -> EncodedMedia:
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            return EncodedMedia(content, image.get_format_mimetype() or "image/png")
    except OSError as error:
        raise DataFault(f"image {path}: is not one of {', '.join(FORMATS)}, or damaged") from error


def _messages(prompt: Prompt, system_prompt: str | None) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = [dict(message) for message in prompt.messages]
    if system_prompt is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system_prompt})
    return messages
