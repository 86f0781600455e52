"""Rewards from another process: gRPC beside the JSON that other servers speak, over loopback.

2,000 samples with a 64×64 image each, eight samples a prompt, are scored by the same function in
turns through `launch/serve_reward.py`, through a JSON server, and in this process. Both clients
are the package's own, under one policy. Each round has new images; figures are of a way's fastest
round, as whatever else runs on a machine only makes it slower. The last line is a JSON object:
`speed_ratio` is gRPC's samples a second over JSON's, `speed_ratio_distinct` the same where no image
repeats, and `overhead_ms_per_sample` the time that gRPC adds to the function itself.
"""

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
from aiohttp import web
from PIL import Image

from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.ready_made.exact_match import exact_match
from lightrft_ray.rewards.remote.opening import open_remote
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample

_ROOT = Path(__file__).parents[1]
_SIDE = 64
_GROUP = 8
_START_TIMEOUT = 60


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with _grpc_server() as grpc, _json_server() as http:
        seconds = asyncio.run(_measure(grpc, http, options.samples, options.rounds))
    count = options.samples
    in_process = _seconds_in_process(_samples(count, _GROUP, seed=0))
    figures = {
        "speed_ratio": seconds["json"] / seconds["grpc"],
        "speed_ratio_distinct": seconds["json_distinct"] / seconds["grpc_distinct"],
        "overhead_ms_per_sample": (seconds["grpc"] - in_process) / count * 1000,
        "client_cpu_ms_per_sample": seconds["grpc_cpu"] / count * 1000,
        "grpc_samples_per_second": count / seconds["grpc"],
        "json_samples_per_second": count / seconds["json"],
        "samples": count,
    }
    print(json.dumps(figures))


async def _measure(grpc: str, http: str, count: int, rounds: int) -> dict[str, float]:
    """Seconds of a way's fastest call; the first round warms up and is left out."""
    ways = {
        "grpc": (grpc, _GROUP),
        "json": (http, _GROUP),
        "grpc_distinct": (grpc, 1),
        "json_distinct": (http, 1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*ways, "grpc_cpu")}
    for number in range(rounds + 1):
        for name, (address, group) in ways.items():
            wall, cpu = await _seconds(address, _samples(count, group, seed=number))
            if number:
                seconds[name].append(wall)
            if number and name == "grpc":
                seconds["grpc_cpu"].append(cpu)
    return {name: min(values) for name, values in seconds.items()}


async def _seconds(address: str, samples: Sequence[RewardSample]) -> tuple[float, float]:
    """Wall and this process's CPU seconds of scoring samples; checks the scores."""
    source = open_remote(RemoteRewardConfig(remote_rm_url=address))
    await source.score([_samples(1, 1, seed=-1)[0]])  # connects
    wall, cpu = time.perf_counter(), time.process_time()
    scores = await source.score(samples)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await source.close()
    right = [float(each.response == each.reference) for each in samples]
    if [score.score for score in scores] != right:
        raise RuntimeError(f"{address} gave wrong scores, such as {scores[0]}")
    return wall, cpu


def _seconds_in_process(samples: Sequence[RewardSample]) -> float:
    start = time.perf_counter()
    exact_match([each.response for each in samples], [each.reference for each in samples])
    return time.perf_counter() - start


def _samples(count: int, group: int, seed: int) -> list[RewardSample]:
    rng = np.random.default_rng(seed + 1)
    images = [_image(rng) for _ in range(-(-count // group))]
    question = "How many birds are in the picture? Answer with a number."
    content = [{"type": "image"}, {"type": "text", "text": question}]
    chats = [[{"role": "user", "content": content}] for _ in images]
    return [
        RewardSample(
            sample_id=f"prompt-{index // group}/{index % group}",
            prompt=question,
            messages=chats[index // group],
            response=str(index % 10),
            response_token_ids=list(range(32)),
            reference="3",
            label="count",
            images=(images[index // group],),
        )
        for index in range(count)
    ]


def _image(rng: np.random.Generator) -> EncodedMedia:
    target = BytesIO()
    pixels = rng.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(target, format="PNG")
    return EncodedMedia(target.getvalue(), "image/png")


@contextmanager
def _grpc_server() -> Iterator[str]:
    """The address of a server as a user starts it."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "server.yaml"
        config.write_text("reward:\n  reward_fn: exact_match\nserver:\n  port: 0\n")
        command = [
            sys.executable,
            str(_ROOT / "launch" / "serve_reward.py"),
            "--config",
            str(config),
        ]
        env = os.environ | {"PYTHONPATH": str(_ROOT)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
            if server.stdout is None:
                raise RuntimeError("the server's output is not read")
            yield server.stdout.readline().split()[-1]
            server.terminate()
            server.wait(_START_TIMEOUT)


@contextmanager
def _json_server() -> Iterator[str]:
    """The address of a JSON server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    addresses: Queue[str] = context.Queue()
    process = context.Process(target=_serve_json, args=(addresses,), daemon=True)
    process.start()
    yield addresses.get(timeout=_START_TIMEOUT)
    process.terminate()
    process.join()


def _serve_json(addresses: "Queue[str]") -> None:
    asyncio.run(_answer_json(addresses))


async def _answer_json(addresses: "Queue[str]") -> None:
    async def handle(request: web.Request) -> web.Response:
        fields = await request.json()
        # A reward gets the images' bytes, as it does over gRPC.
        for images in fields["images"]:
            for image in images:
                base64.b64decode(image)
        return web.json_response(
            {"rewards": exact_match(fields["responses"], fields["references"])}
        )

    app = web.Application(client_max_size=2**28)
    app.router.add_post("/get_reward", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    addresses.put(f"http://127.0.0.1:{runner.addresses[0][1]}/get_reward")
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
