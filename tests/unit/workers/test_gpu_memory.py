"""GPU memory of phases: what is noted of it, and on a GPU, that it is the phase's own."""

import pytest
import torch

from lightrft_ray.driver.observer import memory_by_phase
from lightrft_ray.observe.names import METRICS
from lightrft_ray.workers.activity import Activity, WorkDone
from lightrft_ray.workers.gpu_memory import EngineGpus, OwnTensors


class _Gpu:
    """A GPU whose phases take what the list says, in turn."""

    def __init__(self, taken: list[float]) -> None:
        self._taken = taken
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def end_mb(self) -> float:
        return self._taken[self.begun - 1]


def _phases(activity: Activity, *names: str) -> WorkDone:
    for name in names:
        with activity.phase(name):
            pass
    return activity.fetch()


def test_the_most_that_a_phase_took_is_noted_until_it_is_fetched() -> None:
    activity = Activity(_Gpu([5.0, 9.0, 7.0, 1.0]))
    assert _phases(activity, "score", "train", "train").gpu_mb == {"score": 5.0, "train": 9.0}
    assert _phases(activity, "train").gpu_mb == {"train": 1.0}


def test_a_phase_that_fails_is_noted() -> None:
    activity = Activity(_Gpu([5.0]))
    with pytest.raises(ValueError, match="no"), activity.phase("train"):
        raise ValueError("no")
    assert activity.fetch().gpu_mb == {"train": 5.0}


def test_what_came_late_joins_what_came_before() -> None:
    first, later = WorkDone((), {}, {"train": 5.0, "save": 1.0}), WorkDone((), {}, {"train": 3.0})
    assert first.joined(later).gpu_mb == {"train": 5.0, "save": 1.0}


def test_the_record_has_the_largest_worker_of_a_kind_by_documented_names() -> None:
    done = {
        "learner/0": WorkDone((), {"train": 900.0}, {"train": 20e3}),
        "learner/1": WorkDone((), {}, {"train": 21e3, "publish": 9e3}),
        "reward_model.judge/0": WorkDone((), {}, {"score": 70e3}),
        "generator/0": WorkDone((), {}, {"generate": 72e3}),
    }
    record = memory_by_phase(done)
    assert record == {
        "memory/learner/train_mb": 900.0,
        "memory/learner/train_gpu_mb": 21e3,
        "memory/learner/publish_gpu_mb": 9e3,
        "memory/reward_model/score_gpu_mb": 70e3,
        "memory/generator/generate_gpu_mb": 72e3,
    }
    assert record.keys() <= METRICS.keys()


@pytest.mark.parametrize("gpu", [OwnTensors(), EngineGpus(uses_gpu=False)])
def test_a_worker_without_a_gpu_has_none_of_it(gpu: OwnTensors | EngineGpus) -> None:
    assert _phases(Activity(gpu), "train").gpu_mb == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_phase_has_the_peak_of_its_own_tensors() -> None:
    torch.cuda.init()
    activity, kept = Activity(), torch.empty(10_000_000, dtype=torch.uint8, device="cuda")
    with activity.phase("train"):
        del kept
        torch.empty(300_000_000, dtype=torch.uint8, device="cuda")
    with activity.phase("publish"):
        torch.empty(50_000_000, dtype=torch.uint8, device="cuda")
    taken = activity.fetch().gpu_mb
    assert taken["train"] == pytest.approx(300, abs=15)
    assert taken["publish"] == pytest.approx(50, abs=15)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_engines_gpu_is_read_with_what_other_processes_hold() -> None:
    pytest.importorskip("pynvml")
    gpu = EngineGpus(uses_gpu=True)
    before = gpu.end_mb()
    held = torch.empty(300_000_000, dtype=torch.uint8, device="cuda")
    after = gpu.end_mb()
    assert before is not None and after is not None
    assert after - before > 0.9 * held.nbytes / 1e6
