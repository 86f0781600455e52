"""Builds arguments of `policy_loss` from golden cases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from golden_cases import Case
from torch import Tensor

from lightrft_ray.trainer.log_ratio import LOG_RATIO_LIMIT
from lightrft_ray.trainer.policy_losses import POLICY_LOSSES
from lightrft_ray.trainer.policy_tokens import PolicyTokens, TokenLoss

_LOSS_PARAMETERS = {
    "ppo": ("eps_low", "eps_high"),
    "ppo_dual_clip": ("eps_low", "eps_high", "dual_clip"),
    "gspo": ("eps_low", "eps_high"),
    "gspo_token": ("eps_low", "eps_high"),
    "gmpo": ("log_eps_low", "log_eps_high"),
    "cispo": ("eps_low", "eps_high"),
    "cpgd": ("eps_low", "eps_high", "drift_coef", "drift_cap"),
    "sapo": ("tau_pos", "tau_neg"),
    "reinforce": (),
}


def token_loss(case: Case) -> Callable[[PolicyTokens], TokenLoss]:
    """The token loss of the case, with its parameters bound."""
    name = case.param("loss")
    assert case.param("log_ratio_clamp", LOG_RATIO_LIMIT) == LOG_RATIO_LIMIT
    parameters = {key: case.param(key) for key in _LOSS_PARAMETERS[name] if case.has(key)}
    return partial(POLICY_LOSSES[name], **parameters)


def policy_tensors(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probs (with gradient), old log-probs, advantages, mask."""
    return (
        case.floats("log_probs").requires_grad_(),
        case.floats("old_log_probs"),
        case.floats("advantages"),
        case.mask(),
    )


def plain_denominators(denominators: Any, mask: Tensor) -> dict[str, Any]:
    """Our counts under the names of the files, which also give the number of padded rows."""
    return vars(denominators) | {"n_rows": len(mask)}
