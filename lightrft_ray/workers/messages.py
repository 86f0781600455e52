"""What travels between the driver and the workers.

Token ids and log-probs are small and travel by value. Media inputs (pixels) are put into the
object store once per prompt by the generator that processed them; everybody else passes the
reference on, and only a worker that runs a model fetches them.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import ray
import torch
from ray import ObjectRef

from lightrft_ray.data.prompts import Prompt
from lightrft_ray.models.rows import PromptGroup
from lightrft_ray.rewards.remote.statistics import RemoteFigures
from lightrft_ray.rewards.sample import SampleScore

MediaRef = ObjectRef  # of a dict: model input name -> numpy array


@dataclass(frozen=True)
class PromptTask:
    """A prompt to sample from; sample i of it is drawn with the seed `seed + i`."""

    prompt: Prompt
    epoch: int
    seed: int


@dataclass(frozen=True)
class FirstToken:
    """How a response's first token is drawn where it differs: from the `top_k` likeliest."""

    temperature: float
    top_k: int


@dataclass(frozen=True)
class GenerationSettings:
    """How to sample: `n` responses of at most `max_tokens`; temperature 0 is greedy."""

    n: int
    max_tokens: int
    temperature: float
    first_token: FirstToken | None = None


@dataclass(frozen=True)
class GeneratedSample:
    """One response: per token its id, its log-prob when sampled and the weights' version."""

    token_ids: np.ndarray  # (L,) int64, a sampled stop token included
    log_probs: np.ndarray  # (L,) float32
    weight_versions: np.ndarray  # (L,) int64
    text: str
    is_truncated: bool


@dataclass(frozen=True)
class RolloutGroup:
    """A prompt and its samples; `prompt_ids` (P,) holds the expanded media placeholders."""

    task: PromptTask
    prompt_ids: np.ndarray
    media: MediaRef | None
    samples: tuple[GeneratedSample, ...]

    @property
    def responses(self) -> "GroupResponses":
        """What rewards see of the group."""
        return GroupResponses(
            self.task.prompt,
            self.task.epoch,
            tuple(sample.text for sample in self.samples),
            tuple(sample.token_ids for sample in self.samples),
        )

    @property
    def tokens(self) -> "GroupTokens":
        """What models need of the group."""
        return GroupTokens(
            self.prompt_ids, tuple(sample.token_ids for sample in self.samples), self.media
        )


@dataclass(frozen=True)
class SkippedPrompt:
    """A prompt that could not be used, and why."""

    task: PromptTask
    reason: str


@dataclass(frozen=True)
class GroupTokens:
    """A prompt group as it travels to models: token ids by value, media by reference."""

    prompt_ids: np.ndarray
    responses: tuple[np.ndarray, ...]
    media: MediaRef | None

    @property
    def action_count(self) -> int:
        """Response tokens of all samples."""
        return sum(len(response) for response in self.responses)

    @property
    def token_count(self) -> int:
        """Tokens of a row in which the samples share the prompt."""
        return len(self.prompt_ids) + self.action_count

    def select(self, start: int, stop: int) -> "GroupTokens":
        """The group with the samples [start, stop) alone."""
        return GroupTokens(self.prompt_ids, self.responses[start:stop], self.media)


@dataclass(frozen=True)
class GroupResponses:
    """A prompt and its responses as they travel to rewards; images stay files."""

    prompt: Prompt
    epoch: int
    texts: tuple[str, ...]
    token_ids: tuple[np.ndarray, ...]

    @property
    def sample_ids(self) -> list[str]:
        """A name for each response, unique in the run."""
        return [f"{self.prompt.id}/{self.epoch}/{index}" for index in range(len(self.texts))]


@dataclass(frozen=True)
class RewardReport:
    """A score or failure for each response, and how the sources of rewards do so far.

    `process` has the rewards of a response's tokens and steps, (L,) float32 with NaN where there is
    none, or None.
    """

    scores: tuple[SampleScore, ...]
    process: tuple[np.ndarray | None, ...]
    figures: Mapping[str, RemoteFigures]


def fetch_groups(groups: Sequence[GroupTokens]) -> list[PromptGroup]:
    """The groups with their media, which lie in this node's object store after the call."""
    references = [group.media for group in groups if group.media is not None]
    fetched = iter(ray.get(references))
    return [
        PromptGroup(
            prompt_ids=_as_tensor(group.prompt_ids),
            responses=[_as_tensor(response) for response in group.responses],
            media={}
            if group.media is None
            else {name: _as_tensor(value) for name, value in next(fetched).items()},
        )
        for group in groups
    ]


def split_micro_batches(groups: Sequence[GroupTokens], size: int) -> list[list[GroupTokens]]:
    """Micro-batches of exactly `size` samples (the last may be smaller), in order.

    A group that crosses a border is cut, so that ranks with equal numbers of samples have equal
    numbers of micro-batches, as collective operations need.
    """
    batches: list[list[GroupTokens]] = [[]]
    room = size
    for group in groups:
        start = 0
        while start < len(group.responses):
            if room == 0:
                batches.append([])
                room = size
            stop = min(start + room, len(group.responses))
            batches[-1].append(group.select(start, stop))
            room -= stop - start
            start = stop
    return batches


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor that shares the array's memory; arrays from the object store are read-only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
