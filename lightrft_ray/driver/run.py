"""A whole run: checks, Ray, workers, the loop, and what it leaves behind."""

import time

from lightrft_ray.config import RunConfig
from lightrft_ray.config.advice import warnings
from lightrft_ray.config.load import dump_config
from lightrft_ray.driver.checkpoint_store import CheckpointStore
from lightrft_ray.driver.preflight import check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.resume import ResumePoint, find_resume_point
from lightrft_ray.driver.run_log import open_run_log
from lightrft_ray.driver.supervision import RunSetup, Supervisor
from lightrft_ray.observe.alarms import Alarms
from lightrft_ray.observe.metrics_log import read_metrics
from lightrft_ray.observe.plots import plot_curves
from lightrft_ray.observe.progress import Progress
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.run_identity import identify
from lightrft_ray.observe.structured_log import logged
from lightrft_ray.observe.summary import Summary, build_summary, write_summary
from lightrft_ray.observe.trackers import check_trackers
from lightrft_ray.observe.viewer.embedded import write_report


def run(config: RunConfig) -> tuple[RunFolder, Summary]:
    """Train by `config`; returns the run's folder and its summary.

    Raises UserError for what the user must change, before any model is loaded where it can be
    known then, and InfrastructureError where a process or transport failed. Whatever happens, no
    process of the run is left.
    """
    start = time.monotonic()
    check_trackers(config.logging)
    resolved = resolve_checkpoints(config)
    inputs = check_inputs(resolved)
    store = CheckpointStore(config.checkpoint_url)
    notes: list[str] = [f"warning: {text}" for text in warnings(config)]
    resumed = find_resume_point(config, store, notes.append)
    # Only now: an earlier run must not be removed for one that cannot start.
    folder = _open_folder(config, store, resumed)
    folder.config.write_text(dump_config(config), encoding="utf-8")
    identity = identify(folder.identity)
    after_step = -1 if resumed is None else resumed.checkpoint.step
    if resumed is not None:
        notes.append(f"resumed from {resumed.checkpoint.storage.url}")
    elif folder.metrics.exists():
        notes.append(f"there is no checkpoint in {config.checkpoint_url}: starting anew")
    with (
        logged(folder.log, identity.run_id, config.logging.log_level),
        Progress(config.trainer.num_steps, config.logging.progress) as progress,
    ):
        for text in notes:
            progress.message(text)
        progress.phase("starting Ray and the workers (vLLM takes about a minute on two cores)")
        with (
            ray_session() as session,
            # Closed before Ray is, which its threads ask for what they write.
            open_run_log(resolved, folder, identity, progress.message, after_step) as log,
        ):
            setup = RunSetup(
                config, resolved, inputs, store, log, progress, Alarms(), identity.run_id
            )
            supervisor = Supervisor(setup, session)
            supervisor.train(None if resumed is None else resumed.checkpoint)
    summary = build_summary(
        read_metrics(folder.metrics),
        algorithm=config.algorithm.advantage_estimator,
        seconds_total=time.monotonic() - start,
        seconds_setup=(supervisor.started or start) - start,
    )
    write_summary(summary, folder.summary)
    plot_curves(folder.metrics, folder.curves)
    write_report(folder)
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
