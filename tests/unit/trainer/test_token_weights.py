"""Weights of tokens in the policy loss: what the configuration asks for is what is computed."""

import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.config.algorithm import OffPolicyCorrection
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.metric_sums import metric_values
from lightrft_ray.trainer.off_policy import CORRECTIONS
from lightrft_ray.trainer.token_weights import weigh_tokens

_MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]]).bool()
_ROLLOUT = torch.tensor([[-1.0, -2.0, -1.0], [-3.0, -1.0, 1e30], [1e30, 1e30, 1e30]])
# Probability ratios of the learner to the generator: 3, 1/4, 1 and 2, 1.
_LEARNER = _ROLLOUT + torch.tensor([[3.0, 0.25, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, 1.0]]).log()
_ENTROPY = torch.tensor([[0.1, 0.5, 0.4], [0.2, 0.3, 1e30], [1e30, 1e30, 1e30]])


def _weigh(**settings: Any) -> tuple[Tensor | None, dict[str, float]]:
    experience = ExperienceVL(
        torch.zeros(3, 0),
        action_log_probs=_LEARNER,
        action_mask=_MASK,
        action_entropy=_ENTROPY,
        info={"reward": _MASK},
    )
    algorithm = AlgorithmConfig(**{"old_log_probs": "learner", **settings})
    weighed, metrics = weigh_tokens(experience, _ROLLOUT, algorithm)
    assert weighed.info is not None and weighed.info["reward"] is _MASK
    assert experience.info is not None and experience.info.keys() == {"reward"}
    return weighed.info.get("token_weights"), metric_values(metrics)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [[2, 0.25, 1], [2, 1, 0], [0, 0, 0]]),
        ({"off_policy_cap": 1.5}, [[1.5, 0.25, 1], [1.5, 1, 0], [0, 0, 0]]),
        (
            {"off_policy_correction": "sequence_truncate", "off_policy_cap": 1.0},
            [[0.75, 0.75, 0.75], [1, 1, 0], [0, 0, 0]],
        ),
        ({"off_policy_correction": "token_mask"}, [[3, 0, 1], [2, 1, 0], [0, 0, 0]]),
        (
            {
                "off_policy_correction": "token_mask",
                "off_policy_low": 0.2,
                "off_policy_high": 2.5,
            },
            [[0, 0.25, 1], [2, 1, 0], [0, 0, 0]],
        ),
        (
            {"off_policy_correction": "sequence_mask", "off_policy_high": 1.5},
            [[0.75, 0.75, 0.75], [0, 0, 0], [0, 0, 0]],
        ),
        (
            {"off_policy_correction": "geometric_mask", "off_policy_low": 0.8},
            [[1, 1, 1], [0, 0, 0], [0, 0, 0]],
        ),
        (
            {"off_policy_correction": "geometric_mask_token_weight", "off_policy_high": 1.5},
            [[0, 0, 0], [2, 1, 0], [0, 0, 0]],
        ),
    ],
    ids=str,
)
def test_corrections_by_hand(settings: dict[str, Any], expected: list[list[float]]) -> None:
    weights, _ = _weigh(**settings)
    assert weights is not None
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("correction", ["none", "token_truncate"])
def test_the_mismatch_is_always_measured(correction: str) -> None:
    weights, metrics = _weigh(off_policy_correction=correction)
    assert (weights is None) == (correction == "none")
    ratios = [3, 0.25, 1, 2, 1]
    assert metrics["log_prob_gap_max"] == pytest.approx(math.log(4))
    assert metrics["mismatch_k1"] == pytest.approx(-sum(math.log(w) for w in ratios) / 5, rel=1e-5)
    assert metrics["mismatch_k3"] == pytest.approx(
        sum(w - 1 - math.log(w) for w in ratios) / 5, rel=1e-5
    )
    assert metrics["raw_token_ratio_max"] == pytest.approx(3)
    assert metrics["mismatch_ess"] == pytest.approx(
        sum(ratios) ** 2 / (5 * sum(w * w for w in ratios))
    )
    assert metrics.get("hit_fraction") == (None if correction == "none" else pytest.approx(0.2))


def test_with_the_generators_log_probs_below_the_ratio_there_is_nothing_to_weigh() -> None:
    assert _weigh(old_log_probs="rollout") == (None, {})


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        ("none", [[0, 1, 1], [0, 0, 0], [0, 0, 0]]),
        ("token_truncate", [[0, 0.25, 1], [0, 0, 0], [0, 0, 0]]),
    ],
)
def test_tokens_of_low_entropy_are_left_out(correction: str, expected: list[list[float]]) -> None:
    """Two fifths of the batch's five tokens, whichever samples they are in."""
    weights, _ = _weigh(off_policy_correction=correction, high_entropy_token_ratio=0.4)
    assert weights is not None
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float32))


def test_every_correction_can_be_chosen() -> None:
    assert set(get_args(OffPolicyCorrection)) == {"none", *CORRECTIONS}
