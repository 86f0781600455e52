"""Each embedded task for two steps on the real stack: one set of workers for all of them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.driver.checkpoint_store import CheckpointStore
from lightrft_ray.driver.placement import placed, role_demands
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.workers import Workers, start_workers
from tests.integration.test_durable import Stack

CONFIGS = Path(__file__).parents[2] / "launch" / "configs"
TASKS = ("digit_comparison", "digit_video", "easy_vqa", "arithmetic")
SHORT = [
    ("num_steps", "2"),
    ("rollout_batch_size", "8"),
    ("n_samples_per_prompt", "4"),
    ("train_batch_size", "32"),
    ("max_epochs", "1"),
    ("micro_train_batch_size", "16"),
    ("micro_rollout_batch_size", "32"),
    ("lr_scheduler", "constant"),
    ("eval_max_samples", "16"),
    ("decode_workers", "1"),
    ("overwrite_output", "true"),
]

pytestmark = pytest.mark.long


def _inputs(task: str, folder: Path) -> tuple[RunConfig, RunInputs]:
    options = [*SHORT, ("output_dir", str(folder / task))]
    config = resolve_checkpoints(load_config(CONFIGS / f"{task}.yaml", options))
    return config, check_inputs(config)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers whose generator takes what any of the tasks has: two images, or a video."""
    folder = tmp_path_factory.mktemp("stack")
    config, inputs = _inputs("digit_comparison", folder)
    _, with_video = _inputs("digit_video", folder)
    inputs = replace(inputs, eval_prompts=(*inputs.eval_prompts, *with_video.eval_prompts))
    demands = role_demands(config)
    with ray_session(), placed(config, demands, is_local=True) as placement:
        started = start_workers(config, inputs, demands, placement)
        yield started
        started.stop()


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_trained_on_and_evaluated(workers: Workers, tmp_path: Path, task: str) -> None:
    config, inputs = _inputs(task, tmp_path)
    store = CheckpointStore(config.checkpoint_url)
    records = list(Stack(config, config, inputs, workers, store).train().values())
    assert [record["step"] for record in records] == [0, 1, 2]
    assert all(record["publish/canary_max_abs_diff"] < 1e-4 for record in records)
    assert records[-1]["data/trained"] == 16 and records[-1]["data/failed"] == 0
    for record in records[1:]:
        # Generator and learner agree on every token: on its image's, its video's and its text's.
        assert record["rollout/log_prob_gap_max"] < 1e-4
        assert math.isfinite(record["policy/loss"])
    assert records[0]["eval/samples"] == 16
