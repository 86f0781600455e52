"""A whole run: checks, Ray, workers, the loop, and what it leaves behind."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightrft_ray.config import RunConfig
from lightrft_ray.config.advice import warnings
from lightrft_ray.config.load import dump_config
from lightrft_ray.data.processing import load_processor
from lightrft_ray.driver.loop import Record, TrainingLoop
from lightrft_ray.driver.placement import Placement, role_demands
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.workers import Workers, start_workers
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
    # Only now: an earlier run must not be removed for one that cannot start.
    folder = RunFolder.create(config.output_dir, config.overwrite_output)
    folder.config.write_text(dump_config(config), encoding="utf-8")
    with (
        Progress(config.trainer.num_steps, config.logging.progress) as progress,
        MetricsLog(folder.path, config.logging.use_tensorboard, progress.message) as log,
    ):
        for text in warnings(config):
            progress.message(f"warning: {text}")
        progress.phase("starting Ray and the workers (vLLM takes about a minute on two cores)")
        with _workers(resolved, inputs) as workers:
            seconds_setup = time.monotonic() - start
            _train(resolved, inputs, workers, log, progress)
            _save_checkpoint(resolved, workers, folder.checkpoint)
    summary = build_summary(
        read_metrics(folder.metrics),
        algorithm=config.algorithm.advantage_estimator,
        seconds_total=time.monotonic() - start,
        seconds_setup=seconds_setup,
    )
    write_summary(summary, folder.summary)
    plot_curves(folder.metrics, folder.curves)
    return folder, summary


@contextmanager
def _workers(config: RunConfig, inputs: RunInputs) -> Iterator[Workers]:
    """The run's workers; they and a local Ray are gone afterwards."""
    demands = role_demands(config)
    with ray_session() as is_local:
        placement = Placement(demands, config.placement.placement_timeout, is_local=is_local)
        try:
            workers = start_workers(config, inputs, demands, placement)
            try:
                yield workers
            finally:
                workers.stop()
        finally:
            placement.close()


def _train(
    config: RunConfig, inputs: RunInputs, workers: Workers, log: MetricsLog, progress: Progress
) -> None:
    def report(record: Record) -> None:
        log.log(record)
        progress.update(record)

    TrainingLoop(config, inputs, workers).run(report)


def _save_checkpoint(config: RunConfig, workers: Workers, folder: Path) -> None:
    """The policy as a Hugging Face folder, with processor and tokenizer."""
    workers.learner.call("save_pretrained", str(folder.resolve()))
    processor = load_processor(config.model.pretrain, config.model.trust_remote_code)
    processor.save_pretrained(folder)
