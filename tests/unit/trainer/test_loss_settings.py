"""Settings of the policy losses: which losses take them, and that they reach them."""

import inspect
from typing import get_args

import pytest
import torch

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.config.algorithm import POLICY_LOSS_SETTINGS, PolicyLossName
from lightrft_ray.trainer.objectives import LOSS_PARAMETERS, bound_token_loss
from lightrft_ray.trainer.policy_losses import POLICY_LOSSES
from lightrft_ray.trainer.policy_tokens import PolicyTokens


def _tokens() -> PolicyTokens:
    generator = torch.Generator().manual_seed(0)
    current, old, advantages = torch.randn(3, 6, 4, generator=generator) / 2
    mask = torch.arange(4)[None] < torch.tensor([4, 1, 0, 3, 2, 4])[:, None]
    return PolicyTokens.of(current, old, advantages, mask)


_BOUND: dict[str, dict[str, tuple[str, float]]] = {  # argument -> (setting, value)
    "ppo": {"eps_low": ("eps_clip", 0.1), "eps_high": ("eps_clip_high", 0.3)},
    "ppo_dual_clip": {
        "eps_low": ("eps_clip", 0.1),
        "eps_high": ("eps_clip_high", 0.3),
        "dual_clip": ("dual_clip", 1.2),
    },
    "gspo": {"eps_low": ("eps_clip", 0.01), "eps_high": ("eps_clip_high", 0.02)},
    "gspo_token": {"eps_low": ("eps_clip", 0.01), "eps_high": ("eps_clip_high", 0.02)},
    "gmpo": {"log_eps_low": ("eps_clip", 0.1), "log_eps_high": ("eps_clip_high", 0.2)},
    "cispo": {"eps_low": ("eps_clip", 0.1), "eps_high": ("eps_clip_high", 0.05)},
    "cpgd": {
        "eps_low": ("eps_clip", 0.1),
        "eps_high": ("eps_clip_high", 0.3),
        "drift_coef": ("cpgd_drift_coef", 0.5),
        "drift_cap": ("cpgd_drift_cap", 0.1),
    },
    "sapo": {"tau_pos": ("sapo_tau_pos", 2.0), "tau_neg": ("sapo_tau_neg", 3.0)},
    "reinforce": {},
}


def _parameters(loss: str) -> set[str]:
    signature = inspect.signature(POLICY_LOSSES[loss])
    return {name for name, one in signature.parameters.items() if one.kind == one.KEYWORD_ONLY}


@pytest.mark.parametrize("loss", get_args(PolicyLossName))
def test_each_setting_of_a_loss_reaches_it(loss: str) -> None:
    """The values of the formulas are pinned by the golden vectors."""
    tokens = _tokens()
    assert _parameters(loss) == _BOUND[loss].keys()
    for argument, (setting, value) in _BOUND[loss].items():
        given = {argument: value}
        if setting == "eps_clip":  # which eps_clip_high follows
            given |= {name: value for name, one in _BOUND[loss].items() if "high" in one[0]}
        if argument == "drift_cap":
            given["drift_coef"] = 0.5
        settings = {_BOUND[loss][name][0]: value for name, value in given.items()}
        if setting == "eps_clip":
            del settings["eps_clip_high"]
        algorithm = AlgorithmConfig(policy_loss=loss, **settings)
        own = bound_token_loss(algorithm)(tokens).loss
        assert torch.equal(own, POLICY_LOSSES[loss](tokens, **given).loss)
        assert not torch.equal(own, POLICY_LOSSES[loss](tokens).loss), setting


@pytest.mark.parametrize("loss", get_args(PolicyLossName))
def test_without_settings_a_loss_has_its_own_defaults(loss: str) -> None:
    tokens = _tokens()
    own = bound_token_loss(AlgorithmConfig(policy_loss=loss))(tokens).loss
    assert torch.equal(own, POLICY_LOSSES[loss](tokens).loss)


def test_a_setting_is_checked_for_the_losses_that_take_it() -> None:
    takers = {
        setting: {loss for loss, names in LOSS_PARAMETERS.items() if setting in names}
        for setting in POLICY_LOSS_SETTINGS
    }
    assert takers == POLICY_LOSS_SETTINGS
