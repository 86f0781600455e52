"""What can be added to the policy loss beside its own terms: demonstrations, balanced routers."""

from __future__ import annotations

import torch
from torch import Tensor

from lightrft_ray.trainer.aggregation import Denominators, aggregate
from lightrft_ray.trainer.metric_sums import Mean, Metrics


def demonstration_loss(
    log_probs: Tensor,
    action_mask: Tensor,
    *,
    coef: float,
    n_tokens: int,
    denominators: Denominators,
) -> tuple[Tensor, Metrics]:
    """coef · mean of −log π over demonstrated tokens, and metrics.

    The supervised term of InstructGPT's PPO-ptx (Ouyang et al. 2022, 2203.02155). `log_probs` and
    `action_mask` are (B, A), `n_tokens` counts the demonstrated tokens of the whole optimizer step,
    `denominators` are those of its policy loss, as which `metrics["loss"]` is weighted.
    """
    count = Denominators(n_tokens, 0)
    mean = aggregate(-log_probs, action_mask, mode="token-mean", denominators=count)
    loss = coef * mean
    metric = Mean.of(-log_probs, action_mask)
    return loss, {"ptx_loss": metric, "loss": _added_to_loss(loss, denominators)}


def router_balance_loss(
    router_loss: Tensor,
    *,
    coef: float,
    n_samples: int,
    step_samples: int,
    denominators: Denominators,
) -> tuple[Tensor, Metrics]:
    """coef · (`n_samples` / `step_samples`) · `router_loss`, and metrics.

    `router_loss` (see `models.routers`) is that of a micro-batch's `n_samples` samples. It is not
    linear in its tokens, so that no sum over micro-batches gives that of the whole: the loss of an
    optimizer step is defined as the mean of its micro-batches', weighted by samples.
    """
    loss = coef * n_samples / step_samples * router_loss
    count = torch.tensor(n_samples, device=loss.device)
    metric = Mean(router_loss.detach() * n_samples, count)
    return loss, {"aux_loss": metric, "loss": _added_to_loss(loss, denominators)}


def _added_to_loss(loss: Tensor, denominators: Denominators) -> Mean:
    """A term of the metric that `objectives.policy_objective` makes of the policy loss."""
    nothing = torch.zeros((), dtype=torch.long, device=loss.device)
    return Mean(loss.detach() * denominators.n_tokens, nothing)
