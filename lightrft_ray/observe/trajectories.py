"""Samples of a step on disk, token by token, with their images: what a person looks at.

`trajectories/step_000010.jsonl` has one object a sample; images lie beside it in `images/`, once
per content.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightrft_ray.config.errors import DataFault
from lightrft_ray.observe.jsonl import finite, write_whole

TOKEN_VALUES = (
    "rollout_log_prob",
    "learner_log_prob",
    "reference_log_prob",
    "entropy",
    "advantage",
)
"""What each token of a response has beside its id and text; None where the run knows none."""

_DIGITS = 6  # of a token's values: as many as a float32 log-prob has


@dataclass(frozen=True)
class TextPart:
    """Text of a prompt, and who says it (system, user, assistant)."""

    role: str
    text: str


@dataclass(frozen=True)
class ImagePart:
    """An image of a prompt: `read` gives the bytes of its file, or raises DataFault."""

    role: str
    read: Callable[[], bytes]


@dataclass(frozen=True)
class VideoPart:
    """A video of a prompt, read as an image is."""

    role: str
    read: Callable[[], bytes]


PromptPart = TextPart | ImagePart | VideoPart


@dataclass(frozen=True)
class Trajectory:
    """One sample and all that is known of it.

    `rules` tell what it was chosen by. `values` has, by a name of TOKEN_VALUES, L numbers or None;
    `token_ids` and `weight_versions` have L. A reward is NaN where scoring failed.
    """

    prompt_id: str
    epoch: int
    sample_index: int
    rules: tuple[str, ...]
    prompt: tuple[PromptPart, ...]
    response: str
    token_ids: Sequence[int]
    weight_versions: Sequence[int]
    values: Mapping[str, Sequence[float] | None]
    reward: float
    reward_components: Mapping[str, float]
    reference: str | None
    label: str | None
    is_truncated: bool


@dataclass(frozen=True)
class StepSamples:
    """A step's samples; `load` makes them, in the thread that writes them."""

    step: int
    load: Callable[[], Sequence[Trajectory]]


class TrajectoryWriter:
    """Writes one file a step below `folder`. Raises OSError as files do.

    `token_texts` gives the text of each of a response's tokens, `to_png` a PNG of an image's file,
    `to_pngs` those of a video's frames; the latter two raise DataFault for what cannot be read,
    which the sample then says in its place.
    """

    def __init__(
        self,
        folder: Path,
        token_texts: Callable[[Sequence[int]], list[str]],
        to_png: Callable[[bytes], bytes],
        to_pngs: Callable[[bytes], Sequence[bytes]],
    ) -> None:
        self._folder = folder
        self._images = folder / "images"
        self._token_texts = token_texts
        self._to_png = to_png
        self._to_pngs = to_pngs

    def write(self, samples: StepSamples, /) -> None:
        """Write the file of a step, in the place of one of an abandoned attempt."""
        self._images.mkdir(parents=True, exist_ok=True)
        entries = [self._entry(samples.step, each) for each in samples.load()]
        write_whole(step_file(self._folder, samples.step), "".join(map(_line, entries)))

    def close(self) -> None:
        """Nothing is open between two steps."""

    def _entry(self, step: int, sample: Trajectory) -> dict[str, Any]:
        values = {name: _rounded(sample.values.get(name)) for name in TOKEN_VALUES}
        return {
            "step": step,
            "prompt_id": sample.prompt_id,
            "epoch": sample.epoch,
            "sample_index": sample.sample_index,
            "rules": list(sample.rules),
            "prompt": [self._part(part) for part in sample.prompt],
            "response": sample.response,
            "tokens": {
                "text": self._token_texts(sample.token_ids),
                "id": list(sample.token_ids),
                **values,
                "weight_version": list(sample.weight_versions),
            },
            "reward": sample.reward,
            "reward_components": dict(sample.reward_components),
            "reference": sample.reference,
            "label": sample.label,
            "finish_reason": "length" if sample.is_truncated else "stop",
        }

    def _part(self, part: PromptPart) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "role": part.role, "text": part.text}
        try:
            content = part.read()
            if isinstance(part, ImagePart):
                return {"type": "image", "role": part.role, "file": self._save_image(content)}
            return {"type": "video", "role": part.role, "files": self._save_frames(content)}
        except DataFault as error:
            return {"type": "text", "role": part.role, "text": f"[{error}]"}

    def _save_image(self, content: bytes) -> str:
        """The name of an image's PNG below the folder; one that is there is not written again."""
        path = self._images / f"{hashlib.sha256(content).hexdigest()}.png"
        if not path.exists():
            _write_whole(path, self._to_png(content))
        return self._name(path)

    def _save_frames(self, content: bytes) -> list[str]:
        """The names of the PNGs of a video's frames; the first is written last: then all are."""
        digest = hashlib.sha256(content).hexdigest()
        if not (self._images / f"{digest}-000.png").exists():
            for index, png in reversed(list(enumerate(self._to_pngs(content)))):
                _write_whole(self._images / f"{digest}-{index:03d}.png", png)
        return [self._name(path) for path in sorted(self._images.glob(f"{digest}-*.png"))]

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()


def step_file(folder: Path, step: int) -> Path:
    """Where the samples of a step lie below the folder of trajectories."""
    return folder / f"step_{step:06d}.jsonl"


def remove_after(folder: Path, step: int) -> None:
    """Remove the files of later steps, which will be written again."""
    for path in folder.glob("step_*.jsonl"):
        if path > step_file(folder, step):
            path.unlink()


def _write_whole(path: Path, content: bytes) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_bytes(content)
    beside.replace(path)


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(finite(entry), ensure_ascii=False, allow_nan=False) + "\n"


def _rounded(values: Sequence[float] | None) -> list[float] | None:
    return None if values is None else [round(float(value), _DIGITS) for value in values]
