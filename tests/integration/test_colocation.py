"""Who has memory when, and whole runs that publish in other ways than the default."""

import json
from pathlib import Path

import pytest
import ray
import torch
from ray.actor import ActorHandle

from lightrft_ray.driver.colocation import Colocation
from lightrft_ray.workers.actor_group import ActorGroup
from tests.integration.launching import launch, metrics


@ray.remote
class Log:
    """What was done, in order."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line)

    def take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


@ray.remote
class Member:
    """Notes what it is asked for."""

    def __init__(self, name: str, log: ActorHandle) -> None:
        self._name, self._log = name, log

    def _note(self, *what: object) -> None:
        ray.get(self._log.add.remote(" ".join(map(str, (self._name, *what)))))

    def sleep(self) -> None:
        self._note("sleeps")

    def wake(self, tags: list[str]) -> None:
        self._note("wakes", *tags)

    def leave_device(self, keeps_weights: bool = False) -> None:
        self._note("leaves all but weights" if keeps_weights else "leaves")

    def return_to_device(self) -> None:
        self._note("returns")


def test_memory_is_given_up_before_it_is_taken(local_ray: None) -> None:
    log = Log.options(num_cpus=0).remote()
    learner, generator, critic = (
        ActorGroup(name, [Member.options(num_cpus=0).remote(name, log)], 60)
        for name in ("learner", "generator", "critic")
    )

    def taken() -> list[str]:
        return ray.get(log.take.remote(), timeout=60)

    turns = Colocation(learner, generator, [critic], is_on=True)
    turns.to_learner()  # wherever an attempt before has left them
    assert taken() == ["generator sleeps", "learner returns", "critic returns"]
    turns.to_publication()
    assert taken() == ["learner leaves all but weights", "critic leaves", "generator wakes weights"]
    turns.to_generators()
    assert taken() == ["learner leaves", "generator wakes kv_cache"]
    turns.to_generators()
    with turns.catching_up():
        assert taken() == ["learner returns"]
    assert taken() == ["learner leaves"]
    turns.to_learner()
    turns.to_learner()
    assert taken() == ["generator sleeps", "learner returns", "critic returns"]
    with turns.catching_up():
        turns.to_generators()
    assert taken() == []
    apart = Colocation(learner, generator, is_on=False)
    apart.to_publication()
    apart.to_generators()
    apart.to_learner()
    assert taken() == []


@pytest.mark.long
def test_a_colocated_run_does_the_same_as_one_apart(tmp_path: Path) -> None:
    options = {"init_kl_coef": 0.01, "advantage_estimator": "gae"}
    for name in ("none", "learner_generator", "all"):
        result = launch(tmp_path / name, colocate=name, **options)
        assert result.returncode == 0, result.stderr
    expected = metrics(tmp_path / "none")
    assert len(expected) == 4
    assert metrics(tmp_path / "learner_generator") == expected
    assert metrics(tmp_path / "all") == expected


@pytest.mark.long
@pytest.mark.parametrize("lora_sync", ["merged", "adapter"])
def test_a_run_trains_adapters(tmp_path: Path, lora_sync: str) -> None:
    """The canary holds vLLM's sum of weights and adapter against the learner's in each step."""
    options = {"lora_rank": 4, "lora_sync": lora_sync, "actor_learning_rate": 1e-3}
    result = launch(tmp_path / "run", **options)
    assert result.returncode == 0, result.stderr
    records = metrics(tmp_path / "run")
    assert len(records) == 4
    assert max(record["publish/canary_max_abs_diff"] for record in records) < 1e-4
    sizes = {record["publish/bytes"] for record in records}
    assert len(sizes) == 1
    if lora_sync == "adapter":
        assert sizes.pop() < 10**6  # of a policy of 4 MB
    saved = tmp_path / "run" / "hf_checkpoint" / "config.json"
    assert json.loads(saved.read_text())["architectures"] == ["Qwen2_5_VLForConditionalGeneration"]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_weights_travel_between_gpus(tmp_path: Path) -> None:
    gpus = {"actor_num_gpus_per_node": 1, "vllm_use_gpu": "true"}
    result = launch(tmp_path / "run", transport="nccl", **gpus)
    assert result.returncode == 0, result.stderr
    assert metrics(tmp_path / "run")[-1]["publish/canary_max_abs_diff"] < 1e-3


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
@pytest.mark.parametrize("transport", ["ipc", "object_store"])
def test_weights_travel_within_a_gpu_that_is_shared(tmp_path: Path, transport: str) -> None:
    shared = {
        "actor_num_gpus_per_node": 1,
        "vllm_use_gpu": "true",
        "vllm_gpu_memory_utilization": 0.4,
        "colocate": "learner_generator",
        "zero_stage": 1,
    }
    result = launch(tmp_path / "run", transport=transport, **shared)
    assert result.returncode == 0, result.stderr
    assert metrics(tmp_path / "run")[-1]["publish/canary_max_abs_diff"] < 1e-3
