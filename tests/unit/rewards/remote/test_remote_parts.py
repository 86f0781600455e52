"""The parts of the client: waiting, batches, the cache, figures, and what servers have."""

import asyncio
import random
from dataclasses import replace

import pytest
from reward_samples import image, sample, samples

from lightrft_ray.rewards.remote.backoff import full_jitter
from lightrft_ray.rewards.remote.batches import plan_batches
from lightrft_ray.rewards.remote.cache import ScoreCache
from lightrft_ray.rewards.remote.endpoints import Endpoints
from lightrft_ray.rewards.remote.faults import FaultKind, RemoteFault
from lightrft_ray.rewards.remote.media_ledger import MediaLedger
from lightrft_ray.rewards.remote.statistics import RemoteStatistics
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore, failed

_PLENTY = 10**9


def test_waits_are_uniform_below_a_doubling_and_capped_limit() -> None:
    rng = random.Random(0)
    for attempt, limit in ((1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (5000, 3.0)):
        waits = [full_jitter(attempt, 0.5, 3.0, rng) for _ in range(2000)]
        assert 0 <= min(waits) < 0.01 * limit
        assert 0.99 * limit < max(waits) <= limit
        assert sum(waits) / len(waits) == pytest.approx(limit / 2, rel=0.05)


def _ids(batches: list[list[RewardSample]]) -> list[list[str]]:
    return [[each.sample_id for each in batch] for batch in batches]


def test_batches_have_at_most_so_many_samples_and_lose_none() -> None:
    batches = plan_batches(samples(10), 4, _PLENTY, shares_media=True)
    assert list(map(len, batches)) == [4, 4, 2]
    assert [each.sample_id for batch in batches for each in batch] == [f"s{i}" for i in range(10)]
    assert plan_batches([], 4, _PLENTY, shares_media=True) == []


def test_samples_of_one_image_stay_together() -> None:
    group = [sample(f"{name}{index}", images=[image(name)]) for name in "ab" for index in range(3)]
    assert _ids(plan_batches(group, 5, _PLENTY, shares_media=True)) == [
        ["a0", "a1", "a2"],
        ["b0", "b1", "b2"],
    ]
    assert list(map(len, plan_batches(group, 2, _PLENTY, shares_media=True))) == [2, 1, 2, 1]


def test_an_image_counts_once_where_it_travels_once() -> None:
    group = [sample(f"s{index}", images=[image("x" * 5000)]) for index in range(4)]
    assert list(map(len, plan_batches(group, 9, 9000, shares_media=True))) == [4]
    # 5,000 bytes are 6,668 in base64.
    assert list(map(len, plan_batches(group, 9, 9000, shares_media=False))) == [1, 1, 1, 1]


def test_a_sample_over_the_limit_travels_alone() -> None:
    mixed = [sample("a"), sample("b", images=[image("x" * 5000)]), sample("c")]
    assert _ids(plan_batches(mixed, 9, 1500, shares_media=True)) == [["a"], ["b"], ["c"]]


def test_the_cache_finds_equal_content_under_another_id() -> None:
    cache = ScoreCache(10)
    cache.keep(sample("a"), SampleScore("a", 0.5, {"part": 1.0}))
    assert cache.find(sample("b")) == SampleScore("b", 0.5, {"part": 1.0})
    for change in (
        {"response": "2"},
        {"reference": "2"},
        {"label": "other"},
        {"prompt": "How few?"},
        {"response_token_ids": [5, 7]},
        {"messages": []},
        {"images": (image("a"),)},
        {"videos": (image("a"),)},
    ):
        assert cache.find(replace(sample("b"), **change)) is None, change


def test_the_cache_keeps_no_failures_and_lets_go_of_the_least_used() -> None:
    cache = ScoreCache(2)
    cache.keep(sample("a"), failed("a", "no reward"))
    assert cache.find(sample("a")) is None
    for response in ("1", "2"):
        cache.keep(sample("a", response), SampleScore("a", float(response)))
    assert cache.find(sample("a", "1")) is not None
    cache.keep(sample("a", "3"), SampleScore("a", 3.0))
    assert [cache.find(sample("a", each)) is None for each in "123"] == [False, True, False]


def test_the_type_of_media_is_part_of_their_identity() -> None:
    png, jpeg = EncodedMedia(b"x", "image/png"), EncodedMedia(b"x", "image/jpeg")
    assert png.content_id != jpeg.content_id
    # printf 'image/png\0x' | sha256sum
    assert png.content_id == "6c557d485e0696130683fe2c5d808f66ed4b1f55f79164cc98fb2a274825c048"


def test_figures_are_none_before_anything_and_nearest_ranks_after() -> None:
    statistics = RemoteStatistics()
    assert statistics.figures().latency_p99 is None
    assert statistics.figures().failed_fraction == 0
    for milliseconds in range(1, 101):
        statistics.count_request(milliseconds / 1000, None)
    statistics.count_request(99, "broken")
    statistics.count_scores([SampleScore("a", 1.0), failed("b", "why"), SampleScore("c", 0.0)])
    figures = statistics.figures()
    assert (figures.latency_p50, figures.latency_p95, figures.latency_p99) == (0.05, 0.095, 0.099)
    assert (figures.requests, figures.failed_requests, figures.last_error) == (101, 1, "why")
    assert figures.failed_fraction == pytest.approx(1 / 3)


def test_media_are_claimed_once_and_again_if_they_did_not_arrive() -> None:
    async def story() -> None:
        ledger = MediaLedger()
        assert await ledger.claim(["a", "b"]) == {"a", "b"}
        waiting = asyncio.create_task(ledger.claim(["b", "c"]))
        await asyncio.sleep(0)
        assert not waiting.done()
        ledger.settle(["a", "b"], arrived=False)
        assert await waiting == {"b", "c"}
        ledger.settle(["b", "c"], arrived=True)
        assert await ledger.claim(["a", "b", "c"]) == {"a"}
        ledger.forget(["c", "unknown"])
        assert await ledger.claim(["c"]) == {"c"}

    asyncio.run(story())


def _fault(kind: FaultKind, message: str = "broken") -> RemoteFault:
    return RemoteFault(kind, message)


def test_requests_go_to_the_least_busy_server_in_turn() -> None:
    async def story() -> None:
        endpoints = Endpoints(["a", "b", "c"], 2, 10)
        first = [await endpoints.acquire() for _ in range(3)]
        assert [each.address for each in first] == ["a", "b", "c"]
        endpoints.release(first[1], None)
        assert (await endpoints.acquire()).address == "b"
        assert [(await endpoints.acquire()).address for _ in range(3)] == ["a", "c", "b"]

    asyncio.run(story())


def test_a_server_that_failed_is_avoided_and_then_left_alone() -> None:
    async def story() -> None:
        now = 0.0
        endpoints = Endpoints(["a", "b"], 2, 10, clock=lambda: now)
        a = await endpoints.acquire()
        endpoints.release(a, _fault(FaultKind.TRANSIENT))
        b = await endpoints.acquire(avoid=a)
        assert b.address == "b"
        endpoints.release(b, _fault(FaultKind.BUSY))
        again = await endpoints.acquire(avoid=b)
        assert again is a
        endpoints.release(a, _fault(FaultKind.TRANSIENT))
        assert [(await endpoints.acquire()).address for _ in range(3)] == ["b", "b", "b"]
        now = 10.0
        assert (await endpoints.acquire()).address == "a"

    asyncio.run(story())


def test_who_waits_for_a_probe_goes_on_when_it_succeeds() -> None:
    async def story() -> None:
        endpoints = Endpoints(["a"], 1, 0.02)
        a = await endpoints.acquire()
        endpoints.release(a, _fault(FaultKind.TRANSIENT))
        probe = await endpoints.acquire()  # after 20 ms
        others = [asyncio.create_task(endpoints.acquire()) for _ in range(3)]
        await asyncio.sleep(0.03)
        assert not any(each.done() for each in others)
        endpoints.release(probe, None)
        async with asyncio.timeout(1):
            assert [each.address for each in await asyncio.gather(*others)] == ["a"] * 3

    asyncio.run(story())


def test_where_all_refuse_nobody_waits() -> None:
    async def story() -> None:
        endpoints = Endpoints(["a", "b"], 5, 1000)
        for _ in range(2):
            endpoints.release(await endpoints.acquire(), _fault(FaultKind.REFUSED, "wrong token"))
        with pytest.raises(RemoteFault, match="wrong token"):
            await endpoints.acquire()

    asyncio.run(story())


def test_a_score_is_a_number_or_an_error() -> None:
    for arguments in ((None,), (1.0, {}, None, None, "why"), (float("nan"),), (1.0, {"a": 1e999})):
        with pytest.raises(ValueError, match="sample a: a score"):
            SampleScore("a", *arguments)
