"""What workers note of their own work."""

import asyncio
import inspect
import time
from typing import Any

import pytest

from lightrft_ray.workers.activity import Activity, WorkDone, noted
from lightrft_ray.workers.critic import CriticLearner
from lightrft_ray.workers.learner import PolicyLearner


class _Worker:
    def __init__(self) -> None:
        self._activity = Activity()

    @noted("train")
    def train(self, count: int) -> int:
        """Train."""
        time.sleep(0.02)
        if count < 0:
            raise ValueError("fewer than none")
        return count

    @noted("generate")
    async def generate(self) -> str:
        await asyncio.sleep(0.02)
        return "text"


def test_calls_are_noted_with_their_times_and_fetched_once() -> None:
    worker = _Worker()
    before = time.time()
    assert worker.train(3) == 3
    assert asyncio.run(worker.generate()) == "text"
    done = worker._activity.fetch()
    assert [phase for phase, _, _ in done.spans] == ["train", "generate"]
    for _, start, end in done.spans:
        assert before <= start <= end - 0.02 <= time.time()
    assert done.memory_mb.keys() == {"train", "generate"}
    assert all(10 < mb < 1e6 for mb in done.memory_mb.values())
    assert worker._activity.fetch() == WorkDone((), {})


def test_memory_is_looked_at_now_and_then() -> None:
    worker = _Worker()
    worker.train(1)
    worker._activity.fetch()
    worker.train(1)
    assert worker._activity.fetch().memory_mb == {}


def test_a_call_that_fails_is_noted() -> None:
    worker = _Worker()
    with pytest.raises(ValueError, match="fewer"):
        worker.train(-1)
    assert len(worker._activity.fetch().spans) == 1


def test_a_noted_method_keeps_its_signature_and_kind() -> None:
    """Ray looks at both."""
    assert list(inspect.signature(_Worker.train).parameters) == ["self", "count"]
    assert inspect.iscoroutinefunction(_Worker.generate)
    assert not inspect.iscoroutinefunction(_Worker.train)
    assert _Worker.train.__doc__ == "Train."


@pytest.mark.parametrize("worker", [PolicyLearner, CriticLearner])
def test_what_ray_knows_of_a_noted_method_is_kept(worker: Any) -> None:
    metadata = worker.__ray_metadata__.method_meta
    assert metadata.num_returns["snapshot"] == 2
    assert "batches" in str(metadata.signatures["train"])


def test_spans_that_nobody_fetches_do_not_pile_up() -> None:
    activity = Activity()
    for _ in range(1500):
        with activity.phase("score"):
            pass
    assert len(activity.fetch().spans) == 1000


def test_what_came_late_joins_what_came_before() -> None:
    first = WorkDone((("train", 1.0, 2.0),), {"train": 5.0})
    later = WorkDone((("save", 2.0, 3.0),), {"save": 6.0})
    assert first.joined(later) == WorkDone(
        (("train", 1.0, 2.0), ("save", 2.0, 3.0)), {"train": 5.0, "save": 6.0}
    )
