"""A static page of samples: text as it is, images inlined, nothing that runs or is fetched."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from io import BytesIO

from PIL import Image

from lightrft_ray.data.findings import Sample
from lightrft_ray.data.messages import ChatMessage, ContentPart
from lightrft_ray.data.video import Video

_LARGEST_SIDE = 512  # pixels of an image on the page
_FRAME_SIDE = 160
_FRAMES_SHOWN = 8
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; }} h2 {{ font-size: 1rem; overflow-wrap: anywhere; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; }}
section {{ border: 1px solid #8886; border-radius: 6px; padding: .2rem 1rem 1rem; margin: 1rem 0; }}
.turn {{ border-left: 3px solid #48a; padding-left: .7rem; margin: .6rem 0; }}
.system {{ border-color: #888; }} .assistant {{ border-color: #4a6; }}
.role, dt {{ color: #888; font-size: .85rem; }} dd {{ margin: 0 0 .4rem; overflow-wrap: anywhere; }}
img {{ max-width: 100%; min-width: 56px; border: 1px solid #8886; display: block; margin: .3rem 0; }}
.pre {{ font: 13px/1.4 ui-monospace, monospace; }}
</style></head><body>
"""  # noqa: E501 - a line of style each


def render_page(
    title: str,
    report: Sequence[str],
    samples: Sequence[Sample],
    decode: Callable[[Sequence[int]], str],
) -> str:
    """The page's HTML; `decode` gives the text of token ids, special tokens included."""
    parts = [
        _HEAD.format(title=escape(title)),
        f"<h1>{escape(title)}</h1>",
        _preformatted("\n".join(report)),
        *(_sample(sample, decode) for sample in samples),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _sample(sample: Sample, decode: Callable[[Sequence[int]], str]) -> str:
    prompt = sample.prompt
    media = _media(sample)
    turns = "".join(_turn(message, media) for message in prompt.messages)
    facts = [("reference", prompt.reference), ("label", prompt.label)]
    listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts if text)
    tokens = f"as the model gets it: {len(sample.token_ids)} tokens, one for each image"
    return (
        f"<section><h2>{escape(prompt.id)}</h2>{turns}<dl>{listed}</dl><details>"
        f"<summary>{tokens}</summary>{_preformatted(decode(sample.token_ids))}</details></section>"
    )


def _media(sample: Sample) -> dict[str, Iterator[str]]:
    """The HTML of the images and of the videos, in their order."""
    images = zip(sample.prompt.images, sample.media.images, strict=True)
    videos = zip(sample.prompt.videos, sample.media.videos, strict=True)
    return {
        "image": (_figure(name, image) for name, image in images),
        "video": (_film(name, video) for name, video in videos),
    }


def _turn(message: ChatMessage, media: Mapping[str, Iterator[str]]) -> str:
    role, content = escape(message["role"]), message["content"]
    parts: list[ContentPart] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else content
    )
    shown = "".join(
        f"<pre>{escape(part['text'])}</pre>" if "text" in part else next(media[part["type"]])
        for part in parts
    )
    return f'<div class="turn {role}"><div class="role">{role}</div>{shown}</div>'


def _figure(name: str, image: Image.Image) -> str:
    caption = f"{name}, {image.width}x{image.height}"
    return f'{_picture(image, _LARGEST_SIDE)}<div class="role">{escape(caption)}</div>'


def _film(name: str, video: Video) -> str:
    """The first of the frames that the model would get."""
    count, height, width = video.frames.shape[:3]
    frames = (Image.fromarray(frame) for frame in video.frames[:_FRAMES_SHOWN])
    pictures = "".join(_picture(frame, _FRAME_SIDE) for frame in frames)
    caption = f"{name}, {count} of {video.frame_count} frames, {width}x{height}"
    return f'{pictures}<div class="role">{escape(caption)}</div>'


def _picture(image: Image.Image, largest_side: int) -> str:
    small = image.copy()
    small.thumbnail((largest_side, largest_side))
    file = BytesIO()
    small.save(file, format="PNG")
    source = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return f'<img alt="" src="{source}">'


def _preformatted(text: str) -> str:
    return f'<pre class="pre">{escape(text)}</pre>'
