"""Log-probs and entropies of the sampled distribution."""

import math
from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run
from torch import Tensor

from lightrft_ray.models.fused_log_probs import fused_log_probs
from lightrft_ray.models.log_probs import sampled_distribution, token_entropy, token_log_probs


def _gather(case: Case) -> dict[str, Any]:
    distribution = sampled_distribution(
        case.floats("logits"), temperature=case.param("temperature")
    )
    log_probs = token_log_probs(distribution, case.integers("labels"))
    return {"log_probs": log_probs, "entropy": token_entropy(distribution)}


def _causal(case: Case) -> dict[str, Any]:
    logits = case.floats("logits")[:, :-1]
    distribution = sampled_distribution(logits, temperature=case.param("temperature"))
    return {"log_probs": token_log_probs(distribution, case.integers("input_ids")[:, 1:])}


def _fused(logits: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Logits are the hidden states of a head that changes nothing."""
    head = torch.eye(logits.shape[-1], dtype=logits.dtype)
    flat = logits.flatten(0, -2), head, None, labels.flatten()
    log_probs, entropy = fused_log_probs(*flat, temperature=temperature, chunk_tokens=3)
    return log_probs.view(labels.shape), entropy.view(labels.shape)


def _fused_gather(case: Case) -> dict[str, Any]:
    logits, labels = case.floats("logits"), case.integers("labels")
    log_probs, entropy = _fused(logits, labels, case.param("temperature"))
    return {"log_probs": log_probs, "entropy": entropy}


def _fused_causal(case: Case) -> dict[str, Any]:
    logits, labels = case.floats("logits")[:, :-1], case.integers("input_ids")[:, 1:]
    return {"log_probs": _fused(logits, labels, case.param("temperature"))[0]}


_ADAPTERS = {
    "plain": {"gather": _gather, "causal": _causal},
    "fused": {"gather": _fused_gather, "causal": _fused_causal},
}


@pytest.mark.parametrize("kind", _ADAPTERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("logprobs"), ids=str)
def test_golden_log_probs(case: Case, dtype: torch.dtype, kind: str) -> None:
    run(case, dtype, _ADAPTERS[kind])


@pytest.mark.parametrize("kind", _ADAPTERS)
@pytest.mark.parametrize(
    "case", [case for case in load("logprobs") if "bf16-logits" in case.raw["tags"]], ids=str
)
def test_bfloat16_logits_lose_nothing(case: Case, kind: str) -> None:
    run(case, torch.bfloat16, _ADAPTERS[kind])


def test_results_are_float32_for_half_precision() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        assert sampled_distribution(torch.randn(3, 5).to(dtype)).dtype == torch.float32


def test_forbidden_ids_leave_the_distribution_of_the_others() -> None:
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double()
    distribution = sampled_distribution(logits, temperature=0.7, forbidden=(1, 4))
    allowed = [0, 2, 3, 5]
    by_hand = (logits[:, allowed] / 0.7).exp()
    by_hand = by_hand / by_hand.sum(dim=1, keepdim=True)
    torch.testing.assert_close(distribution[:, allowed].exp(), by_hand)
    assert (distribution[:, [1, 4]] == -math.inf).all()
    expected = -(by_hand * by_hand.log()).sum(dim=1)
    torch.testing.assert_close(token_entropy(distribution), expected)


def test_gradients_are_finite_with_forbidden_ids() -> None:
    logits = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    distribution = sampled_distribution(logits, forbidden=(1, 4))
    loss = token_log_probs(distribution, torch.tensor([0, 2, 3, 5])).sum()
    (loss + token_entropy(distribution).sum()).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[:, [1, 4]] == 0).all()
    assert (logits.grad[:, [0, 2, 3, 5]] != 0).all()


def test_an_almost_certain_token_has_entropy_zero() -> None:
    distribution = sampled_distribution(torch.tensor([[0.0, 1e5, -1e5]]))
    assert token_entropy(distribution).item() == 0
