"""How fast weights reach two generators on one machine, and for how long these must stop.

A Qwen2.5-VL of 500 MB with random weights in a learner under DeepSpeed and in two generators with
vLLM on CPU. `bandwidth_fraction` is the bytes that each generator got by the seconds from the start
of a publication until both generators go on, over the bandwidth at which one core copies memory
here. `pause_fraction` is the part of that time for which a generator was held. The alternative is
what trainers do that send parameter by parameter, a remote call each to both generators, into the
same engines: it takes `speedup_over_per_parameter` times as long. The last line is a JSON object.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import ray
import torch
from ray import ObjectRef
from ray.actor import ActorHandle
from transformers import Qwen2_5_VLForConditionalGeneration

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.data.embedded import resolve_embedded
from lightrft_ray.data.tiny_vlm import tiny_qwen_vl_config
from lightrft_ray.driver.colocation import Colocation
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.publication import Publication, WeightPublisher
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.workers import START_TIMEOUT
from lightrft_ray.sync.buckets import BucketSpec, pack_buckets
from lightrft_ray.sync.weight_source import published_weights
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.deepspeed_engine import ProcessGroup
from lightrft_ray.workers.engine_environment import engine_environment
from lightrft_ray.workers.generator import Generator
from lightrft_ray.workers.learner import PolicyLearner

_GENERATORS = 2
_LAYER_MB = 63  # of the language model
_TIMEOUT = 120
_GeneratorClass = Generator.__ray_metadata__.modified_class

if TYPE_CHECKING:
    from typing import Any


@ray.remote
class ByParameter(_GeneratorClass):  # type: ignore[valid-type, misc]
    """A generator that can also be given one parameter a call."""

    async def begin_update(self) -> None:
        """Hold the engine for an update."""
        await self._engine.weights.start_update()

    async def load_parameter(self, spec: BucketSpec, holder: Sequence[ObjectRef]) -> None:
        """Load one parameter."""
        weights = self._engine.weights
        await weights._inbox.fetch([(spec, holder[0])])
        await weights.receive_update(weights._inbox.located())

    async def end_update(self) -> None:
        """Go on with the new weights."""
        await self._engine.weights.finish_update(0)


def main() -> None:
    """Measure both and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ray_session():
        config = _config(Path(folder), options.megabytes)
        inputs = check_inputs(config)
        with _workers(config, inputs) as (learner, generators):
            answer = (*inputs.canary_answer, inputs.stop_token_id)
            prompts = inputs.train_prompts
            apart = Colocation(learner, generators, is_on=False)
            publisher = WeightPublisher(
                config, learner, generators, prompts, answer, colocation=apart
            )
            figures = _measure(publisher, learner, generators, options.repeats)
    print(json.dumps(figures))


def _measure(
    publisher: WeightPublisher, learner: ActorGroup, generators: ActorGroup, repeats: int
) -> "dict[str, Any]":
    own: list[Publication] = []
    for _ in range(2 + repeats):  # memory that is new to a process is slow to write to, twice
        own.append(publisher.publish())
        print(f"published in {own[-1].seconds:.3f} s, held for {own[-1].pause_seconds:.3f} s")
    own = own[2:]
    by_parameter = []
    for _ in range(3):
        by_parameter.append(_publish_by_parameter(learner, generators))
        print(f"parameter by parameter in {by_parameter[-1]:.3f} s")
    nbytes = own[0].nbytes
    bandwidth = _memory_bandwidth(nbytes)
    seconds = statistics.median(each.seconds for each in own)
    return {
        "bandwidth_fraction": nbytes / seconds / bandwidth,
        "pause_fraction": statistics.median(each.pause_seconds / each.seconds for each in own),
        "speedup_over_per_parameter": statistics.median(by_parameter[1:]) / seconds,
        "seconds": seconds,
        "pause_seconds": statistics.median(each.pause_seconds for each in own),
        "per_parameter_seconds": statistics.median(by_parameter[1:]),
        "megabytes": nbytes / 1e6,
        "memcpy_gb_per_second": bandwidth / 1e9,
    }


def _publish_by_parameter(learner: ActorGroup, generators: ActorGroup) -> float:
    (sender,) = learner.actors
    return float(
        ray.get(sender.__ray_call__.remote(_send_by_parameter, generators.actors), timeout=_TIMEOUT)
    )


def _send_by_parameter(learner: PolicyLearner, generators: Sequence[ActorHandle]) -> float:
    """Runs in the learner; the seconds that it took."""
    start = time.perf_counter()
    ray.get([each.begin_update.remote() for each in generators])
    for weight in published_weights(learner._model, 10**9):
        ((spec, parts),) = pack_buckets([weight], 10**9)
        holder = [ray.put(parts)]
        ray.get([each.load_parameter.remote(spec, holder) for each in generators])
    ray.get([each.end_update.remote() for each in generators])
    return time.perf_counter() - start


def _memory_bandwidth(nbytes: int) -> float:
    """Bytes a second that one core copies, of as many as were published, to where it has written.

    The best of several: what else the machine does can only slow it down.
    """
    source, target = np.ones(nbytes, dtype=np.uint8), np.zeros(nbytes, dtype=np.uint8)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - start)
    return nbytes / min(seconds)


def _config(folder: Path, megabytes: int) -> RunConfig:
    """A run with the embedded digits and a wider model."""
    _build_model(folder / "model", max(megabytes // _LAYER_MB, 1))
    chosen = {
        "pretrain": str(folder / "model"),
        "output_dir": str(folder / "run"),
        "vllm_num_engines": str(_GENERATORS),
        "bucket_mb": "32",
        "cpu_threads_per_worker": "1",
    }
    return resolve_checkpoints(load_config(None, list(chosen.items())))


def _build_model(folder: Path, layers: int) -> None:
    """The embedded checkpoint with a larger language model of random weights."""
    config = tiny_qwen_vl_config()
    text = config.text_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers = 1024, 4096, layers
    text.num_attention_heads, text.num_key_value_heads = 16, 8
    text.layer_types = ["full_attention"] * layers
    text.rope_parameters["mrope_section"] = [8, 12, 12]
    config.vision_config.out_hidden_size = text.hidden_size
    embedded = resolve_embedded("embedded:tiny-qwen2.5-vl")
    shutil.copytree(embedded, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)


@contextmanager
def _workers(config: RunConfig, inputs: RunInputs) -> Iterator[tuple[ActorGroup, ActorGroup]]:
    """A learner and the generators, side by side."""
    learner = PolicyLearner.options(num_cpus=0).remote(config, inputs.sampling, inputs.pad_token_id)
    options = {"num_cpus": 0, "runtime_env": {"env_vars": engine_environment(config)}}
    generators = [
        ByParameter.options(**options).remote(config, inputs.sampling.forbidden_token_ids, 1)
        for _ in range(_GENERATORS)
    ]
    host, port = ray.get(learner.address.remote(), timeout=START_TIMEOUT)
    starting = [learner.connect.remote(ProcessGroup(0, 1, host, port))]
    starting += [each.ready.remote() for each in generators]
    ray.get(starting, timeout=START_TIMEOUT)
    try:
        yield (
            ActorGroup("learner", [learner], _TIMEOUT),
            ActorGroup("generator", generators, _TIMEOUT),
        )
    finally:
        ray.get([each.stop.remote() for each in generators], timeout=_TIMEOUT)


if __name__ == "__main__":
    main()
