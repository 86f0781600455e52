"""What a run goes on from, and whether it may."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.driver.checkpoint_store import Checkpoint, CheckpointStore
from lightrft_ray.driver.manifest import MANIFEST, read_manifest
from lightrft_ray.workers.snapshot import CRITIC, POLICY
from lightrft_ray.workers.storage import DamagedFile, Storage

Report = Callable[[str], None]

# What every resumed run may say in another way.
_UNSAID = ("output_dir", "overwrite_output", "checkpoint.resume", "logging.")
# What leaves the course of training as it is. A name that ends in a dot is a whole section.
_FREE = (
    "checkpoint.",
    "evaluation.",
    "recovery.",
    "sync.",
    "data.allow_paths_outside",
    "data.cache_dir",
    "data.eval_data",
    "data.eval_max_samples",
    "data.eval_split",
    "data.image_root",
    "data.max_bad_fraction",
    "media.ahead_mb",
    "media.decode_timeout",
    "media.decode_workers",
    "media.media_cache_mb",
    "placement.placement_timeout",
    "reward.max_failed_fraction",
    "reward.reward_timeout",
    "rollout.generate_timeout",
    "rollout.vllm_gpu_memory_utilization",
    "rollout.vllm_kv_cache_gb",
    "trainer.learner_timeout",
    "trainer.max_skipped_in_row",
)
# What changes the order of sums: the run goes on, and is not the same in the last digits.
_ROUNDING = (
    "model.attn_implementation",
    "model.gradient_checkpointing",
    "placement.",
    "rollout.vllm_",
    "trainer.micro_train_batch_size",
    "trainer.micro_rollout_batch_size",
    "trainer.row_layout",
)
_LENGTH = "trainer.num_steps"
_NO_VALUE = "(no such setting)"


@dataclass(frozen=True)
class Change:
    """A setting that differs from the checkpoint's, and why it may not (None: it may)."""

    setting: str
    before: object
    now: object
    refusal: str | None
    rounds: bool = False

    def __str__(self) -> str:
        return f"{self.setting} {json.dumps(self.before)} → {json.dumps(self.now)}"


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint to go on from; `is_own` if it is of the run in the same output folder."""

    checkpoint: Checkpoint
    is_own: bool


def find_resume_point(
    config: RunConfig, store: CheckpointStore, report: Report
) -> ResumePoint | None:
    """The checkpoint that `checkpoint.resume` asks for; None to begin at the beginning.

    `report` gets a line on each damaged checkpoint and on changed settings. Raises UserError where
    the checkpoint is missing, damaged or of a run that this one cannot go on with.
    """
    wish = config.checkpoint.resume
    if wish == "never":
        return None
    if wish == "auto":
        checkpoint = store.newest(report)
        is_own = True
    else:
        checkpoint = checkpoint_at(wish, report)
        is_own = checkpoint.storage.is_in(Storage(store.url))
    if checkpoint is None:
        return None
    _check_changes(config, checkpoint, report)
    return ResumePoint(checkpoint, is_own)


def checkpoint_at(path: str, report: Report) -> Checkpoint:
    """The checkpoint at a path or url, or the newest one of those in it.

    Raises UserError where there is none, or none that is intact.
    """
    storage = Storage(path)
    if storage.size(MANIFEST) is not None:
        try:
            checkpoint = Checkpoint(storage, read_manifest(storage))
            checkpoint.check()
        except DamagedFile as fault:
            raise UserError(
                f"the checkpoint {path} is damaged: {fault}; resume from another one"
            ) from fault
        return checkpoint
    for place in (path, f"{path.rstrip('/')}/checkpoints"):
        found = CheckpointStore(place).newest(report)
        if found is not None:
            return found
    raise UserError(
        f"{path}: there is no complete checkpoint; give the folder of one "
        "(step_N), the folder they are in, or the output_dir of a run"
    )


def _check_changes(config: RunConfig, checkpoint: Checkpoint, report: Report) -> None:
    changes = changed_settings(checkpoint.manifest.config, config)
    changes += _changed_ranks(checkpoint.manifest.ranks, config)
    refused = [change for change in changes if change.refusal is not None]
    allowed = [change for change in changes if change.refusal is None]
    if refused:
        named = "; ".join(f"{change} ({change.refusal})" for change in refused)
        rest = f"; these may change: {', '.join(map(str, allowed))}" if allowed else ""
        raise UserError(
            f"the run cannot go on from {checkpoint.storage.url} with other settings: {named}; "
            f"set them as they were, or start a new run in another output_dir{rest}"
        )
    rounding = [str(change) for change in allowed if change.rounds]
    others = [str(change) for change in allowed if not change.rounds]
    if others:
        report(f"resumed with changed settings: {', '.join(others)}")
    if rounding:
        report(
            f"warning: resumed with {', '.join(rounding)}: numbers will differ in their last "
            "digits from those of the run that was never stopped"
        )


def changed_settings(before: Mapping[str, Any], config: RunConfig) -> list[Change]:
    """Settings of `config` that are not as `before`, a dumped configuration."""
    old, new = _flat(before), _flat(config.model_dump(mode="json"))
    return [
        Change(
            name,
            old.get(name, _NO_VALUE),
            new.get(name, _NO_VALUE),
            _refusal(name, config),
            rounds=not _is_in(name, _FREE) and _is_in(name, _ROUNDING),
        )
        for name in sorted(old.keys() | new.keys())
        if old.get(name, _NO_VALUE) != new.get(name, _NO_VALUE) and not _is_in(name, _UNSAID)
    ]


def _refusal(name: str, config: RunConfig) -> str | None:
    if _is_in(name, (*_FREE, *_ROUNDING)):
        return None
    if name == _LENGTH:
        scheduler = config.trainer.lr_scheduler
        if scheduler == "constant":
            return None
        return f"trainer.lr_scheduler {scheduler} spans the whole run"
    if name == "trainer.zero_stage":
        return "optimizer states are cut up by it"
    return "it is part of the course of training"


def _changed_ranks(before: Mapping[str, int], config: RunConfig) -> list[Change]:
    now = {POLICY: config.learner_ranks}
    now |= {CRITIC: config.critic_ranks} if config.uses_critic else {}
    why = "optimizer states are cut up by it: give the role as many processes as it had"
    return [
        Change(f"processes of the {role}", before[role], now[role], why)
        for role in before.keys() & now.keys()  # a role more or less shows as another estimator
        if before[role] != now[role]
    ]


def _is_in(name: str, names: tuple[str, ...]) -> bool:
    return any(name == one or (one[-1] in "._" and name.startswith(one)) for one in names)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        flat |= _flat(value, f"{key}.") if isinstance(value, dict) else {key: value}
    return flat
