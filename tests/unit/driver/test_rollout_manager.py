"""The rollout manager: prompts given out, gathered, replaced, and taken up from a checkpoint."""

from collections.abc import Sequence

import numpy as np
import pytest
from rollouts import prompt, rollout_group, sample

from lightrft_ray.config import RunConfig, UserError, WorkerDied
from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.generator_pool import Results
from lightrft_ray.driver.rollout import RolloutManager
from lightrft_ray.driver.seeds import prompt_seed
from lightrft_ray.workers.messages import (
    GenerationSettings,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)

PROMPTS = [prompt(f"p{index}") for index in range(12)]


class Generators:
    """A pool in this process: jobs end in order, or die with their place."""

    def __init__(self, places: int, bad: Sequence[str] = ()) -> None:
        self._places = places
        self._bad = set(bad)
        self.jobs: dict[int, tuple[int, Sequence[PromptTask]]] = {}
        self.upcoming: dict[int, list[str]] = {}
        self.ended: list[int] = []  # those that can be told without waiting
        self.stalled: set[str] = set()
        self.dead: set[int] = set()
        self.replaced: list[int] = []

    def __len__(self) -> int:
        return self._places

    def submit(
        self,
        job: int,
        place: int,
        tasks: Sequence[PromptTask],
        settings: GenerationSettings,
        upcoming: Sequence[Prompt] = (),
    ) -> None:
        self.jobs[job] = (place, tasks)
        self.upcoming[place] = [each.id for each in upcoming]

    def wait(self, *, at_least_one: bool) -> list[int]:
        if not at_least_one:
            return [job for job in self.ended if job in self.jobs]
        for job, (place, tasks) in self.jobs.items():
            if place in self.dead or not self.stalled & {task.prompt.id for task in tasks}:
                return [job]
        raise AssertionError("nothing can end")

    def collect(self, job: int) -> Results:
        place, tasks = self.jobs[job]
        if place in self.dead:
            raise WorkerDied("the generator worker died")
        del self.jobs[job]
        return [self._result(task) for task in tasks]

    def cancel(self, job: int) -> None:
        del self.jobs[job]

    def restore(self, job: int) -> None:
        place, _ = self.jobs.pop(job)
        self.dead.remove(place)
        self.replaced.append(place)

    def _result(self, task: PromptTask) -> RolloutGroup | SkippedPrompt:
        if task.prompt.id in self._bad:
            return SkippedPrompt(task, "no such image")
        group = rollout_group(task.prompt.id, [1], [sample([2])])
        return RolloutGroup(task, np.array([1]), None, group.samples)


def _config(staleness: int, over_age: str = "wait", steps: int = 9, **rollout: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "rollout": {
                "rollout_batch_size": 2,
                "max_staleness": staleness,
                "over_age": over_age,
                **rollout,
            },
            "data": {"max_bad_fraction": 0.5},
            "trainer": {"num_steps": steps, "train_batch_size": 16, "micro_train_batch_size": 8},
        }
    )


def _manager(
    generators: Generators,
    staleness: int,
    over_age: str = "wait",
    steps: int = 9,
    **rollout: object,
) -> RolloutManager:
    config = _config(staleness, over_age, steps, **rollout)
    return RolloutManager(config, PromptSource(PROMPTS, config.seed), generators)


def _order() -> list[str]:
    return [each.id for each, _ in PromptSource(PROMPTS, 1).take(12)]


def _ids(groups: Sequence[RolloutGroup]) -> list[str]:
    return [group.task.prompt.id for group in groups]


def test_a_synchronous_batch_is_one_job_a_generator_and_nothing_is_ahead() -> None:
    generators = Generators(2)
    manager = _manager(generators, 0)
    manager.published(0)
    assert generators.jobs == {}
    assert _ids(manager.next_batch()) == _order()[:2]
    assert (manager.account.taken, manager.state_dict()["in_flight"]) == (2, [])
    assert _ids(manager.next_batch()) == _order()[2:4]  # as dynamic sampling draws
    assert "data/begun_anew" not in manager.as_record()


def test_a_generator_of_a_synchronous_run_is_told_what_it_will_be_given_next() -> None:
    generators = Generators(2, bad=[_order()[3]])
    manager = _manager(generators, 0)
    order = _order()
    assert _ids(manager.next_batch()) == order[:2]
    assert generators.upcoming == {0: [order[2]], 1: [order[3]]}
    # The second of the next batch cannot be used: a job of its own replaces it.
    assert _ids(manager.next_batch()) == [order[2], order[4]]
    assert generators.upcoming[0] == [order[5]]
    assert _ids(manager.next_batch()) == order[5:7]
    assert generators.upcoming == {0: [order[7]], 1: [order[8]]}


def test_prompts_of_coming_steps_are_given_out_when_there_are_new_weights() -> None:
    generators = Generators(2)
    manager = _manager(generators, 1, steps=3)
    manager.published(0)
    assert [place for place, _ in generators.jobs.values()] == [0, 1, 0, 1]
    seen = []
    for step in (1, 2, 3):
        seen += _ids(manager.next_batch())
        manager.account.trained += 2
        manager.published(step)
    assert seen == _order()[:6]
    assert (manager.account.taken, manager.account.in_flight) == (6, 0)
    assert generators.jobs == {}


def test_generators_get_more_as_they_have_room_while_others_are_waited_for() -> None:
    """Two prompts of 8 samples are twice the 8 sequences that a generator decodes at once."""
    generators = Generators(1)
    manager = _manager(generators, 2, vllm_max_num_seqs=8)
    manager.attend()
    assert generators.jobs == {}  # they have no weights yet
    manager.published(0)
    assert list(generators.jobs) == [1, 2]
    manager.attend()
    assert list(generators.jobs) == [1, 2]
    generators.ended.append(2)
    manager.attend()
    assert list(generators.jobs) == [1, 3]
    assert manager.account.in_flight == 6  # whether given out or not


def test_attending_leaves_the_dead_to_the_next_batch() -> None:
    generators = Generators(2)
    manager = _manager(generators, 1)
    manager.published(0)
    generators.dead.add(0)
    generators.ended.append(1)
    manager.attend()
    assert generators.replaced == []
    manager.next_batch()
    assert generators.replaced == [0]


def test_the_slowest_are_cancelled_and_counted_where_more_are_sampled() -> None:
    generators = Generators(2)
    manager = _manager(generators, 0, over_sample_rate=0.6)
    slow = _order()[1]
    generators.stalled.add(slow)
    manager.published(0)
    assert _ids(manager.next_batch()) == [_order()[0], _order()[2]]
    assert generators.jobs == {}
    account = manager.account
    assert (account.taken, account.cancelled, account.in_flight) == (4, 2, 2)
    account.trained += 2
    manager.published(1)
    assert manager.state_dict()["in_flight"] == []
    assert _ids(manager.next_batch()) == _order()[4:6]
    assert (account.taken, account.cancelled, account.in_flight) == (8, 4, 2)


@pytest.mark.parametrize("staleness", [0, 1])
def test_prompts_that_cannot_be_used_are_replaced_and_counted(staleness: int) -> None:
    generators = Generators(1, bad=_order()[1:2])
    manager = _manager(generators, staleness)
    manager.published(0)
    assert _ids(manager.next_batch()) == [_order()[0], _order()[2]]
    assert manager.account.failed == 1
    everything = Generators(1, bad=_order())
    with pytest.raises(UserError, match=r"data\.max_bad_fraction allows \(no such image"):
        _manager(everything, staleness).next_batch()


def test_what_a_dead_generator_had_is_begun_anew_with_the_same_seeds() -> None:
    generators = Generators(2)
    manager = _manager(generators, 1)
    manager.published(0)
    before = {task.prompt.id: task.seed for _, tasks in generators.jobs.values() for task in tasks}
    generators.dead.add(0)
    groups = manager.next_batch()
    assert generators.replaced == [0]
    assert {group.task.prompt.id: group.task.seed for group in groups}.items() <= before.items()
    manager.account.trained += 2
    assert manager.account.in_flight == 2


def test_prompts_that_grow_too_old_are_begun_anew_and_counted() -> None:
    generators = Generators(2)
    manager = _manager(generators, 1, over_age="drop")
    slow = _order()[0]
    generators.stalled.add(slow)
    manager.published(0)
    for step in (1, 2):
        assert slow not in _ids(manager.next_batch())
        manager.account.trained += 2
        manager.published(step)
    assert manager.as_record()["data/begun_anew"] == 1
    generators.stalled.clear()
    assert slow in _ids(manager.next_batch())


def test_a_checkpoint_brings_back_the_prompts_in_flight() -> None:
    generators = Generators(2)
    manager = _manager(generators, 2)
    manager.published(0)
    trained = _ids(manager.next_batch())
    manager.account.trained += 2
    manager.published(1)
    state = manager.state_dict()
    assert len(state["in_flight"]) == manager.account.in_flight == 6
    resumed = _manager(again := Generators(2), 2)
    resumed.load_state_dict(state)
    resumed.published(1)
    tasks = [task for _, each in again.jobs.values() for task in each]
    assert [task.prompt.id for task in tasks] == _order()[2:8]
    assert all(task.seed == prompt_seed(1, task.prompt.id, 0) for task in tasks)
    for step in (2, 3, 4):
        trained += _ids(resumed.next_batch())
        resumed.account.trained += 2
        resumed.published(step)
    assert trained == _order()[:8]
    assert resumed.account.taken == resumed.account.trained + resumed.account.in_flight
