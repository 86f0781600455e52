"""A model under DeepSpeed: how it is set up, and one optimizer step over micro-batches."""

import math
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import psutil
import ray
import torch
from torch import Tensor, nn

from lightrft_ray.config import RunConfig
from lightrft_ray.models.loading import trainable_parameters
from lightrft_ray.workers.learning_rate import learning_rate_factor

MicroBatch = TypeVar("MicroBatch")


@dataclass(frozen=True)
class ProcessGroup:
    """One rank's place among the data-parallel processes of a role."""

    rank: int
    world_size: int
    host: str
    port: int


def free_address() -> tuple[str, int]:
    """This host's address and a port that was free a moment ago, for rank 0 to listen on."""
    host = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, probe.getsockname()[1]


def interface_towards(host: str, port: int) -> str | None:
    """The network interface by which this process reaches an address; None where none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # of a datagram socket: nothing is sent
        own = probe.getsockname()[0]
    names = psutil.net_if_addrs().items()
    return next((name for name, all_ in names if any(each.address == own for each in all_)), None)


def join_process_group(group: ProcessGroup, config: RunConfig, device: torch.device) -> None:
    """Meet the other ranks; raises after the learner's deadline if one does not come."""
    import deepspeed

    os.environ.update(
        RANK=str(group.rank),
        WORLD_SIZE=str(group.world_size),
        LOCAL_RANK="0",  # Ray shows each process its own GPU alone
        MASTER_ADDR=group.host,
        MASTER_PORT=str(group.port),
    )
    if device.type == "cpu":
        # DeepSpeed would compile a shared-memory all-reduce, which takes a minute and a compiler
        # and leaves blocks in /dev/shm when a rank is killed. gloo does the same work.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        # By itself gloo listens where the host's name leads, which on many is the loopback.
        interface = interface_towards(group.host, group.port)
        if interface is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    deepspeed.init_distributed(
        dist_backend="gloo" if device.type == "cpu" else "nccl",
        timeout=timedelta(seconds=config.trainer.learner_timeout),
        verbose=False,
    )


def deepspeed_settings(config: RunConfig) -> dict[str, object]:
    """DeepSpeed's own configuration for a run.

    Accumulation is under the caller's control (one step is a list of micro-batches), hence the 1.
    """
    trainer = config.trainer
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": trainer.max_norm,
        "zero_optimization": {"stage": trainer.zero_stage},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": config.model.dtype == "bfloat16", "check_grad_overflow": True},
        "steps_per_print": 2**31,
    }


@contextmanager
def sharded_loading(config: RunConfig) -> Iterator[None]:
    """Under ZeRO-3, models loaded inside are sharded as they are read, never whole in a process."""
    if config.trainer.zero_stage < 3:
        yield
        return
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    # transformers finds the settings through a weak reference: keep it alive until all is loaded.
    settings = HfDeepSpeedConfig(deepspeed_settings(config))
    yield
    del settings


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step did: gradient norm before clipping, learning rate, if it was skipped.

    A step whose loss or gradient is not finite on any rank is skipped on all of them.
    """

    grad_norm: float
    learning_rate: float
    skipped: bool
    loss_is_finite: bool = True


class TrainableModel:
    """A module under DeepSpeed; `total_steps` is the length of its learning-rate schedule."""

    def __init__(
        self, module: nn.Module, config: RunConfig, learning_rate: float, total_steps: int
    ) -> None:
        import deepspeed

        trainer = config.trainer
        optimizer = torch.optim.AdamW(
            trainable_parameters(module),
            lr=learning_rate,
            betas=trainer.adam_betas,
            weight_decay=trainer.l2,
        )
        schedule = learning_rate_factor(trainer, total_steps)
        self.engine, *_ = deepspeed.initialize(
            model=module,
            optimizer=optimizer,
            lr_scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, schedule),
            config=deepspeed_settings(config),
        )
        self._stage = trainer.zero_stage
        self._world_size = torch.distributed.get_world_size()

    def step(
        self, micro_batches: Iterable[MicroBatch], loss_of: Callable[[MicroBatch], Tensor]
    ) -> StepResult:
        """One optimizer step; every rank must bring the same number of micro-batches.

        `loss_of` gives a micro-batch's share of the global loss (global denominators): DeepSpeed
        averages gradients over the ranks, so shares are multiplied by their number first.
        """
        self.engine.train()
        learning_rate = float(self.engine.get_lr()[0])
        all_finite = torch.ones((), device=self.engine.device)
        for micro_batch, is_last in _marking_last(micro_batches):
            self.engine.set_gradient_accumulation_boundary(is_last)
            loss = loss_of(micro_batch)
            all_finite = all_finite * loss.detach().isfinite()
            if is_last:
                torch.distributed.all_reduce(all_finite, torch.distributed.ReduceOp.MIN)
            with self._spoiled_gradients() if is_last and not all_finite else nullcontext():
                self.engine.backward(loss * self._world_size)
        norm = self._step_without_zero() if self._stage == 0 else self._step_with_zero()
        return StepResult(norm, learning_rate, not _is_finite(norm), bool(all_finite))

    def leave_device(self, *, keeps_weights: bool = False) -> None:
        """Move the states to the host, with `keeps_weights` all but those; nothing on a CPU."""
        if self.engine.device.type == "cpu":
            return
        from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum as State

        kept = {State.lp_params} if keeps_weights else set()
        self.engine.optimizer.zero_grad(set_to_none=True)
        self.engine.offload_states(include=[state for state in State if state not in kept])
        torch.cuda.empty_cache()

    def return_to_device(self) -> None:
        """Bring back what `leave_device` has moved."""
        if self.engine.device.type != "cpu":
            self.engine.reload_states()

    @contextmanager
    def _spoiled_gradients(self) -> Iterator[None]:
        """Every gradient of the backward pass inside is NaN.

        A loss may be infinite where its gradient is 0, as past a clip. ZeRO's optimizers look at
        gradients alone, and only their own check empties all of their buffers.
        """
        hooks = [
            parameter.register_hook(lambda gradient: torch.full_like(gradient, math.nan))
            for parameter in trainable_parameters(self.engine.module)
        ]
        yield
        for hook in hooks:
            hook.remove()

    def _step_with_zero(self) -> float:
        """Apply the gradients; ZeRO's optimizers skip those that are not finite."""
        self.engine.step()
        return float(self.engine.get_global_grad_norm())

    def _step_without_zero(self) -> float:
        """Apply the gradients if they are finite: stage 0 neither checks nor keeps their norm.

        They are summed over the ranks already, so that all ranks decide alike.
        """
        gradients = [p.grad for p in self.engine.module.parameters() if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if _is_finite(norm):
            self.engine.step()
        else:
            self.engine.zero_grad()
        return norm


def _is_finite(norm: float) -> bool:
    return 0 <= norm < float("inf")  # DeepSpeed reports -1 or inf for an overflow; NaN is neither


def _marking_last(items: Iterable[MicroBatch]) -> Iterator[tuple[MicroBatch, bool]]:
    """Each item, and whether it is the last; items are taken one ahead."""
    iterator = iter(items)
    current = next(iterator)
    for following in iterator:
        yield current, False
        current = following
    yield current, True
