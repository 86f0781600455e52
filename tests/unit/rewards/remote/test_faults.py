"""Services that misbehave: no reward is invented, and no sample is lost or counted twice."""

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from faulty_services import PATIENCE, Asked, faulty_grpc, faulty_http
from proxy import proxy
from reward_samples import sample, samples
from serving import LengthSource, client, reward_server

from lightrft_ray.rewards.sample import SampleScore

Faulty = Callable[[str, Asked], AbstractAsyncContextManager[str]]

_COUNT = 4
_ALL = tuple(range(_COUNT))

# Protocol, fault, requests, samples without a reward, and what their errors say.
_TABLE: list[tuple[Faulty, str, int, tuple[int, ...], str]] = [
    (faulty_grpc, "", 1, (), ""),
    (faulty_grpc, "hangs", 2, _ALL, r"no answer in 0\.7 s"),
    (faulty_grpc, "is late once", 2, (), ""),
    (faulty_grpc, "fails once", 2, (), ""),
    (faulty_grpc, "is busy once", 2, (), ""),
    (faulty_grpc, "fails inside", 2, _ALL, "UNKNOWN: .*a mistake of the service"),
    (faulty_grpc, "answers too few", 1, (0,), "it answered for 3 of 4 samples"),
    (faulty_grpc, "answers too many", 1, _ALL, "it answered for 'x', which it was not asked for"),
    (faulty_grpc, "answers twice", 1, _ALL, "it answered for 's0' twice"),
    (faulty_grpc, "answers for others", 1, _ALL, "it answered for 'somebody', which it was not"),
    (faulty_grpc, "answers NaN", 1, (0,), "a score is no finite number"),
    (faulty_grpc, "answers nothing", 1, (0,), "the answer has neither a reward nor an error"),
    (faulty_grpc, "answers too much", 1, _ALL, "RESOURCE_EXHAUSTED: .*larger than max"),
    (faulty_grpc, "speaks version 2", 1, _ALL, "it answered in version 2.0 of the reward protocol"),
    (faulty_grpc, "keeps no images", 2, _ALL, "it does not keep the images and videos it is sent"),
    (faulty_http, "", 1, (), ""),
    (faulty_http, "hangs", 2, _ALL, r"no answer in 0\.7 s"),
    (faulty_http, "is late once", 2, (), ""),
    (faulty_http, "fails once", 2, (), ""),
    (faulty_http, "is busy once", 2, (), ""),
    (faulty_http, "fails inside", 2, _ALL, "HTTP 500 .*a mistake of the service"),
    (faulty_http, "breaks off", 2, _ALL, "ClientPayloadError"),
    (faulty_http, "answers too few", 1, _ALL, "it answered with 3 rewards for 4 samples"),
    (faulty_http, "answers too many", 1, _ALL, "it answered with 5 rewards for 4 samples"),
    (faulty_http, "answers NaN", 1, (0,), "the reward is nan, no finite number"),
    (faulty_http, "answers a string", 1, (0,), "the reward is '0.5', no finite number"),
    (faulty_http, "answers too much", 1, _ALL, "larger than remote_max_message_mb 1"),
    (faulty_http, "answers without rewards", 1, _ALL, "no list of rewards or scores: {'result'"),
    (faulty_http, "is of another kind", 1, _ALL, "its answer is no JSON: .*hello"),
    (faulty_http, "wants a token", 1, _ALL, "HTTP 401 Unauthorized: who are you"),
]


def _patience(fault: str) -> dict[str, float]:
    """A short wait where that is what is tested; else a busy machine would change the outcome."""
    return {"remote_attempt_timeout": PATIENCE} if fault in ("hangs", "is late once") else {}


def _check(scores: list[SampleScore], failed: tuple[int, ...], reason: str) -> None:
    """Every sample once and in order, the right reward or none, and the reason."""
    assert [score.sample_id for score in scores] == [f"s{index}" for index in _ALL]
    assert [index for index in _ALL if scores[index].score is None] == list(failed)
    assert all(score.score in (None, 0.5) for score in scores)
    for index in failed:
        assert re.search(reason, str(scores[index].error)), scores[index].error


@pytest.mark.parametrize(
    ("serve", "fault", "requests", "failed", "reason"),
    _TABLE,
    ids=[f"{serve.__name__}-{fault or 'none'}" for serve, fault, *_ in _TABLE],
)
def test_one_faulty_service(
    serve: Faulty, fault: str, requests: int, failed: tuple[int, ...], reason: str
) -> None:
    async def story() -> None:
        asked = Asked()
        async with (
            serve(fault, asked) as address,
            client(address, remote_max_message_mb=1, **_patience(fault)) as remote,
        ):
            _check(await remote.score(samples(_COUNT)), failed, reason)
            assert asked.times == requests
            figures = remote.figures()
            assert figures.samples == _COUNT
            # The images that a server lacks are sent within one request of the policy's.
            assert figures.requests == (1 if fault == "keeps no images" else requests)
            assert figures.failed_fraction == len(failed) / _COUNT

    asyncio.run(story())


@pytest.mark.parametrize("serve", [faulty_grpc, faulty_http])
@pytest.mark.parametrize("fault", ["hangs", "fails inside", "is late once", "wants a token"])
def test_a_second_server_stands_in(serve: Faulty, fault: str) -> None:
    if serve is faulty_grpc and fault == "wants a token":
        fault = "speaks version 2"

    async def story() -> None:
        asked, well = Asked(), Asked()
        async with (
            serve(fault, asked) as faulty,
            serve("", well) as healthy,
            client(f"{faulty},{healthy}", **_patience(fault)) as remote,
        ):
            _check(await remote.score(samples(_COUNT)), (), "")
        assert (asked.times, well.times) == (1, 1)

    asyncio.run(story())


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_server_that_refuses_connections(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # closed again before it is used

    async def story() -> None:
        async with client(f"{scheme}://127.0.0.1:{port}") as remote:
            _check(await remote.score(samples(_COUNT)), _ALL, "onnect")
            assert remote.figures().requests == 2

    asyncio.run(story())


@pytest.mark.parametrize("fault", ["hangs", "fails inside", "fails once"])
def test_answers_that_came_before_a_stream_broke_count_and_are_not_asked_for_again(
    fault: str,
) -> None:
    async def story() -> tuple[list[SampleScore], list[list[str]]]:
        asked = Asked()
        async with (
            faulty_grpc(fault, asked) as address,
            client(address, remote_streaming=True, **_patience(fault)) as remote,
        ):
            return await remote.score(samples(_COUNT)), asked.requests

    scores, requests = asyncio.run(story())
    assert requests == [["s0", "s1", "s2", "s3"], ["s1", "s2", "s3"]]
    failed = () if fault == "fails once" else (2, 3)
    _check(scores, failed, "no answer in|a mistake of the service")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_connection_that_is_reset_in_the_middle_of_an_answer(streaming: bool) -> None:
    asked = [sample(f"s{index}", response="x" * index) for index in range(300)]

    async def story() -> tuple[list[SampleScore], int, int]:
        source = LengthSource()
        async with (
            reward_server(source, batching={"max_batch_size": 10}) as server,
            proxy(server.port, break_after=1500) as between,
            client(
                f"grpc://127.0.0.1:{between.port}",
                remote_batch_size=300,
                remote_streaming=streaming,
            ) as remote,
        ):
            return await remote.score(asked), between.breaks, remote.figures().failed_requests

    scores, breaks, failed_requests = asyncio.run(story())
    assert (breaks, failed_requests) == (1, 1)
    assert scores == [SampleScore(f"s{index}", float(index)) for index in range(300)]


def test_the_whole_call_ends_at_its_deadline() -> None:
    async def story() -> None:
        asked = Asked()
        settings: dict[str, Any] = {"remote_deadline": 0.5, "remote_attempt_timeout": 30.0}
        async with (
            faulty_grpc("hangs", asked) as address,
            client(address, remote_max_concurrency=1, remote_batch_size=1, **settings) as remote,
            asyncio.timeout(2),
        ):
            scores = await remote.score(samples(_COUNT))
            _check(scores, _ALL, r"no answer (in 0\.5 s|within remote_deadline, 0\.5 s)")
        assert asked.times == 1

    asyncio.run(story())


def test_a_server_that_keeps_failing_is_left_alone_and_found_again() -> None:
    async def story() -> None:
        asked = Asked()
        settings: dict[str, Any] = {"remote_breaker_failures": 2, "remote_breaker_reset": 1.0}
        settings |= {"remote_batch_size": 1, "remote_max_attempts": 1, "remote_deadline": 0.3}
        async with faulty_grpc("fails inside", asked) as address, client(address, **settings) as it:
            _check(await it.score(samples(_COUNT)), _ALL, "a mistake|no answer")
            _check(await it.score(samples(_COUNT)), _ALL, "within remote_deadline")
            assert asked.times == _COUNT
            await asyncio.sleep(0.8)
            _check(await it.score(samples(_COUNT)), _ALL, "within remote_deadline|a mistake")
            assert asked.times == _COUNT + 1

    asyncio.run(story())


def test_scores_out_of_range_and_of_wrong_length_are_none() -> None:
    class Source(LengthSource):
        async def score(self, samples: Any) -> list[SampleScore]:
            values = {"a": (1.0, None), "b": (1.5, None), "c": (0.5, [1.0]), "d": (0.5, [1.0, 2.0])}
            chosen = [(each.sample_id, *values[each.response]) for each in samples]
            return [SampleScore(name, score, {}, tokens) for name, score, tokens in chosen]

    async def story() -> list[SampleScore]:
        async with (
            reward_server(Source()) as server,
            client(f"grpc://127.0.0.1:{server.port}", remote_score_range=(0.0, 1.0)) as remote,
        ):
            return await remote.score([sample(name, response=name) for name in "abcd"])

    scores = asyncio.run(story())
    assert [score.score for score in scores] == [1.0, None, None, 0.5]
    assert scores[1].error == "the score 1.5 lies outside of remote_score_range [0, 1]"
    assert scores[2].error == "1 token scores for 2 response tokens"
    assert scores[3].token_scores == [1.0, 2.0]


def test_scores_are_taken_from_the_cache_on_request() -> None:
    async def story() -> None:
        asked = Asked()
        async with (
            faulty_grpc("answers NaN", asked) as address,
            client(address, remote_cache_size=100) as remote,
        ):
            _check(await remote.score([sample(f"s{i}", str(i)) for i in _ALL]), (0,), "finite")
            renamed = [sample(f"t{i}", str(i)) for i in _ALL]
            again = await remote.score(renamed)
            assert [score.sample_id for score in again] == ["t0", "t1", "t2", "t3"]
            assert asked.requests == [["s0", "s1", "s2", "s3"], ["t0"]]

    asyncio.run(story())


def test_two_samples_of_one_id_are_a_mistake_of_the_caller() -> None:
    async def story() -> None:
        async with client("grpc://127.0.0.1:1") as remote:
            await remote.score([sample("a"), sample("a")])

    with pytest.raises(ValueError, match="two samples of a call have one id"):
        asyncio.run(story())
