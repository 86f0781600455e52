"""The scheduler of rollouts: staleness within bounds, no deadlock, every group accounted for."""

import random
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from lightrft_ray.driver.rollout_scheduler import OverAge, RolloutScheduler, by_place


def _scheduler(
    *,
    batch: int = 2,
    k: int = 1,
    places: int = 2,
    over_age: OverAge = "wait",
    last_version: int | None = None,
    room: int | None = None,
    spare: int = 0,
) -> RolloutScheduler:
    return RolloutScheduler(
        batch_size=batch,
        max_staleness=k,
        places=places,
        over_age=over_age,
        last_version=last_version,
        room=room,
        spare=spare,
    )


def _fill(scheduler: RolloutScheduler) -> list[tuple[int, int]]:
    for _ in range(scheduler.wanted()):
        scheduler.add()
    return scheduler.assign()


def _finish(scheduler: RolloutScheduler, *numbers: int) -> None:
    for number in numbers:
        scheduler.finished(number)


def test_without_staleness_a_batch_is_begun_and_waited_for_whole() -> None:
    scheduler = _scheduler(batch=4, k=0)
    assert _fill(scheduler) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert by_place([(0, 0), (1, 1), (2, 0)]) == {0: [0, 2], 1: [1]}
    _finish(scheduler, 3, 1, 0)
    assert scheduler.take() is None
    scheduler.failed(2)
    assert _fill(scheduler) == [(4, 0)]
    _finish(scheduler, 4)
    assert scheduler.take() == [0, 1, 3, 4]
    assert scheduler.wanted() == 0
    assert scheduler.published(1) == []
    assert scheduler.wanted() == 4


def test_a_second_batch_of_one_version_needs_a_synchronous_run() -> None:
    synchronous, ahead = _scheduler(k=0), _scheduler(k=1)
    for scheduler in (synchronous, ahead):
        _finish(scheduler, *(number for number, _ in _fill(scheduler)))
        assert scheduler.take() == [0, 1]
    synchronous.draw_again()
    assert synchronous.wanted() == 2
    with pytest.raises(RuntimeError, match="max_staleness 0"):
        ahead.draw_again()


def test_generation_goes_on_while_a_batch_is_trained() -> None:
    scheduler = _scheduler(batch=2, k=1)
    assert len(_fill(scheduler)) == 4
    _finish(scheduler, 0, 1)
    assert scheduler.take() == [0, 1]
    assert _fill(scheduler) == []  # 2 and 3 are the batch of version 1
    scheduler.published(1)
    assert [number for number, _ in _fill(scheduler)] == [4, 5]


def test_the_oldest_are_trained_first_and_waited_for_in_time() -> None:
    scheduler = _scheduler(batch=1, k=2)
    _fill(scheduler)  # 0, 1 and 2, of version 0
    _finish(scheduler, 2)
    assert scheduler.take() == [2]
    scheduler.published(1)
    _fill(scheduler)
    _finish(scheduler, 3)
    # 0 and 1 are for versions 1 and 2: if 3 took this place, one of them would be late.
    assert scheduler.take() is None
    _finish(scheduler, 1)
    assert scheduler.take() == [1]
    scheduler.published(2)
    _finish(scheduler, 0)
    assert scheduler.take() == [0]


def test_groups_that_are_too_old_are_begun_anew_where_they_are_not_waited_for() -> None:
    scheduler = _scheduler(batch=1, k=1, over_age="drop")
    _fill(scheduler)
    _finish(scheduler, 1)
    assert scheduler.take() == [1]
    assert scheduler.published(1) == []
    _fill(scheduler)
    _finish(scheduler, 2)
    assert scheduler.take() == [2]
    assert scheduler.published(2) == [0]
    assert scheduler.in_flight == [0]
    assert _fill(scheduler) == [(0, 0), (3, 1)]
    _finish(scheduler, 3, 0)
    assert scheduler.take() == [0]


def test_work_goes_to_the_generator_with_the_least() -> None:
    scheduler = _scheduler(batch=3, k=1, places=3)
    assert Counter(place for _, place in _fill(scheduler)) == {0: 2, 1: 2, 2: 2}
    _finish(scheduler, 1, 4, 2)  # both of place 1, one of place 2
    assert scheduler.take() == [1, 2, 4]
    scheduler.published(1)
    assert _fill(scheduler) == [(6, 1), (7, 1), (8, 2)]


def test_work_goes_to_the_generator_with_the_fewest_tokens() -> None:
    scheduler = _scheduler(batch=6, k=0)
    for tokens in (50, 10, 20, 20, 10, 1):
        scheduler.add(tokens)
    # 50 | 10 + 20 + 20 are given out before the loads are equal; then the first place is next.
    assert by_place(scheduler.assign()) == {0: [0, 4], 1: [1, 2, 3, 5]}
    _finish(scheduler, 0)
    scheduler.failed(1)
    assert scheduler.add(5) == 6
    assert scheduler.assign() == [(6, 0)]  # 10 tokens are left there, and 41 at the other


def test_a_generator_gets_no_more_than_it_has_room_for() -> None:
    scheduler = _scheduler(batch=5, k=0, room=2)
    assert _fill(scheduler) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert scheduler.assign() == []
    _finish(scheduler, 3)
    assert scheduler.assign() == [(4, 1)]


def test_what_a_lost_generator_had_is_begun_anew_as_it_has_room() -> None:
    scheduler = _scheduler(batch=3, k=0, places=1, room=1)
    for number in range(2):
        assert _fill(scheduler) == [(number, 0)]
        _finish(scheduler, number)
    assert scheduler.lost(0) == [0, 1]
    scheduler.restored(0)
    for number in range(3):
        assert scheduler.assign() == [(number, 0)]
        _finish(scheduler, number)
    assert scheduler.take() == [0, 1, 2]


def test_spare_groups_are_begun_and_the_slowest_given_up() -> None:
    scheduler = _scheduler(batch=2, k=0, places=1, room=3, spare=2)
    assert _fill(scheduler) == [(0, 0), (1, 0), (2, 0)]
    _finish(scheduler, 2, 0)
    assert scheduler.assign() == [(3, 0)]
    assert scheduler.take() == [0, 2]
    assert scheduler.cancel_rest() == [1, 3]
    assert (scheduler.in_flight, scheduler.wanted()) == ([], 0)
    scheduler.draw_again()
    assert _fill(scheduler) == [(4, 0), (5, 0), (6, 0)]  # nothing is left of what was given up
    scheduler.cancel_rest()
    scheduler.published(1)
    assert scheduler.wanted() == 4
    with pytest.raises(ValueError, match="max_staleness 0"):
        _scheduler(k=1, spare=1)


def test_many_generators_are_served_by_load() -> None:
    """The ranking is made anew now and then; it never forgets a place."""
    chance = random.Random(1)
    scheduler = _scheduler(batch=40, k=0, places=20, room=3)
    running: dict[int, tuple[int, int]] = {}
    tokens_of = [0] * 20
    for _ in range(500):
        tokens = chance.randrange(1, 100)
        number = scheduler.add(tokens)
        counts = Counter(place for place, _ in running.values())
        fewest = min(tokens_of[place] for place in range(20) if counts[place] < 3)
        ((given, place),) = scheduler.assign()
        assert given == number and tokens_of[place] == fewest
        running[number] = place, tokens
        tokens_of[place] += tokens
        while len(running) > 50:
            ended = chance.choice(list(running))
            scheduler.failed(ended)
            place, tokens = running.pop(ended)
            tokens_of[place] -= tokens


def test_a_lost_generators_groups_wait_for_it_and_take_the_present_weights() -> None:
    scheduler = _scheduler(batch=2, k=1)
    _fill(scheduler)
    _finish(scheduler, 0, 1, 3)
    assert scheduler.lost(0) == [0, 2]
    assert scheduler.assign() == []
    assert scheduler.take() == [1, 3]
    scheduler.published(1)
    assert _fill(scheduler) == [(4, 1), (5, 1)]
    scheduler.restored(0)
    assert scheduler.assign() == [(0, 0), (2, 0)]
    _finish(scheduler, 0, 2)
    assert scheduler.take() == [0, 2]


def test_nothing_is_generated_that_is_never_trained() -> None:
    scheduler = _scheduler(batch=2, k=2, last_version=2)
    assert scheduler.wanted() == 4
    _finish(scheduler, *(number for number, _ in _fill(scheduler)))
    scheduler.take()
    scheduler.published(1)
    assert scheduler.wanted() == 0
    scheduler.take()
    assert scheduler.in_flight == []


def test_impossible_news_are_errors() -> None:
    scheduler = _scheduler()
    _fill(scheduler)
    scheduler.finished(0)
    with pytest.raises(RuntimeError, match="group 0 is ready"):
        scheduler.finished(0)
    scheduler.published(1)
    with pytest.raises(RuntimeError, match="comes after 1"):
        scheduler.published(0)
    with pytest.raises(RuntimeError, match="older than max_staleness"):
        scheduler.published(2)
    with pytest.raises(RuntimeError, match="never begun"):
        scheduler.place_of(scheduler.add())


class Pipeline:
    """A scheduler, the weights of its generators, and what became of every group."""

    def __init__(
        self,
        *,
        batch: int,
        k: int,
        places: int,
        over_age: OverAge,
        room: int | None = None,
        spare: int = 0,
    ) -> None:
        self.batch, self.k, self.room, self.spare = batch, k, room, spare
        self.scheduler = _scheduler(
            batch=batch, k=k, places=places, over_age=over_age, room=room, spare=spare
        )
        self.down: set[int] = set()
        self.running: dict[int, tuple[int, int]] = {}  # group -> place, version
        self.ready: dict[int, tuple[int, int]] = {}
        self.added = self.trained = self.failed = self.cancelled = self.steps = 0
        self.stalest = 0
        self.fill()

    def fill(self) -> None:
        for _ in range(self.scheduler.wanted()):
            self.scheduler.add(1 + self.added % 7)
            self.added += 1
        for number, place in self.scheduler.assign():
            assert place not in self.down
            assert number not in self.running and number not in self.ready
            self.running[number] = place, self.scheduler.version

    def finish(self, number: int) -> None:
        self.scheduler.finished(number)
        self.ready[number] = self.running.pop(number)

    def fail(self, number: int) -> None:
        self.scheduler.failed(number)
        del self.running[number]
        self.failed += 1
        self.fill()

    def lose(self, place: int) -> None:
        begun = self.running | self.ready
        lost = self.scheduler.lost(place)
        assert lost == sorted(number for number, (where, _) in begun.items() if where == place)
        self._forget(lost)
        self.down.add(place)

    def restore(self, place: int) -> None:
        self.scheduler.restored(place)
        self.down.remove(place)
        self.fill()

    def train(self) -> bool:
        """One step, if it need not wait."""
        batch = self.scheduler.take()
        if batch is None:
            return False
        version = self.scheduler.version
        begun = [self.ready.pop(number)[1] for number in batch]
        assert begun == sorted(begun)
        self.stalest = max(self.stalest, *(version - each for each in begun))
        self.trained += len(batch)
        self.steps += 1
        if self.spare:
            rest = self.scheduler.cancel_rest()
            self.cancelled += len(rest)
            self._forget(rest)
        self.fill()  # what has room is begun while the batch is trained, too
        self._forget(self.scheduler.published(version + 1))
        self.fill()
        return True

    def must_go_on(self) -> None:
        """With all generators up and all groups finished, nothing is waited for."""
        for place in sorted(self.down):
            self.restore(place)
        self.fill()
        while self.running:
            for number in list(self.running):
                self.finish(number)
            self.fill()
        assert self.train()

    def check(self) -> None:
        under_way = self.scheduler.in_flight
        ended = self.trained + self.failed + self.cancelled
        assert self.added == ended + len(under_way)
        assert len(under_way) <= (self.k + 1) * self.batch + self.spare
        by_place = Counter(place for place, _ in self.running.values())
        assert self.room is None or max(by_place.values(), default=0) <= self.room
        assert {*self.running, *self.ready} <= {*under_way}
        assert self.stalest <= self.k

    def _forget(self, numbers: list[int]) -> None:
        for number in numbers:
            self.running.pop(number, None)
            self.ready.pop(number, None)


class PipelineMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order."""

    @initialize(
        batch=st.integers(1, 4),
        k=st.integers(0, 3),
        places=st.integers(1, 3),
        over_age=st.sampled_from(["wait", "drop"]),
        room=st.none() | st.integers(1, 3),
        spare=st.integers(0, 2),
    )
    def begin(
        self, *, batch: int, k: int, places: int, over_age: OverAge, room: int | None, spare: int
    ) -> None:
        self.places = places
        self.pipeline = Pipeline(
            batch=batch,
            k=k,
            places=places,
            over_age=over_age,
            room=room,
            spare=0 if k else spare,
        )

    @precondition(lambda self: self.pipeline.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.pipeline.finish(data.draw(st.sampled_from(sorted(self.pipeline.running))))

    @precondition(lambda self: self.pipeline.running)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.pipeline.fail(data.draw(st.sampled_from(sorted(self.pipeline.running))))

    @rule(data=st.data())
    def lose_or_restore(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, self.places - 1))
        change = self.pipeline.restore if place in self.pipeline.down else self.pipeline.lose
        change(place)

    @rule()
    def train(self) -> None:
        self.pipeline.train()

    @rule()
    def go_on(self) -> None:
        self.pipeline.must_go_on()

    @invariant()
    def all_is_in_order(self) -> None:
        self.pipeline.check()


TestPipeline = PipelineMachine.TestCase
TestPipeline.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("over_age", ["wait", "drop"])
@pytest.mark.parametrize("k", [0, 1, 2, 4])
def test_ten_thousand_steps_of_stalls_deaths_and_restarts(k: int, over_age: OverAge) -> None:
    """Groups stall when they are never the one that finishes; 10,000 steps over all cases."""
    chance = random.Random(k)
    spare = 1 if k == 0 else 0
    pipeline = Pipeline(batch=4, k=k, places=3, over_age=over_age, room=4, spare=spare)
    stalled: set[int] = set()
    while pipeline.steps < 1250:
        _happen(pipeline, chance, stalled)
        if chance.random() < 0.001:
            pipeline.check()
    pipeline.check()
    assert pipeline.stalest == k


def _happen(pipeline: Pipeline, chance: random.Random, stalled: set[int]) -> None:
    """Something at random; groups that stall go on only when nothing else can."""
    lot = chance.random()
    running = list(pipeline.running)
    if lot < 0.02:
        place = chance.randrange(3)
        (pipeline.restore if place in pipeline.down else pipeline.lose)(place)
    elif lot < 0.03 and running:
        pipeline.fail(chance.choice(running))
    elif lot < 0.05 and running:
        stalled.add(chance.choice(running))
    elif lot < 0.5 and not pipeline.train() and not set(running) - stalled:
        stalled.clear()
        for down in sorted(pipeline.down):
            pipeline.restore(down)
    elif moving := [number for number in running if number in pipeline.running]:
        number = chance.choice(moving)
        if number not in stalled:
            pipeline.finish(number)
