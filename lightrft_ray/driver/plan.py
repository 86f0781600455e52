"""What a run would take: processes, nodes and memory, worked out from its configuration alone.

No model is loaded, no GPU and no Ray is asked. Estimates are for the longest prompts and responses
that the settings allow, or for lengths that the caller names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import PretrainedConfig

from lightrft_ray.config import RunConfig
from lightrft_ray.config.advice import warnings
from lightrft_ray.data.embedded import is_embedded
from lightrft_ray.data.tiny_vlm import tiny_qwen_vl_config
from lightrft_ray.driver.model_checks import check_tensor_parallel
from lightrft_ray.driver.packing import Node, Packing, RoleDemand, pack
from lightrft_ray.driver.placement import role_demands
from lightrft_ray.driver.plan_memory import (
    GB,
    GIB,
    Memory,
    RowSize,
    Training,
    activations,
    kv_bytes_per_token,
    model_states,
    optimizer_step,
    scoring,
    zero_buffers,
)
from lightrft_ray.models.architectures import (
    planned_config,
    weightless_backbone,
    weightless_policy,
)
from lightrft_ray.models.freezing import Freezing, freeze
from lightrft_ray.models.model_shape import ModelShape, shape_of
from lightrft_ray.sync.weight_source import unpublished_names
from lightrft_ray.workers.devices import model_source

Device = Literal["GPU", "CPU"]

# Resident memory of a process with its libraries before it holds a model, as measured (Python 3.11,
# PyTorch 2.13): on a CPU all of it, of a GPU what CUDA and its libraries take there.
_LIBRARIES_CPU = {
    "driver": 0.70 * GB,
    "learner": 0.68 * GB,
    "critic": 0.68 * GB,
    "reference": 0.66 * GB,
    "reward": 0.61 * GB,
    "reward_model": 0.66 * GB,
    "generator": 2.6 * GB,  # the actor, vLLM's engine and its worker: three processes
}
_CUDA_CONTEXT = 0.8 * GB
_NCCL_BUFFERS = 0.7 * GB
_VLLM_WORKING = 2.5 * GB  # activations of a full prefill and CUDA graphs
_NEARLY_FULL = 0.9  # of a GPU: the allocator's own waste wants the rest
_MOST_NODES = 4096
_PLENTY = 1e6  # of what a planned node has besides GPUs
_RAY_OBJECT_STORE_LIMIT = 200 * GB  # Ray's default is 30% of the memory, and never more
_MB = 10**6


@dataclass(frozen=True)
class Hardware:
    """The machines to plan for."""

    gpus_per_node: int = 8
    gpu_gb: float = 80.0


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt, of a response and of a prompt's images; None: what settings allow."""

    prompt: int | None = None
    response: int | None = None
    images: int | None = None


@dataclass(frozen=True)
class RolePlan:
    """What one process of a role (of a generator: one GPU) needs."""

    role: str
    device: Device
    memory: Memory
    host: float = 0.0
    """Bytes of host memory beside that of a GPU."""


@dataclass(frozen=True)
class Plan:
    """The layout of a run, its memory, what would fail and what to know of."""

    demands: tuple[RoleDemand, ...]
    packing: Packing
    n_nodes: int
    roles: tuple[RolePlan, ...]
    published_bytes: float
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def make_plan(
    config: RunConfig, hardware: Hardware | None = None, lengths: Lengths | None = None
) -> Plan:
    """Plan a run. Raises UserError for settings that cannot work together with the model."""
    return _Planner(config, hardware or Hardware(), lengths or Lengths()).plan()


class _Planner:
    def __init__(self, config: RunConfig, hardware: Hardware, lengths: Lengths) -> None:
        self._config = config
        self._hardware = hardware
        self._itemsize = 2 if config.model.dtype == "bfloat16" else 4
        self._model_config = _config_of(config, config.model.pretrain, "model.pretrain")
        check_tensor_parallel(config, self._model_config)
        policy = weightless_policy(self._model_config)
        freeze(policy, Freezing.of_policy(config.model))
        self._policy = shape_of(policy)
        left_out = unpublished_names(policy)
        published = sum(p.numel() for name, p in policy.named_parameters() if name not in left_out)
        self._published = float(published * self._itemsize)
        self._prompt = lengths.prompt or config.data.prompt_max_len
        self._response = lengths.response or config.rollout.generate_max_len
        images = self._prompt if lengths.images is None else lengths.images
        self._patches = images * self._policy.patches_per_token

    def plan(self) -> Plan:
        config = self._config
        demands = tuple(role_demands(config))
        n_nodes, packing = _needed_nodes(demands, self._hardware)
        roles = [self._driver(), self._learner(), self._generator(), self._reward()]
        roles += [self._reference()] if config.uses_reference else []
        roles += [self._critic()] if config.uses_critic else []
        problems = [packing.misfit] if packing.misfit else []
        problems += [text for role in roles for text in self._does_not_fit(role)]
        problems += self._too_small_cache()
        notes = [text for role in roles for text in self._nearly_full(role)]
        notes += [*self._large_publication(), *self._few_sequences(), *warnings(config)]
        return Plan(
            demands, packing, n_nodes, tuple(roles), self._published, tuple(problems), tuple(notes)
        )

    def _driver(self) -> RolePlan:
        return RolePlan("driver", "CPU", Memory({"libraries": _LIBRARIES_CPU["driver"]}))

    def _reward(self) -> RolePlan:
        return RolePlan("reward", "CPU", Memory({"libraries": _LIBRARIES_CPU["reward"]}))

    def _learner(self) -> RolePlan:
        config = self._config
        place = config.placement
        ranks = config.learner_ranks
        device: Device = "GPU" if place.actor_num_gpus_per_node else "CPU"
        scores = config.algorithm.old_log_probs == "learner"
        memory = self._trained("learner", device, self._policy, ranks, scores=scores)
        bucket = max(config.sync.bucket_mb * _MB, self._policy.largest_tensor * self._itemsize)
        in_turn = {**memory.in_turn, "publication": float(min(bucket, self._published))}
        host = self._published  # rank 0 puts all of it into its node's object store
        held = dict(memory.held)
        if config.trainer.enable_ema:
            average = self._policy.trained * 4 / ranks
            host += average
            held |= {"average": average} if device == "CPU" else {}
        if device == "CPU":
            held["publication"] = self._published
        return RolePlan("learner", device, Memory(held, in_turn), host if device == "GPU" else 0)

    def _critic(self) -> RolePlan:
        config = self._config
        path = config.model.critic_pretrain or config.model.pretrain
        backbone = weightless_backbone(_config_of(config, path, "model.critic_pretrain"))
        freeze(backbone, Freezing.of_critic(config.model))
        device: Device = "GPU" if config.placement.critic_num_gpus_per_node else "CPU"
        memory = self._trained(
            "critic", device, shape_of(backbone), config.critic_ranks, scores=True
        )
        return RolePlan("critic", device, memory)

    def _trained(
        self, role: str, device: Device, shape: ModelShape, ranks: int, *, scores: bool
    ) -> Memory:
        """Of a rank under DeepSpeed; `scores` where it also computes without gradients."""
        trainer = self._config.trainer
        checkpoints_blocks = self._config.model.gradient_checkpointing
        how = Training(self._itemsize, trainer.zero_stage, ranks, checkpoints_blocks)
        held = {"libraries": self._libraries(role, device, ranks), **model_states(shape, how)}
        if device == "GPU":
            held |= zero_buffers(shape, how)
        in_turn = {
            "activations": activations(shape, self._rows(trainer.micro_train_batch_size), how),
            "optimizer step": optimizer_step(shape, how),
        }
        if scores:
            rows = self._rows(trainer.micro_rollout_batch_size)
            in_turn["scoring"] = scoring(shape, rows, self._itemsize)
        return Memory(held, in_turn)

    def _reference(self) -> RolePlan:
        config = self._config
        path = config.model.ref_pretrain or config.model.pretrain
        shape = shape_of(weightless_policy(_config_of(config, path, "model.ref_pretrain")))
        device: Device = "GPU" if config.placement.ref_num_gpus_per_node else "CPU"
        rows = self._rows(config.trainer.micro_rollout_batch_size)
        held = {
            "libraries": self._libraries("reference", device, ranks=1),
            "weights": float(shape.parameters * self._itemsize),
        }
        in_turn = {"scoring": scoring(shape, rows, self._itemsize)}
        return RolePlan("reference", device, Memory(held, in_turn))

    def _generator(self) -> RolePlan:
        rollout = self._config.rollout
        shards = rollout.vllm_tensor_parallel_size
        if not self._config.placement.vllm_use_gpu:
            on_cpu: dict[str, float] = {
                "libraries": _LIBRARIES_CPU["generator"],
                "weights": self._policy.parameters * self._itemsize,
                "KV cache": rollout.vllm_kv_cache_gb * GIB,
                "publication": self._published,
            }
            return RolePlan("generator", "CPU", Memory(on_cpu))
        held = {
            "libraries": self._libraries("generator", "GPU", shards),
            "weights": self._policy.parameters * self._itemsize / shards,
            "working": _VLLM_WORKING,
            "publication": float(min(self._config.sync.bucket_mb * _MB, self._published)),
        }
        taken = self._hardware.gpu_gb * GB * rollout.vllm_gpu_memory_utilization
        held["KV cache"] = max(taken - sum(held.values()), 0.0)
        host = 2 * self._published  # a copy in its node's object store, and one in shared memory
        return RolePlan("generator", "GPU", Memory(held), host)

    def _libraries(self, role: str, device: Device, ranks: int) -> float:
        if device == "CPU":
            return _LIBRARIES_CPU[role]
        return _CUDA_CONTEXT + (_NCCL_BUFFERS if ranks > 1 else 0.0)

    def _rows(self, samples: int) -> RowSize:
        """Of a micro-batch with whole groups, each sample as long as can be."""
        config = self._config
        layout, attention = config.trainer.row_layout, config.model.attn_implementation
        groups = -(-samples // config.rollout.n_samples_per_prompt)
        length = self._prompt + self._response
        prompts = groups if layout == "shared_prefix" else samples
        tokens = prompts * self._prompt + samples * self._response
        has_mask = attention in ("sdpa", "eager")
        longest = length if layout == "padded" else tokens
        rows = samples if layout == "padded" else 1
        return RowSize(
            tokens=tokens,
            mask_elements=rows * longest**2 if has_mask else 0,
            patches=prompts * self._patches,
            repeats_keys=has_mask,
        )

    def _does_not_fit(self, role: RolePlan) -> list[str]:
        limit = self._hardware.gpu_gb * GB
        if role.device == "CPU" or role.memory.total <= limit:
            return []
        remedies = {
            "learner": "more GPUs for it under trainer.zero_stage 3, model.gradient_checkpointing, "
            "or a smaller trainer.micro_train_batch_size",
            "generator": "a higher rollout.vllm_tensor_parallel_size",
            "reference": "a smaller trainer.micro_rollout_batch_size, or larger GPUs",
        }
        remedy = remedies.get(role.role, remedies["learner"])
        return [
            f"the {role.role} needs {role.memory.total / GB:.1f} GB of a GPU's "
            f"{self._hardware.gpu_gb:g} GB: {remedy}"
        ]

    def _nearly_full(self, role: RolePlan) -> list[str]:
        limit = self._hardware.gpu_gb * GB
        if role.device == "CPU" or not _NEARLY_FULL * limit < role.memory.total <= limit:
            return []
        return [
            f"the {role.role} takes {role.memory.total / GB:.1f} GB of a GPU's "
            f"{self._hardware.gpu_gb:g} GB, which leaves little for the allocator's own waste"
        ]

    def _cached_tokens(self) -> float | None:
        """Tokens that a generator's key-value cache holds; None on a CPU."""
        if not self._config.placement.vllm_use_gpu:
            return None
        per_token = kv_bytes_per_token(
            self._policy.language,
            self._itemsize,
            self._config.rollout.vllm_tensor_parallel_size,
        )
        return self._generator().memory.held["KV cache"] / per_token

    def _too_small_cache(self) -> list[str]:
        tokens, longest = self._cached_tokens(), self._longest()
        if tokens is None or tokens >= longest:
            return []
        return [
            f"a generator's key-value cache holds {tokens:,.0f} tokens and the longest sequence "
            f"has {longest:,}: raise rollout.vllm_tensor_parallel_size or "
            "rollout.vllm_gpu_memory_utilization, or lower the lengths"
        ]

    def _few_sequences(self) -> list[str]:
        tokens = self._cached_tokens()
        if tokens is None or tokens < self._longest():
            return []
        at_once, wished = int(tokens // self._longest()), self._config.rollout.vllm_max_num_seqs
        if at_once >= wished:
            return []
        return [
            f"a generator's key-value cache holds {at_once} sequences of full length, fewer than "
            f"rollout.vllm_max_num_seqs {wished}: some wait when responses are long"
        ]

    def _longest(self) -> int:
        training = self._config.rollout.generate_max_len
        evaluated = self._config.evaluation.longest(training)
        return self._config.data.prompt_max_len + max(training, evaluated)

    def _large_publication(self) -> list[str]:
        if self._published <= _RAY_OBJECT_STORE_LIMIT / 2:
            return []
        return [
            f"published weights take {self._published / GB:.0f} GB of the object store on the "
            "first learner's node and on each generator's: Ray takes 30% of the memory, at most "
            f"{_RAY_OBJECT_STORE_LIMIT / GB:.0f} GB, unless `ray start --object-store-memory` says "
            "more"
        ]


def _needed_nodes(demands: Sequence[RoleDemand], hardware: Hardware) -> tuple[int, Packing]:
    """The least number of nodes that all bundles fit on, and how; or a packing with a misfit."""
    custom = {name for demand in demands for bundle in demand.bundles for name in bundle}
    node = dict.fromkeys(custom, _PLENTY) | {"GPU": float(hardware.gpus_per_node)}
    gpus = sum(demand.total("GPU") for demand in demands)
    least = max(1, -(-int(gpus) // hardware.gpus_per_node))
    for count in range(least, min(2 * least + len(demands), _MOST_NODES) + 1):
        packing = pack(demands, [Node(f"node {index + 1}", node) for index in range(count)])
        if packing.misfit is None:
            break
    return count, packing


def _config_of(config: RunConfig, path: str, setting: str) -> PretrainedConfig:
    if is_embedded(path):
        return tiny_qwen_vl_config()
    found = planned_config(model_source(config, path), setting)
    found.dtype = torch.float32 if config.model.dtype == "float32" else torch.bfloat16
    return found
