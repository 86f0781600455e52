"""Policy losses: values, gradients, aggregation, metrics."""

from functools import partial
from typing import Any

import pytest
import torch
from golden_cases import DTYPES, Case, load, run
from golden_losses import plain_denominators, policy_tensors, token_loss

from lightrft_ray.config.errors import UserError
from lightrft_ray.trainer.aggregation import (
    Denominators,
    aggregate,
    count_denominators,
    group_token_counts,
)
from lightrft_ray.trainer.metric_sums import merge_metrics, metric_values
from lightrft_ray.trainer.policy_losses import (
    POLICY_LOSSES,
    KLPenalty,
    PolicyLoss,
    policy_loss,
)


def _kl_penalty(case: Case) -> KLPenalty | None:
    if not case.has("kl_coef"):
        return None
    return KLPenalty(
        case.floats("ref_log_probs"), case.param("kl_coef"), case.param("kl_estimator")
    )


def _policy_loss(case: Case) -> dict[str, Any]:
    tensors = policy_tensors(case)
    log_probs, mask = tensors[0], tensors[3]
    group_ids = case.integers("group_ids") if case.has("group_ids") else None
    denominators = count_denominators(
        mask, group_ids=group_ids, horizon=case.param("horizon", None)
    )
    result = policy_loss(
        *tensors,
        token_loss=token_loss(case),
        aggregation=case.param("agg"),
        denominators=denominators,
        group_tokens=None if group_ids is None else group_token_counts(mask, group_ids),
        kl_penalty=_kl_penalty(case),
    )
    (gradient,) = torch.autograd.grad(result.loss, log_probs)
    return {
        "loss": result.loss,
        "grad_log_probs": gradient,
        "token_loss": result.token_loss,
        "denominators": plain_denominators(denominators, mask),
        "metrics": metric_values(result.metrics),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", load("policy_loss"), ids=str)
def test_policy_loss_golden(case: Case, dtype: torch.dtype) -> None:
    run(case, dtype, {"policy_loss": _policy_loss}, information=["loss_log_prob_form"])


def _random_batch(n_rows: int = 6) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    log_probs, noise, advantages = torch.randn(3, n_rows, 5, generator=generator)
    mask = torch.rand(n_rows, 5, generator=generator) < 0.7
    return log_probs - 2, log_probs - 2 + 0.3 * noise, advantages, mask


def _loss_of(batch: tuple[torch.Tensor, ...], name: str, denominators: Denominators) -> PolicyLoss:
    return policy_loss(
        *batch,
        token_loss=POLICY_LOSSES[name],
        aggregation="token-mean",
        denominators=denominators,
    )


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_metrics_of_micro_batches_merge_to_those_of_the_batch(name: str) -> None:
    batch = _random_batch()
    denominators = count_denominators(batch[3])
    first = _loss_of(tuple(part[:1] for part in batch), name, denominators)
    second = _loss_of(tuple(part[1:] for part in batch), name, denominators)

    expected = pytest.approx(metric_values(_loss_of(batch, name, denominators).metrics))
    assert metric_values(merge_metrics(first.metrics, second.metrics)) == expected
    assert metric_values(merge_metrics(second.metrics, first.metrics)) == expected


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_half_precision_inputs_give_a_float32_loss(name: str) -> None:
    log_probs, old_log_probs, advantages, mask = _random_batch()
    batch = (log_probs.bfloat16(), old_log_probs.bfloat16(), advantages.bfloat16(), mask)

    assert _loss_of(batch, name, count_denominators(mask)).loss.dtype == torch.float32


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_a_ratio_beyond_float32_leaves_loss_and_gradient_finite(name: str) -> None:
    log_probs = torch.tensor([[-0.1, -1.0]], requires_grad=True)
    batch = (
        log_probs,
        torch.tensor([[-500.0, -1.0]]),
        torch.tensor([[1.0, 1.0]]),
        torch.ones(1, 2),
    )

    result = _loss_of(batch, name, count_denominators(batch[3]))
    result.loss.backward()

    assert result.loss.isfinite()
    assert log_probs.grad is not None
    assert log_probs.grad.isfinite().all()


def test_token_weights_scale_the_loss_but_not_the_denominator_or_the_kl() -> None:
    log_probs, old_log_probs, advantages, mask = _random_batch()
    penalty = KLPenalty(old_log_probs, coef=0.1, estimator="k2")
    call = partial(
        policy_loss,
        log_probs,
        old_log_probs,
        advantages,
        mask,
        token_loss=POLICY_LOSSES["ppo"],
        aggregation="token-mean",
        denominators=count_denominators(mask),
    )
    plain, kl_only = call(), call(token_weights=torch.zeros_like(log_probs), kl_penalty=penalty)

    both = call(token_weights=torch.full_like(log_probs, 0.5), kl_penalty=penalty)

    torch.testing.assert_close(both.loss, 0.5 * plain.loss + kl_only.loss)
    assert kl_only.loss > 0


def test_modes_say_what_they_lack() -> None:
    mask = torch.ones(2, 3)
    counts = Denominators(n_tokens=6, n_sequences=2)

    with pytest.raises(UserError, match="horizon"):
        aggregate(mask, mask, mode="seq-mean-token-sum-norm", denominators=counts)
    with pytest.raises(UserError, match="prompt groups"):
        aggregate(mask, mask, mode="group-token-mean", denominators=counts)
