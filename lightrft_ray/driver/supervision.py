"""Training in attempts: when a worker dies, all go on from the last checkpoint."""

import time
from dataclasses import dataclass
from pathlib import Path

from lightrft_ray.config import RunConfig, WorkerDied
from lightrft_ray.driver.checkpoint_store import Checkpoint, CheckpointStore
from lightrft_ray.driver.checkpointer import Checkpointer
from lightrft_ray.driver.export import write_companions
from lightrft_ray.driver.heartbeat import Heartbeats
from lightrft_ray.driver.loop import Record, TrainingLoop
from lightrft_ray.driver.model_card import model_card
from lightrft_ray.driver.observer import Observer
from lightrft_ray.driver.placement import Placement, placed, role_demands
from lightrft_ray.driver.preflight import RunInputs
from lightrft_ray.driver.ray_session import RaySession
from lightrft_ray.driver.repair import repair
from lightrft_ray.driver.restart_budget import RestartBudget
from lightrft_ray.driver.revival import Reviver
from lightrft_ray.driver.run_log import RunLog
from lightrft_ray.driver.workers import Workers, start_workers
from lightrft_ray.observe.alarms import Alarms
from lightrft_ray.observe.progress import Progress
from lightrft_ray.observe.run_folder import RunFolder


@dataclass(frozen=True)
class RunSetup:
    """A run's configuration as given and with its checkpoints' folders, its inputs and places."""

    config: RunConfig
    resolved: RunConfig
    inputs: RunInputs
    store: CheckpointStore
    log: RunLog
    progress: Progress
    alarms: Alarms
    run_id: str


class Supervisor:
    """Starts workers and trains, again and again while workers die and the budget lasts.

    State that the learner or the critic lost is that of the last checkpoint, and so the prompts'
    cursor and the metrics go back to it: a synchronous run goes on as if nothing had happened.
    Workers that live are kept, unless a node was lost: then all are placed on what is left.
    """

    def __init__(self, setup: RunSetup, session: RaySession) -> None:
        self._setup = setup
        self._session = session
        self._budget = RestartBudget(setup.config.recovery)
        self._origin: Checkpoint | None = None
        self.started: float | None = None
        """When the workers were ready for the first time, by time.monotonic()."""

    def train(self, resumed: Checkpoint | None) -> Record:
        """Train to the end and save the policy; the latest value of each metric.

        Raises WorkerDied when a worker died and the budget is spent.
        """
        self._origin = resumed
        while True:
            try:
                return self._place_and_run(resumed)
            except WorkerDied as death:
                resumed = self._go_back(death)

    def _place_and_run(self, resumed: Checkpoint | None) -> Record:
        setup = self._setup
        demands = role_demands(setup.resolved)
        is_local, say = self._session.is_local, setup.progress.message
        with placed(setup.resolved, demands, is_local=is_local, say=say) as placement:
            workers = start_workers(
                setup.resolved, setup.inputs, demands, placement, run_id=setup.run_id
            )
            try:
                self.started = self.started or time.monotonic()
                return self._run_repaired(workers, placement, resumed)
            finally:
                workers.stop()

    def _run_repaired(
        self, workers: Workers, placement: Placement, resumed: Checkpoint | None
    ) -> Record:
        """Run, and again with the lost workers replaced, as long as all nodes are there."""
        while True:
            try:
                return self._run(workers, resumed)
            except WorkerDied as death:
                if not placement.has_all_nodes():
                    raise
                resumed = self._go_back(death)
                silence = self._setup.config.recovery.heartbeat_timeout
                replaced = repair(workers, silence, from_start=resumed is None)
                self._setup.progress.message(f"started again: {', '.join(replaced)}")

    def _run(self, workers: Workers, resumed: Checkpoint | None) -> Record:
        setup = self._setup
        checkpointer = Checkpointer(setup.config, setup.store, workers)
        observer = Observer(setup.resolved, workers, setup.log)
        loop = TrainingLoop(
            setup.resolved,
            setup.inputs,
            workers,
            checkpointer,
            self._session.interruption,
            observer=observer,
        )

        def report(record: Record) -> None:
            with observer.costing():
                self._report(record)

        say = setup.progress.message
        try:
            with Heartbeats(workers.by_role(), setup.config.recovery, say) as heartbeats:
                Reviver(workers, loop.publisher, self._budget, heartbeats, say)
                loop.run(report, resumed)
        except KeyboardInterrupt:
            if checkpointer.last_step is not None:
                setup.progress.message(
                    f"saved after step {checkpointer.last_step}; --resume auto goes on from it"
                )
            raise
        self._save_policy(workers, loop.results)
        return loop.results

    def _report(self, record: Record) -> None:
        record = record | {"failures/restarts": self._budget.restarts}
        self._setup.log.metrics.log(record)
        self._setup.progress.update(record)
        for text in self._setup.alarms.read(record):
            self._setup.progress.message(f"step {record['step']:.0f}: {text}")
        self._budget.progress(int(record["step"]))

    def _go_back(self, death: WorkerDied) -> Checkpoint | None:
        """Be where the last checkpoint was taken, or where the run began.

        Raises the death where no restart is left, or the run is to end.
        """
        # What cannot even start would not start the next time, either.
        is_over = self._session.interruption.requested or self.started is None
        delay = None if is_over else self._budget.spend()
        if delay is None:
            raise death
        progress = self._setup.progress
        checkpoint = self._setup.store.newest(progress.message) or self._origin
        step = -1 if checkpoint is None else checkpoint.step
        place = "the beginning" if checkpoint is None else f"step {step}"
        progress.message(f"{death}; the run goes on from {place}")
        self._setup.log.rewind(step)
        time.sleep(delay)
        return checkpoint

    def _save_policy(self, workers: Workers, results: Record) -> None:
        """The policy as a Hugging Face folder, with all that belongs to it."""
        setup = self._setup
        folder = RunFolder(Path(setup.config.output_dir)).checkpoint
        workers.learner.call("save_pretrained", str(folder.resolve()))
        write_companions(setup.resolved, folder)
        card = model_card(setup.config, setup.config.trainer.num_steps, results)
        (folder / "README.md").write_text(card, encoding="utf-8")
