"""Rollout groups made by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lightrft_ray.data.prompts import Prompt
from lightrft_ray.workers.messages import GeneratedSample, PromptTask, RolloutGroup


def prompt(name: str, images: int = 0) -> Prompt:
    return Prompt(
        id=name,
        messages=(
            {"role": "system", "content": "the system prompt"},
            {"role": "user", "content": f"text of {name}"},
        ),
        images=tuple(f"{name}-{index}.png" for index in range(images)),
        image_root=Path(),
        reference=f"reference of {name}",
        label=f"label of {name}",
    )


def sample(token_ids: Sequence[int], *, is_truncated: bool = False) -> GeneratedSample:
    """Token t has the log-prob −t / 100."""
    ids = np.array(token_ids)
    return GeneratedSample(
        token_ids=ids,
        log_probs=(-ids / 100).astype(np.float32),
        weight_versions=np.zeros(len(ids), dtype=np.int64),
        text=f"text of {token_ids}",
        is_truncated=is_truncated,
    )


def rollout_group(
    name: str, prompt_ids: Sequence[int], samples: Sequence[GeneratedSample], images: int = 0
) -> RolloutGroup:
    task = PromptTask(prompt(name, images), epoch=2, seed=0)
    return RolloutGroup(task, np.array(prompt_ids), None, tuple(samples))
