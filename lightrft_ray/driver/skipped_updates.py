"""Optimizer steps that were skipped: kept for inspection, and a reason to stop if many in a row."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightrft_ray.config.errors import UserError
from lightrft_ray.workers.batches import RankBatch
from lightrft_ray.workers.deepspeed_engine import StepResult
from lightrft_ray.workers.messages import GroupTokens

_MOST_KEPT = 20  # batches: a run that skips now and then must not fill the disk

_REMEDIES = {"policy": "trainer.actor_learning_rate", "value": "trainer.critic_learning_rate"}


class SkippedUpdates:
    """Watches the updates of a run for those whose loss or gradient was not finite."""

    def __init__(self, folder: Path, max_in_row: int) -> None:
        self._folder = folder
        self._max_in_row = max_in_row
        self._in_row: Counter[str] = Counter()
        self._kept = 0

    def check(
        self,
        role: str,
        step: int,
        passes: Sequence[Sequence[RankBatch]],
        results: Sequence[StepResult],
    ) -> None:
        """Look at a step's updates of a role ("policy" or "value"), with each rank's batches.

        Writes the batch of each skipped update to the folder as `ROLE-STEP-UPDATE.pt`, and raises
        UserError after too many in a row.
        """
        for number, result in enumerate(results):
            if not result.skipped:
                self._in_row[role] = 0
                continue
            self._in_row[role] += 1
            batches = [share[number] for share in passes]
            self._keep(f"{role}-{step}-{number + 1}.pt", _as_plain(batches, result))
            if self._in_row[role] >= self._max_in_row:
                raise self._error(role, step, result)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep: plain values."""
        return {"in_row": dict(self._in_row), "kept": self._kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict()`."""
        self._in_row = Counter(state["in_row"])
        self._kept = state["kept"]

    def _keep(self, name: str, contents: dict[str, object]) -> None:
        if self._kept == _MOST_KEPT:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        torch.save(contents, self._folder / name)
        self._kept += 1

    def _error(self, role: str, step: int, result: StepResult) -> UserError:
        what = "gradient" if result.loss_is_finite else "loss"
        return UserError(
            f"{self._in_row[role]} {role} updates in a row, up to step {step}, had a loss or "
            f"gradient that is not finite (the last one's {what}, at gradient norm "
            f"{result.grad_norm:g} and learning rate {result.learning_rate:g}) and were skipped; "
            f"their batches are in {self._folder}: "
            f"lower {_REMEDIES[role]}, or raise trainer.max_skipped_in_row"
        )


def _as_plain(batches: Sequence[RankBatch], result: StepResult) -> dict[str, object]:
    """Tensors, lists and numbers alone, so that torch.load reads them without this package."""
    return {
        "result": asdict(result),
        "denominators": asdict(batches[0].denominators),
        "kl_coef": batches[0].kl_coef,
        "ranks": [
            {**_tokens(batch.groups), "experience": _tensors(batch), **_demonstrations(batch)}
            for batch in batches
        ],
    }


def _tokens(groups: Sequence[GroupTokens]) -> dict[str, object]:
    return {
        "prompt_ids": [_as_tensor(group.prompt_ids) for group in groups],
        "responses": [[_as_tensor(each) for each in group.responses] for group in groups],
    }


def _demonstrations(batch: RankBatch) -> dict[str, object]:
    taught = batch.demonstrations
    return {} if taught is None else {"demonstrations": _tokens(taught.groups)}


def _tensors(batch: RankBatch) -> dict[str, Tensor]:
    experience = batch.experience
    values = {field.name: getattr(experience, field.name) for field in fields(experience)}
    values |= experience.info or {}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _as_tensor(ids: np.ndarray) -> Tensor:
    return torch.tensor(ids)
