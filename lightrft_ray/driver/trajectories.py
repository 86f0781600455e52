"""The samples of a step that a person is shown: chosen, described, and handed to their writer."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ray import ObjectRef
from torch import Tensor

from lightrft_ray.config import InfrastructureError, RunConfig
from lightrft_ray.data.media_source import read_medium
from lightrft_ray.data.picture_files import picture_png, video_pngs
from lightrft_ray.data.processing import load_processor, tokenizer_of
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.data.token_texts import token_texts
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.observe.background import Background
from lightrft_ray.observe.sample_choice import choose_samples
from lightrft_ray.observe.trajectories import (
    ImagePart,
    PromptPart,
    StepSamples,
    TextPart,
    Trajectory,
    TrajectoryWriter,
    VideoPart,
)
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.messages import RolloutGroup

_WAITING_STEPS = 4
_FIRST = 0  # rank: all of them score the same samples
_SEED_STRIDE = 1_000_003  # keeps the steps of neighbouring seeds apart
_LONGEST_SIDE = 768  # pixels: enough to see what the model saw

TrajectorySink = Background[StepSamples]


def trajectory_sink(
    config: RunConfig, folder: Path, report: Callable[[str], None]
) -> TrajectorySink:
    """A writer of samples in a thread of its own; images are loaded there and nowhere else."""

    def open_writer() -> TrajectoryWriter:
        model = config.model
        tokenizer = tokenizer_of(load_processor(model.pretrain, model.trust_remote_code))
        return TrajectoryWriter(
            folder,
            partial(token_texts, tokenizer),
            partial(picture_png, longest_side=_LONGEST_SIDE),
            partial(video_pngs, settings=config.media, longest_side=_LONGEST_SIDE),
        )

    return Background(
        "the writer of trajectories",
        open_writer,
        report,
        capacity=_WAITING_STEPS,
        is_dropped_when_late=False,
    )


class TrajectoryRecorder:
    """Chooses samples of a step and asks the learner for their log-probs before its updates."""

    def __init__(self, config: RunConfig, learner: ActorGroup, sink: TrajectorySink) -> None:
        self._config = config
        self._learner = learner
        self._sink = sink

    def is_due(self, step: int) -> bool:
        """Whether samples of a step are kept: of the first, the last and every so many."""
        every, last = self._config.logging.trajectory_steps, self._config.trainer.num_steps
        return every > 0 and (step in (1, last) or step % every == 0)

    def record(self, step: int, batch: RolloutBatch, experience: ExperienceVL) -> None:
        """Hand over a step's samples; call it before the learner's updates are asked for.

        Nothing is waited for: the learner comes to it before the updates, and the thread that
        writes waits for its answer.
        """
        if experience.info is None:
            raise ValueError("the experience is not assembled")
        rewards = experience.info["reward"].tolist()
        chosen = choose_samples(
            rewards,
            self._config.logging.trajectory_samples,
            seed=self._config.seed * _SEED_STRIDE + step,
        )
        rows = [(group, index) for group in batch.groups for index in range(len(group.samples))]
        tokens = [rows[row][0].tokens.select(rows[row][1], rows[row][1] + 1) for row in chosen]
        # To every rank the same, for the model may be sharded over all of them.
        pending = self._learner.start("observe", tokens)
        samples = [
            _describe(*rows[row], rules, _Row(row, experience)) for row, rules in chosen.items()
        ]
        load = partial(_completed, samples, pending[_FIRST], self._learner)
        self._sink.put(StepSamples(step, load))


@dataclass(frozen=True)
class _Row:
    """A sample's row of the experience."""

    index: int
    experience: ExperienceVL

    def info(self, name: str, default: Any) -> Any:
        """Its entry of `experience.info`."""
        values = (self.experience.info or {}).get(name)
        return default if values is None else values[self.index]

    def values(self, tensor: Tensor | None, length: int) -> list[float] | None:
        """The first `length` of its values."""
        return None if tensor is None else tensor[self.index, :length].tolist()


def _describe(group: RolloutGroup, index: int, rules: tuple[str, ...], row: _Row) -> Trajectory:
    sample, prompt, experience = group.samples[index], group.task.prompt, row.experience
    length = len(sample.token_ids)
    return Trajectory(
        prompt_id=prompt.id,
        epoch=group.task.epoch,
        sample_index=index,
        rules=rules,
        prompt=_prompt_parts(prompt),
        response=sample.text,
        token_ids=sample.token_ids.tolist(),
        weight_versions=sample.weight_versions.tolist(),
        values={
            "rollout_log_prob": sample.log_probs.tolist(),
            "reference_log_prob": row.values(experience.base_action_log_probs, length),
            "advantage": row.values(experience.advantages, length),
        },
        reward=float(row.info("reward", math.nan)),
        reward_components=row.info("reward_components", {}),
        reference=prompt.reference or None,
        label=prompt.label or None,
        is_truncated=sample.is_truncated,
    )


def _prompt_parts(prompt: Prompt) -> tuple[PromptPart, ...]:
    """Text and references to media; nothing is loaded here."""
    images, videos, root = iter(prompt.images), iter(prompt.videos), prompt.image_root
    parts: list[PromptPart] = []
    for message in prompt.messages:
        role, content = message["role"], message["content"]
        if isinstance(content, str):
            parts.append(TextPart(role, content))
            continue
        for part in content:
            if part["type"] == "image":
                parts.append(ImagePart(role, partial(read_medium, next(images), root)))
            elif part["type"] == "video":
                parts.append(VideoPart(role, partial(read_medium, next(videos), root, "video")))
            else:
                parts.append(TextPart(role, part["text"]))
    return tuple(parts)


def _completed(
    samples: Sequence[Trajectory], pending: ObjectRef, learner: ActorGroup
) -> list[Trajectory]:
    """The samples with the learner's log-probs and entropies; without, where it died."""
    try:
        (log_probs, entropies) = learner.wait([pending])[0]
    except InfrastructureError:
        return list(samples)
    ends = np.cumsum([len(each.token_ids) for each in samples])[:-1]
    by_sample = zip(samples, np.split(log_probs, ends), np.split(entropies, ends), strict=True)
    return [
        replace(
            each,
            values={
                **each.values,
                "learner_log_prob": own.tolist(),
                "entropy": entropy.tolist(),
            },
        )
        for each, own, entropy in by_sample
    ]
