"""Which changes of the configuration a run may go on with."""

from pathlib import Path

import pytest

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.load import load_config
from lightrft_ray.driver.checkpoint_store import CheckpointStore
from lightrft_ray.driver.manifest import Manifest
from lightrft_ray.driver.resume import ResumePoint, find_resume_point

FIRST = [
    ("n_samples_per_prompt", "4"),
    ("train_batch_size", "128"),
    ("micro_train_batch_size", "8"),
]


def _config(*changes: tuple[str, str]) -> RunConfig:
    return load_config(None, [*FIRST, *changes])


def _resume(
    store: CheckpointStore, *changes: tuple[str, str], first: RunConfig | None = None
) -> tuple[ResumePoint | None, list[str]]:
    before = first or _config()
    files = {"driver.json": store.place_of(3).write("driver.json", b"{}")}
    manifest = Manifest(3, before.model_dump(mode="json"), {"policy": 1}, {"policy": "x"}, files)
    store.complete(manifest)
    said: list[str] = []
    resume = () if "resume" in dict(changes) else (("resume", "auto"),)
    return find_resume_point(_config(*changes, *resume), store, said.append), said


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path))


def test_the_same_configuration_goes_on_without_a_word(store: CheckpointStore) -> None:
    point, said = _resume(store)
    assert point is not None and point.checkpoint.step == 3 and point.is_own
    assert said == []


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("eval_steps", "7", "evaluation.eval_steps 50 → 7"),
        ("num_steps", "300", "trainer.num_steps 150 → 300"),
        ("reward_timeout", "5.0", "reward.reward_timeout 60.0 → 5.0"),
        ("max_ckpt_num", "5", "checkpoint.max_ckpt_num 3 → 5"),
    ],
)
def test_a_change_beside_the_course_is_said(
    store: CheckpointStore, name: str, value: str, shown: str
) -> None:
    point, said = _resume(store, (name, value))
    assert point is not None
    assert any(shown in line and "warning" not in line for line in said)


@pytest.mark.parametrize(
    ("name", "value"),
    [("micro_train_batch_size", "16"), ("cpu_threads_per_worker", "1"), ("row_layout", "padded")],
)
def test_a_change_of_the_last_digits_is_warned_of(
    store: CheckpointStore, name: str, value: str
) -> None:
    _, said = _resume(store, (name, value))
    assert any(name in line and line.startswith("warning") for line in said)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([("actor_learning_rate", "1e-4")], "actor_learning_rate 0.0005 → 0.0001"),
        ([("seed", "2")], "seed 1 → 2"),
        ([("pretrain", "other/model")], '"embedded:tiny-qwen2.5-vl" → "other/model"'),
        ([("zero_stage", "2")], "optimizer states are cut up by it"),
        ([("cpu_learner_ranks", "2")], "processes of the policy 1 → 2"),
    ],
)
def test_a_change_of_the_course_is_refused_with_the_reason(
    store: CheckpointStore, changes: list[tuple[str, str]], named: str
) -> None:
    with pytest.raises(UserError) as refusal:
        _resume(store, *changes, ("eval_steps", "9"))
    message = str(refusal.value)
    assert named in message and "\n" not in message
    assert "these may change:" in message and "evaluation.eval_steps 50 → 9" in message


def test_a_schedule_over_the_whole_run_fixes_its_length(store: CheckpointStore) -> None:
    cosine = ("lr_scheduler", "cosine")
    with pytest.raises(UserError, match=r"num_steps 150 → 300 .*lr_scheduler cosine"):
        _resume(store, cosine, ("num_steps", "300"), first=_config(cosine))


def test_a_path_is_a_checkpoint_its_folder_or_a_run(store: CheckpointStore, tmp_path: Path) -> None:
    for path in (f"{tmp_path}/step_3", str(tmp_path)):
        point, _ = _resume(store, ("resume", path))
        assert point is not None and point.checkpoint.step == 3 and point.is_own
    elsewhere = CheckpointStore(f"{tmp_path}/run/checkpoints")
    point, _ = _resume(elsewhere)
    config = _config(("resume", f"{tmp_path}/run"))
    point = find_resume_point(config, store, lambda text: None)
    assert point is not None and not point.is_own


def test_a_path_without_a_checkpoint_is_named(store: CheckpointStore, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere: there is no complete checkpoint"):
        find_resume_point(_config(("resume", f"{tmp_path}/nowhere")), store, lambda text: None)


def test_nothing_to_go_on_from_begins_at_the_beginning(store: CheckpointStore) -> None:
    assert find_resume_point(_config(("resume", "auto")), store, lambda text: None) is None


def test_overwriting_and_resuming_contradict_each_other() -> None:
    with pytest.raises(UserError, match=r"overwrite_output .* checkpoint.resume auto"):
        _config(("resume", "auto"), ("overwrite_output", "true"))


def test_files_in_memory_are_refused_for_a_run() -> None:
    with pytest.raises(UserError, match=r"ckpt_path .*one process alone"):
        _config(("ckpt_path", "memory://x"))
