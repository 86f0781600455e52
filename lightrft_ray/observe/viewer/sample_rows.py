"""The samples that a run wrote down, as the page takes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lightrft_ray.observe.viewer.jsonl import whole_lines

_BATCH_BYTES = (
    2_000_000  # of one answer: long runs are read in pieces, so that the page stays quick
)


class PromptPart(BaseModel):
    """A piece of a prompt; files are relative to the folder of trajectories."""

    type: Literal["text", "image", "video"]
    role: str = ""
    text: str = ""
    file: str = ""
    files: list[str] = []


Values = list[float | None] | None


class Tokens(BaseModel):
    """A response's tokens, with one value a token; None where that was not computed."""

    model_config = ConfigDict(ser_json_inf_nan="null")

    text: list[str] = []
    id: list[int] = []
    rollout_log_prob: Values = None
    learner_log_prob: Values = None
    reference_log_prob: Values = None
    entropy: Values = None
    advantage: Values = None
    weight_version: Values = None


def _or_empty(value: object) -> object:
    return "" if value is None else str(value)


Text = Annotated[str, BeforeValidator(_or_empty)]


class Sample(BaseModel):
    """One line of a step_N.jsonl; what an older or newer version adds is left out."""

    model_config = ConfigDict(ser_json_inf_nan="null")

    step: int
    prompt_id: Text = ""
    epoch: int = 0
    sample_index: int = 0
    rules: list[str] = []
    prompt: list[PromptPart] = []
    response: str = ""
    tokens: Tokens = Field(default_factory=Tokens)
    reward: float | None = None
    reward_components: dict[str, float | None] = {}
    reference: Text = ""
    label: Text = ""
    finish_reason: Text = ""


class Samples(BaseModel):
    """Samples of some steps; `next` is the step to go on from, None at the end."""

    samples: list[Sample]
    next: int | None
    damaged: int


class StepFile(NamedTuple):
    """The samples of one step."""

    step: int
    path: Path


def step_files(folder: Path) -> list[StepFile]:
    """The files of samples in the order of their steps; none where there is no folder."""
    found = folder.glob("step_*.jsonl") if folder.is_dir() else []
    numbered = [(path.stem.removeprefix("step_"), path) for path in found]
    return sorted(StepFile(int(text), path) for text, path in numbered if text.isdecimal())


def read_samples(files: list[StepFile], start: int, single: bool) -> Samples:
    """The samples of step `start`, or from there on until an answer is large enough."""
    answer = Samples(samples=[], next=None, damaged=0)
    size = 0
    for step, path in files:
        if step < start:
            continue
        if step > start and single:
            break
        if size > _BATCH_BYTES:
            answer.next = step
            break
        size += path.stat().st_size
        for sample in parse_samples(path):
            if sample is None:
                answer.damaged += 1
            else:
                answer.samples.append(sample)
    return answer


def parse_samples(path: Path) -> Iterator[Sample | None]:
    """Each sample of a file; None for a line that holds none."""
    for line in whole_lines(path):
        try:
            yield Sample.model_validate_json(line)
        except ValidationError:
            yield None
