"""Memory of each role's processes, worked out from a run's configuration.

No model is loaded, and no GPU and no Ray is asked. Estimates are for the longest prompts and
responses that the settings allow, or for lengths that the caller names.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from transformers import PretrainedConfig

from lightrft_ray.config import RunConfig
from lightrft_ray.config.reward_sources import RewardModelConfig
from lightrft_ray.data.embedded import embedded_config, is_embedded
from lightrft_ray.driver.model_checks import check_tensor_parallel
from lightrft_ray.driver.placement import reward_model_role
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
from lightrft_ray.models.trained_part import leave_to_train
from lightrft_ray.sync.weight_source import published_numel
from lightrft_ray.workers.devices import model_source
from lightrft_ray.workers.judge_settings import engine_config
from lightrft_ray.workers.sequence_limits import cpu_batched_tokens

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
# By which vLLM's core hands requests to its worker: ten chunks (VLLM_MQ_MAX_CHUNK_BYTES_MB), which
# fill with pixels, and which are resident in both.
_VLLM_RING = 10 * 16 * 2**20
_MB = 10**6
_ITEMSIZE = {"float32": 4, "bfloat16": 2}


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


class RoleEstimator:
    """Estimates of a run's roles. Raises UserError for settings that the model cannot work with."""

    def __init__(self, config: RunConfig, hardware: Hardware, lengths: Lengths) -> None:
        self._config = config
        self._hardware = hardware
        self._itemsize = _ITEMSIZE[config.model.dtype]
        found = _config_of(config, config.model.pretrain, "model.pretrain")
        check_tensor_parallel(config, found)
        policy = weightless_policy(found)
        leave_to_train(policy, config.model, config.seed)
        self.policy = shape_of(policy)
        published = published_numel(policy, adapters_alone=config.sync.lora_sync == "adapter")
        self.published_bytes = float(published * _ITEMSIZE[config.generator_dtype])
        self._prompt = lengths.prompt or config.data.prompt_max_len
        self._response = lengths.response or config.rollout.generate_max_len
        images = self._prompt if lengths.images is None else lengths.images
        self._patches = images * self.policy.patches_per_token

    def estimates(self) -> list[RolePlan]:
        """Of the driver and each role."""
        config = self._config
        roles = [self._driver(), self._learner(), self.generator(), self._reward()]
        roles += [self._reference()] if config.uses_reference else []
        roles += [self._critic()] if config.uses_critic else []
        return roles + [self._reward_model(name) for name in config.reward.models]

    def cached_tokens(self) -> float | None:
        """Tokens that a generator's key-value cache holds; None on a CPU."""
        if not self._config.placement.vllm_use_gpu:
            return None
        per_token = kv_bytes_per_token(
            self.policy.language,
            _ITEMSIZE[self._config.generator_dtype],
            self._config.rollout.vllm_tensor_parallel_size,
        )
        return self.generator().memory.held["KV cache"] / per_token

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
        memory = self._trained("learner", device, self.policy, ranks, scores=scores)
        bucket = max(config.sync.bucket_bytes, self.policy.largest_tensor * self._itemsize)
        in_turn = {**memory.in_turn, "publication": float(min(bucket, self.published_bytes))}
        host = self.published_bytes  # rank 0 puts all of it into its node's object store
        held = dict(memory.held)
        if config.trainer.enable_ema:
            average = self.policy.trained * 4 / ranks
            host += average
            held |= {"average": average} if device == "CPU" else {}
        if device == "CPU":
            held["publication"] = self.published_bytes
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

    def generator(self) -> RolePlan:
        """Of one GPU of a generator, or of a generator's processes on a CPU."""
        return self._engine("generator", self._config, self.policy, self.published_bytes)

    def _engine(
        self, role: str, config: RunConfig, shape: ModelShape, published: float
    ) -> RolePlan:
        """Of a vLLM engine that `config` sets up, and that gets `published` bytes of weights."""
        rollout = config.rollout
        shards = rollout.vllm_tensor_parallel_size
        weights = float(shape.parameters * _ITEMSIZE[config.generator_dtype])
        if not config.placement.vllm_use_gpu:
            return RolePlan(role, "CPU", self._engine_on_cpu(config, shape, weights, published))
        held = {
            "libraries": self._libraries("generator", "GPU", shards),
            "weights": weights / shards,
            "working": _VLLM_WORKING,
            "publication": min(float(config.sync.bucket_bytes), published),
        }
        taken = self._hardware.gpu_gb * GB * rollout.vllm_gpu_memory_utilization
        held["KV cache"] = max(taken - sum(held.values()), 0.0)
        # On the host: a copy in its node's object store, and one in shared memory.
        return RolePlan(role, "GPU", Memory(held), host=2 * published)

    def _engine_on_cpu(
        self, config: RunConfig, shape: ModelShape, weights: float, published: float
    ) -> Memory:
        """Of an engine's three processes: the actor, vLLM's core and its worker."""
        held = {
            "libraries": _LIBRARIES_CPU["generator"],
            "weights": weights,
            "KV cache": float(config.rollout.vllm_kv_cache_gb * GIB),
            "publication": published,
        }
        if shape.vision is not None:
            held |= {"messages": 2 * _VLLM_RING, "media": float(config.media.media_cache_mb * _MB)}
        rows = RowSize(cpu_batched_tokens(config), 0, 0, repeats_keys=False)
        return Memory(held, {"prefill": scoring(shape, rows, _ITEMSIZE[config.model.dtype])})

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

    def _reward_model(self, name: str) -> RolePlan:
        """A judge is a vLLM engine that takes no weights; a scalar model a backbone that scores."""
        model = self._config.reward.models[name]
        role = reward_model_role(name)
        setting = f"reward.models.{name}.pretrain"
        found = _config_of(self._config, model.pretrain, setting)
        if model.kind == "judge":
            settings = engine_config(self._config, model)
            check_tensor_parallel(settings, found)
            return self._engine(role, settings, shape_of(weightless_policy(found)), published=0.0)
        return self._scalar_model(role, model, shape_of(weightless_backbone(found)))

    def _scalar_model(self, role: str, model: RewardModelConfig, shape: ModelShape) -> RolePlan:
        itemsize = _ITEMSIZE[model.dtype]
        device: Device = "GPU" if model.gpus_per_worker else "CPU"
        samples = model.micro_batch_size
        length = self._prompt + self._response
        rows = RowSize(samples * length, samples * self._patches, samples * length**2, True)
        held = {
            "libraries": self._libraries("reward_model", device, ranks=1),
            "weights": float(shape.parameters * itemsize),
        }
        return RolePlan(role, device, Memory(held, {"scoring": scoring(shape, rows, itemsize)}))


def _config_of(config: RunConfig, path: str, setting: str) -> PretrainedConfig:
    if is_embedded(path):
        return embedded_config(path)
    found = planned_config(model_source(config, path), setting)
    found.dtype = torch.float32 if config.model.dtype == "float32" else torch.bfloat16
    return found
