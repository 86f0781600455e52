"""A whole run: checks, Ray, workers, the loop, and what it leaves behind."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightrft_ray.config import RunConfig
from lightrft_ray.config.advice import warnings
from lightrft_ray.config.load import dump_config
from lightrft_ray.driver.checkpoint_store import CheckpointStore
from lightrft_ray.driver.checkpointer import Checkpointer
from lightrft_ray.driver.evaluation import Evaluator
from lightrft_ray.driver.export import export_checkpoint, write_companions
from lightrft_ray.driver.interruption import Interruption
from lightrft_ray.driver.loop import Record, TrainingLoop
from lightrft_ray.driver.model_card import model_card
from lightrft_ray.driver.placement import Placement, RoleDemand, role_demands
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import RaySession, ray_session
from lightrft_ray.driver.resume import ResumePoint, checkpoint_at, find_resume_point
from lightrft_ray.driver.workers import Workers, start_evaluation_workers, start_workers
from lightrft_ray.observe.metrics_log import MetricsLog, read_metrics
from lightrft_ray.observe.plots import plot_curves
from lightrft_ray.observe.progress import Progress
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.summary import Summary, build_summary, write_summary


def run(config: RunConfig) -> tuple[RunFolder, Summary]:
    """Train by `config`; returns the run's folder and its summary.

    Raises UserError for what the user must change, before any model is loaded where it can be
    known then, and InfrastructureError where a process or transport failed. Whatever happens, no
    process of the run is left.
    """
    start = time.monotonic()
    resolved = resolve_checkpoints(config)
    inputs = check_inputs(resolved)
    store = CheckpointStore(config.checkpoint_url)
    notes: list[str] = [f"warning: {text}" for text in warnings(config)]
    resumed = find_resume_point(config, store, notes.append)
    # Only now: an earlier run must not be removed for one that cannot start.
    folder = _open_folder(config, store, resumed)
    folder.config.write_text(dump_config(config), encoding="utf-8")
    with (
        Progress(config.trainer.num_steps, config.logging.progress) as progress,
        _metrics_log(config, folder, resumed, progress) as log,
    ):
        for text in notes:
            progress.message(text)
        progress.phase("starting Ray and the workers (vLLM takes about a minute on two cores)")
        with _workers(resolved, inputs) as (workers, interruption):
            seconds_setup = time.monotonic() - start
            interruption.report = progress.message
            checkpointer = Checkpointer(config, store, workers)
            loop = TrainingLoop(resolved, inputs, workers, checkpointer, interruption)
            _train(loop, resumed, log, progress)
            _save_policy(config, resolved, workers, loop.results, folder.checkpoint)
    summary = build_summary(
        read_metrics(folder.metrics),
        algorithm=config.algorithm.advantage_estimator,
        seconds_total=time.monotonic() - start,
        seconds_setup=seconds_setup,
    )
    write_summary(summary, folder.summary)
    plot_curves(folder.metrics, folder.curves)
    return folder, summary


def _open_folder(
    config: RunConfig, store: CheckpointStore, resumed: ResumePoint | None
) -> RunFolder:
    """The run's folder and its checkpoints' place, ready to be written."""
    goes_on = config.checkpoint.resume == "auto" or (resumed is not None and resumed.is_own)
    if goes_on:
        folder = RunFolder.reopen(config.output_dir)
    else:
        folder = RunFolder.create(config.output_dir, config.overwrite_output)
    own = resumed.checkpoint.step if resumed is not None and resumed.is_own else None
    store.begin(own, overwrite=config.overwrite_output)
    return folder


def _metrics_log(
    config: RunConfig, folder: RunFolder, resumed: ResumePoint | None, progress: Progress
) -> MetricsLog:
    after_step = -1 if resumed is None else resumed.checkpoint.step
    if resumed is not None:
        progress.message(f"resumed from {resumed.checkpoint.storage.url}")
    elif folder.metrics.exists():
        progress.message(f"there is no checkpoint in {config.checkpoint_url}: starting anew")
    return MetricsLog(
        folder.path, config.logging.use_tensorboard, progress.message, after_step=after_step
    )


def evaluate(config: RunConfig) -> tuple[Path, dict[str, float]]:
    """Evaluate a checkpoint's policy, or the one to train; the file with its metrics, and those.

    Errors are those of `run`. Nothing but evaluation.json is written to `output_dir`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        step, judged = _policy_to_evaluate(config, Path(scratch) / "policy")
        resolved = resolve_checkpoints(judged)
        inputs = check_inputs(resolved)
        file = RunFolder.reopen(config.output_dir).path / "evaluation.json"
        demands = [d for d in role_demands(resolved) if d.role in ("generator", "reward")]
        with ray_session() as session, _placed(resolved, demands, session) as placement:
            workers = start_evaluation_workers(resolved, inputs, demands, placement)
            try:
                evaluator = Evaluator(resolved, inputs, workers.generator, workers.reward)
                record = {"step": float(step), **evaluator.evaluate()}
            finally:
                workers.stop()
    file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return file, record


def _policy_to_evaluate(config: RunConfig, folder: Path) -> tuple[int, RunConfig]:
    """The step that the policy is of, and the configuration with it as model.pretrain."""
    wish = config.checkpoint.resume
    if wish == "never":
        return 0, config
    place = config.checkpoint_url if wish == "auto" else wish
    checkpoint = checkpoint_at(place, print)
    export_checkpoint(checkpoint, folder)
    model = config.model.model_copy(update={"pretrain": str(folder)})
    return checkpoint.step, config.model_copy(update={"model": model})


@contextmanager
def _placed(
    config: RunConfig, demands: list[RoleDemand], session: RaySession
) -> Iterator[Placement]:
    timeout = config.placement.placement_timeout
    placement = Placement(demands, timeout, is_local=session.is_local)
    try:
        yield placement
    finally:
        placement.close()


@contextmanager
def _workers(config: RunConfig, inputs: RunInputs) -> Iterator[tuple[Workers, Interruption]]:
    """The run's workers; they and a local Ray are gone afterwards."""
    demands = role_demands(config)
    with ray_session() as session, _placed(config, demands, session) as placement:
        workers = start_workers(config, inputs, demands, placement)
        try:
            yield workers, session.interruption
        finally:
            workers.stop()


def _train(
    loop: TrainingLoop, resumed: ResumePoint | None, log: MetricsLog, progress: Progress
) -> None:
    def report(record: Record) -> None:
        log.log(record)
        progress.update(record)

    try:
        loop.run(report, None if resumed is None else resumed.checkpoint)
    except KeyboardInterrupt:
        if loop.last_saved is not None:
            progress.message(f"saved after step {loop.last_saved}; --resume auto goes on from it")
        raise


def _save_policy(
    config: RunConfig, resolved: RunConfig, workers: Workers, results: Record, folder: Path
) -> None:
    """The policy as a Hugging Face folder, with all that belongs to it."""
    workers.learner.call("save_pretrained", str(folder.resolve()))
    write_companions(resolved, folder)
    card = model_card(config, config.trainer.num_steps, results)
    (folder / "README.md").write_text(card, encoding="utf-8")
