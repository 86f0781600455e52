"""What a run leaves in its checkpoints is enough to go on bit for bit, on the real stack.

All tests share one start of the workers: going on from a checkpoint resets whatever state they
have. Whole processes that are killed and started again are tests/chaos.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from lightrft_ray.config import RunConfig, UserError, WorkerDied
from lightrft_ray.config.load import load_config
from lightrft_ray.driver.checkpoint_store import Checkpoint, CheckpointStore
from lightrft_ray.driver.checkpointer import Checkpointer
from lightrft_ray.driver.export import export_beside, export_checkpoint
from lightrft_ray.driver.heartbeat import Heartbeats
from lightrft_ray.driver.interruption import Interruption
from lightrft_ray.driver.loop import Record, TrainingLoop
from lightrft_ray.driver.manifest import MANIFEST
from lightrft_ray.driver.observer import Observer
from lightrft_ray.driver.placement import placed, role_demands
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.repair import repair
from lightrft_ray.driver.restart_budget import RestartBudget
from lightrft_ray.driver.resume import checkpoint_at
from lightrft_ray.driver.revival import Reviver
from lightrft_ray.driver.run_log import open_run_log
from lightrft_ray.driver.workers import Workers, start_workers
from lightrft_ray.models.token_models import Sampling
from lightrft_ray.observe.names import is_timing
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.run_identity import identify
from lightrft_ray.workers.engine_environment import engine_environment
from lightrft_ray.workers.generator import Generator
from lightrft_ray.workers.snapshot import POLICY, SnapshotSource
from lightrft_ray.workers.state_files import state_to_bytes
from lightrft_ray.workers.storage import Storage
from tests.integration.launching import ROOT, called, environment

# Every kind of state: a critic, both schedules, an adaptive KL and running reward statistics.
OPTIONS = {
    "num_steps": "4",
    "rollout_batch_size": "4",
    "n_samples_per_prompt": "4",
    "train_batch_size": "8",
    "micro_train_batch_size": "8",
    "eval_max_samples": "8",
    "eval_steps": "2",
    "eval_sets": "{hot: {data: embedded:digits, max_samples: 4, temperature: 1.0, "
    "n_samples_per_prompt: 2}}",
    "save_steps": "1",
    "max_ckpt_num": "9",
    "advantage_estimator": "gae",
    "init_kl_coef": "0.05",
    "kl_estimator": "k1",
    "use_kl_loss": "false",
    "kl_target": "0.001",
    "kl_horizon": "100",
    "reward_running_norm": "standardize",
    "lr_scheduler": "cosine",
    "lr_warmup_steps": "2",
}


@dataclass(frozen=True)
class Stack:
    """Running workers, and where their checkpoints go."""

    config: RunConfig
    resolved: RunConfig
    inputs: RunInputs
    workers: Workers
    store: CheckpointStore

    def train(
        self,
        resumed: Checkpoint | None = None,
        after_step: Callable[[int], None] = lambda step: None,
        messages: Callable[[str], None] = lambda text: None,
    ) -> dict[int, Record]:
        """Records of a loop of its own, without what may differ between equal runs."""
        records: dict[int, Record] = {}

        def report(record: Record) -> None:
            same = {name: value for name, value in record.items() if not is_timing(name)}
            records[int(record["step"])] = same
            after_step(int(record["step"]))

        checkpointer = Checkpointer(self.config, self.store, self.workers)
        settings = self.config.recovery
        folder = RunFolder.reopen(self.config.output_dir)
        identity = identify(folder.identity)
        with (
            open_run_log(self.resolved, folder, identity, messages, after_step=None) as log,
            Heartbeats(self.workers.by_role(), settings, messages) as heartbeats,
        ):
            loop = TrainingLoop(
                self.resolved,
                self.inputs,
                self.workers,
                checkpointer,
                Interruption(),
                observer=Observer(self.resolved, self.workers, log),
            )
            budget = RestartBudget(settings)
            Reviver(self.workers, loop.publisher, budget, heartbeats, messages)
            loop.run(report, resumed)
        return records


@contextmanager
def running(options: Mapping[str, str], folder: Path) -> Iterator[Stack]:
    """The workers of a run in a folder, on a Ray of their own."""
    config = load_config(None, [*options.items(), ("output_dir", str(folder / "run"))])
    resolved = resolve_checkpoints(config)
    inputs, demands = check_inputs(resolved), role_demands(resolved)
    with ray_session(), placed(resolved, demands, is_local=True) as placement:
        workers = start_workers(resolved, inputs, demands, placement)
        yield Stack(config, resolved, inputs, workers, CheckpointStore(config.checkpoint_url))
        workers.stop()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(OPTIONS, tmp_path_factory.mktemp("durable")) as stack:
        yield stack


@pytest.fixture(scope="module")
def whole(stack: Stack) -> dict[int, Record]:
    """The records of a run that was never stopped."""
    return stack.train()


def _must_be_silent(text: str) -> None:
    raise AssertionError(text)


def test_every_checkpoint_is_there_with_its_score(stack: Stack, whole: dict[int, Record]) -> None:
    assert stack.store.steps() == [4, 3, 2, 1]
    scores = {step: stack.store.open(step).manifest.score for step in (1, 2, 4)}
    assert scores == {1: None, 2: whole[2]["eval/accuracy"], 4: whole[4]["eval/accuracy"]}
    assert {"eval/hot/pass_at_k", "eval/hot/accuracy", "eval/hot/samples"} <= whole[4].keys()
    assert whole[4]["eval/hot/samples"] == 8


def test_a_run_goes_on_bit_for_bit_from_the_last_good_checkpoint(
    stack: Stack, whole: dict[int, Record]
) -> None:
    newest = Path(stack.store.url) / "step_4"
    (weights,) = (newest / "policy").glob("mp_rank_*model_states.pt")
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    said: list[str] = []
    checkpoint = stack.store.newest(said.append)
    assert checkpoint is not None and checkpoint.step == 3
    assert len(said) == 1 and f"policy/{weights.name} is damaged" in said[0]
    assert stack.train(checkpoint) == {4: whole[4]}
    assert stack.train(stack.store.open(1)) == {step: whole[step] for step in (2, 3, 4)}
    assert stack.store.newest(_must_be_silent).step == 4  # the damaged one was written again


def test_a_checkpoint_is_exported_on_demand(
    stack: Stack, whole: dict[int, Record], tmp_path: Path
) -> None:
    trained = tmp_path / "trained"
    stack.train(stack.store.open(4))  # no step is left: the workers are where the run ended
    stack.workers.learner.call("save_pretrained", str(trained))
    output = tmp_path / "exported"
    command = [sys.executable, str(ROOT / "launch" / "export.py"), "--checkpoint", stack.store.url]
    for expected in (0, 2):  # the second time, the folder is not empty
        result = subprocess.run(
            [*command, "--output", str(output)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert result.returncode == expected, result.stderr
    assert f"error: --output {output} is not empty" in result.stderr
    load = AutoModelForImageTextToText.from_pretrained
    ours, theirs = load(output).state_dict(), load(trained).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    beside = export_beside.remote(f"{stack.store.url}/step_4", stack.config, 4, whole[4])
    assert "hf/model.safetensors" in ray.get(beside, timeout=120)
    assert AutoProcessor.from_pretrained(output).chat_template
    assert f"{whole[4]['eval/accuracy']:g}" in (output / "README.md").read_text()
    assert (output / "generation_config.json").exists()


@pytest.mark.slow
def test_vllm_runs_an_export_with_the_policys_log_probs(
    stack: Stack, whole: dict[int, Record], tmp_path: Path
) -> None:
    exported = tmp_path / "exported"
    export_checkpoint(stack.store.open(4), exported)
    stack.train(stack.store.open(4))  # no step is left: the learner is where the run ended
    model = stack.resolved.model.model_copy(update={"pretrain": str(exported)})
    config = stack.resolved.model_copy(update={"model": model})
    inputs = stack.inputs
    generator = Generator.options(
        num_cpus=0, runtime_env={"env_vars": engine_environment(config)}
    ).remote(config, inputs.sampling.forbidden_token_ids, inputs.max_images)
    prompt, answer = inputs.train_prompts[0], [*inputs.canary_answer, inputs.stop_token_id]
    theirs = ray.get(generator.score_prompt.remote(prompt, answer), timeout=300)
    group = ray.get(generator.encode_prompt.remote(prompt, answer), timeout=300)
    (ours,) = stack.workers.learner.call("log_probs", [group], Sampling())
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    ray.get(generator.stop.remote(), timeout=30)
    ray.kill(generator)


class _Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self._trace),)


def test_a_checkpoint_that_would_run_something_is_refused(
    stack: Stack, whole: dict[int, Record], tmp_path: Path
) -> None:
    """Even if its manifest fits: whoever can change a file can change that as well."""
    checkpoint = stack.store.open(4)
    shutil.copytree(checkpoint.storage.url, tmp_path / "copy")
    copy = Storage(str(tmp_path / "copy"))
    parts = (name for name in checkpoint.manifest.files if name.startswith(f"{POLICY}/"))
    (name,) = (name for name in parts if name.endswith("model_states.pt"))
    data = state_to_bytes({"module": _Malicious(tmp_path / "trace")}).tobytes()
    files = {**checkpoint.manifest.files, name: copy.write(name, data)}
    source = SnapshotSource(copy.url, files, checkpoint.manifest.signatures[POLICY])
    with pytest.raises(UserError, match=rf"{name} .* is refused.*more than data"):
        stack.workers.learner.call("restore", source)
    copy.write(MANIFEST, replace(checkpoint.manifest, files=files).to_bytes())
    with pytest.raises(UserError, match=r"is refused.*more than data"):
        export_checkpoint(checkpoint_at(copy.url, _must_be_silent), tmp_path / "exported")
    assert not (tmp_path / "trace").exists()


def _kill(role: str) -> None:
    """Kill the process of an actor class, without a warning."""
    (process,) = called(psutil.Process().children(recursive=True), f"ray::{role}")
    process.kill()


@pytest.mark.parametrize(
    "roles",
    [["RewardWorker"], pytest.param(["Generator", "ReferenceWorker"], marks=pytest.mark.slow)],
)
def test_workers_without_a_state_of_their_own_are_replaced_in_mid_run(
    stack: Stack, whole: dict[int, Record], roles: list[str]
) -> None:
    """The generator loads the current weights before it samples what the dead one had to."""
    said: list[str] = []

    def kill(step: int) -> None:
        if step == 3:
            for role in roles:
                _kill(role)

    records = stack.train(stack.store.open(2), after_step=kill, messages=said.append)
    assert records == {step: whole[step] for step in (3, 4)}
    assert len([text for text in said if text.endswith("died")]) == len(roles)
    assert len([text for text in said if text.endswith("is started again")]) == len(roles)


def test_a_lost_learner_is_replaced_and_the_others_are_kept(
    stack: Stack, whole: dict[int, Record]
) -> None:
    def kill(step: int) -> None:
        if step == 3:
            _kill("PolicyLearner")

    before = {role: group.actors[0] for role, group in stack.workers.by_role().items()}
    with pytest.raises(WorkerDied, match="the learner"):
        stack.train(stack.store.open(2), after_step=kill)
    silence = stack.config.recovery.heartbeat_timeout
    assert repair(stack.workers, silence, from_start=False) == ["learner 0"]
    after = {role: group.actors[0] for role, group in stack.workers.by_role().items()}
    assert [role for role in before if before[role] != after[role]] == ["learner"]
    assert stack.train(stack.store.open(2)) == {step: whole[step] for step in (3, 4)}
