"""All that a run writes as it goes on, opened and rewound together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.ray_gauges import RayGauges
from lightrft_ray.driver.trajectories import TrajectorySink, trajectory_sink
from lightrft_ray.observe.metrics_log import MetricsLog
from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.run_identity import RunIdentity
from lightrft_ray.observe.timeline import Timeline
from lightrft_ray.observe.trackers import TrackedRun, trackers
from lightrft_ray.observe.trajectories import remove_after


@dataclass(frozen=True)
class RunLog:
    """The step records, the timeline and the samples of a run."""

    folder: RunFolder
    metrics: MetricsLog
    timeline: Timeline
    trajectories: TrajectorySink

    def rewind(self, after_step: int) -> None:
        """Forget what was written of steps past `after_step`: it will be written again."""
        self.metrics.rewind(after_step)
        self.timeline.rewind(after_step)
        remove_after(self.folder.trajectories, after_step)

    @property
    def background_seconds(self) -> float:
        """What its threads took of a core so far."""
        return self.metrics.background_seconds + self.trajectories.cpu_seconds


@contextmanager
def open_run_log(
    config: RunConfig,
    folder: RunFolder,
    identity: RunIdentity,
    report: Callable[[str], None],
    after_step: int | None,
) -> Iterator[RunLog]:
    """Files to append to; steps past `after_step`, where it is given, are forgotten first."""
    if after_step is not None:
        remove_after(folder.trajectories, after_step)
    run = TrackedRun(identity.run_id, folder.path, config.model_dump(mode="json"))
    opened = trackers(config.logging, run)
    if config.logging.use_prometheus:
        opened["Prometheus"] = lambda: RayGauges(identity.run_id)
    metrics = MetricsLog(folder.path, opened, report, after_step)
    timeline = Timeline(folder.timeline, identity.started_at, after_step)
    trajectories = trajectory_sink(config, folder.trajectories, report)
    try:
        yield RunLog(folder, metrics, timeline, trajectories)
    finally:
        trajectories.close()
        timeline.close()
        metrics.close()
