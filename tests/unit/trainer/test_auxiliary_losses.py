"""The supervised and the load-balancing terms: values, and that micro-batches add up."""

import pytest
import torch
from torch import Tensor

from lightrft_ray.trainer.aggregation import Denominators
from lightrft_ray.trainer.auxiliary_losses import demonstration_loss, router_balance_loss
from lightrft_ray.trainer.metric_sums import Mean, merge_metrics, metric_values

_POLICY = Denominators(n_tokens=50, n_sequences=8)


def _log_probs() -> tuple[Tensor, Tensor]:
    """Three demonstrations of 4, 1 and 2 tokens; NaN where there is none."""
    mask = torch.arange(4)[None] < torch.tensor([4, 1, 2])[:, None]
    values = -torch.arange(1.0, 13.0).view(3, 4) / 4
    return torch.where(mask, values, torch.nan).requires_grad_(), mask


def test_the_supervised_term_is_the_mean_over_tokens() -> None:
    log_probs, mask = _log_probs()
    loss, metrics = demonstration_loss(log_probs, mask, coef=0.1, n_tokens=7, denominators=_POLICY)
    mean = (1 + 2 + 3 + 4 + 5 + 9 + 10) / 4 / 7
    assert loss.item() == pytest.approx(0.1 * mean)
    assert metric_values(metrics)["ptx_loss"] == pytest.approx(mean)
    (gradient,) = torch.autograd.grad(loss, log_probs)
    torch.testing.assert_close(gradient, torch.where(mask, -0.1 / 7, 0.0))


@pytest.mark.parametrize("cut", [1, 2])
def test_micro_batches_of_demonstrations_add_up(cut: int) -> None:
    log_probs, mask = _log_probs()
    whole, metrics = demonstration_loss(log_probs, mask, coef=0.1, n_tokens=7, denominators=_POLICY)
    parts = [
        demonstration_loss(log_probs[rows], mask[rows], coef=0.1, n_tokens=7, denominators=_POLICY)
        for rows in (slice(0, cut), slice(cut, 3))
    ]
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole.item())
    merged = metric_values(merge_metrics(parts[0][1], parts[1][1]))
    assert merged == pytest.approx(metric_values(metrics))


def test_the_routers_term_is_the_mean_over_samples() -> None:
    values = torch.tensor([2.0, 3.0], requires_grad=True)
    parts = [
        router_balance_loss(value, coef=0.5, n_samples=count, step_samples=8, denominators=_POLICY)
        for value, count in zip(values, (6, 2), strict=True)
    ]
    loss = parts[0][0] + parts[1][0]
    assert loss.item() == pytest.approx(0.5 * (6 * 2 + 2 * 3) / 8)
    (gradient,) = torch.autograd.grad(loss, values)
    assert gradient.tolist() == pytest.approx([0.5 * 6 / 8, 0.5 * 2 / 8])
    merged = metric_values(merge_metrics(parts[0][1], parts[1][1]))
    assert merged["aux_loss"] == pytest.approx(18 / 8)


def test_the_policys_loss_holds_both_terms() -> None:
    """Merged with the policy's own tokens, which alone count."""
    log_probs, mask = _log_probs()
    taught, added = demonstration_loss(log_probs, mask, coef=0.1, n_tokens=7, denominators=_POLICY)
    policy = Mean(torch.tensor(1.5) * 50, torch.tensor(50))
    merged = merge_metrics({"loss": policy}, added)
    assert metric_values(merged)["loss"] == pytest.approx(1.5 + taught.item())
