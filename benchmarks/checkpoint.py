"""What saving costs the training path: asynchronous writing against a save that is waited for.

The embedded digits task, a checkpoint after every step. Both copy the state to host memory; the
alternative then waits until the files are on the disk, as `save_checkpoint` of a trainer does. The
last line is a JSON object: `save_fraction` is the time that the training path spends on saving, by
the time of a step of a run that saves nothing; `step_ratio` compares whole steps, in which the
writers take their share of the cores.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.driver.checkpoint_store import CheckpointStore
from lightrft_ray.driver.checkpointer import Checkpointer
from lightrft_ray.driver.loop import Record, TrainingLoop
from lightrft_ray.driver.observer import Observer
from lightrft_ray.driver.placement import placed, role_demands
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import RaySession, ray_session
from lightrft_ray.driver.run_log import open_run_log
from lightrft_ray.driver.workers import Workers, start_workers
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.run_identity import identify

_WARM_UP = 3  # steps left out: threads, allocators and caches settle


class _WaitingCheckpointer(Checkpointer):
    """Begins no step before a checkpoint is written."""

    def __init__(self, config: RunConfig, store: CheckpointStore, workers: Workers) -> None:
        super().__init__(config, store, workers)
        self.seconds: list[float] = []

    def write(self) -> None:
        """Write what was taken, to the end."""
        start = time.perf_counter()
        super().write()
        self.wait()
        self.seconds.append(time.perf_counter() - start)


@dataclass(frozen=True)
class _Stack:
    """Running workers that all measurements share."""

    config: RunConfig
    inputs: RunInputs
    workers: Workers
    session: RaySession

    def steps(self, checkpointer: Checkpointer, config: RunConfig) -> list[Record]:
        """Records of the steps after the warm-up."""
        records: list[Record] = []
        folder = RunFolder.reopen(config.output_dir)
        with open_run_log(config, folder, identify(folder.identity), print, None) as log:
            loop = TrainingLoop(
                config,
                self.inputs,
                self.workers,
                checkpointer,
                self.session.interruption,
                observer=Observer(config, self.workers, log),
            )
            loop.run(records.append)
        return records[1 + _WARM_UP :]


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder, _stack(Path(folder), steps) as stack:
        print(json.dumps(_figures(stack, Path(folder))))


def _figures(stack: _Stack, folder: Path) -> dict[str, float]:
    never, always = _saving(stack.config, every=0), _saving(stack.config, every=1)
    store = CheckpointStore(str(folder / "checkpoints"))
    without = stack.steps(Checkpointer(never, store, stack.workers), never)
    aside = stack.steps(Checkpointer(always, store, stack.workers), always)
    waiting = _WaitingCheckpointer(always, store, stack.workers)
    waited = stack.steps(waiting, always)
    step = _median(without, "time/step")
    written = statistics.median(waiting.seconds[_WARM_UP:])
    return {
        "save_fraction": _median(aside, "time/save") / step,
        "synchronous_save_fraction": (_median(waited, "time/save") + written) / step,
        "step_ratio": _median(aside, "time/step") / step,
        "seconds_per_step": step,
        "seconds_to_copy": _median(aside, "time/save"),
        "seconds_to_write": written,
        "checkpoint_mb": store.open(store.steps()[0]).manifest.size / 1e6,
    }


def _saving(config: RunConfig, *, every: int) -> RunConfig:
    checkpoint = config.checkpoint.model_copy(update={"save_steps": every})
    return config.model_copy(update={"checkpoint": checkpoint})


@contextmanager
def _stack(folder: Path, steps: int) -> Iterator[_Stack]:
    words = {"num_steps": steps, "eval_steps": 0, "eval_max_samples": 1, "output_dir": folder}
    config = resolve_checkpoints(load_config(None, [(k, str(v)) for k, v in words.items()]))
    inputs, demands = check_inputs(config), role_demands(config)
    with ray_session() as session, placed(config, demands, is_local=True) as placement:
        workers = start_workers(config, inputs, demands, placement)
        try:
            yield _Stack(config, inputs, workers, session)
        finally:
            workers.stop()


def _median(records: list[Record], name: str) -> float:
    return statistics.median(record[name] for record in records)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
