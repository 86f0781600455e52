"""Log-probs of sampled tokens straight from hidden states: the logits never exist whole.

The final projection, the family's own treatment of logits, temperature, forbidden ids, log-softmax,
gather and entropy run over chunks of tokens, forward and backward. The backward pass computes each
chunk's logits again: with gradients of both log-probs and entropies, which nobody knows before the
loss, nothing smaller than the logits would do. Everything behind the projection is float32.

Plain PyTorch on every device. No fused kernel stands in for it: that of liger-kernel 0.8.5 has
temperature and entropies, but neither forbidden ids, which every vision-language model needs, nor a
bias or a soft cap; that of cut-cross-entropy 25.1 has no entropies and drops small gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from lightrft_ray.models.log_probs import PLAIN_LOGITS, LogitRule, compute_dtype

_CHUNK_BYTES = 2**28  # of a chunk's logits: large enough for matrix products at full speed
_CACHED_ELEMENTS = 2**19  # of the rows that a CPU works on at a time: they stay in its cache
_NEVER = -1e30  # score of a forbidden id: its probability is 0, and 0 · score is 0, not NaN


@dataclass(frozen=True)
class _Scores:
    """How logits become the scores that softmax takes."""

    factor: float
    softcap: float | None
    temperature: float
    forbidden: Tensor

    def apply_(self, logits: Tensor) -> Tensor | None:
        """Logits to scores in place; with a soft cap, the slopes of scores by scaled logits."""
        slope = None
        if self.softcap is None:
            logits.mul_(self.factor / self.temperature)
        else:
            logits.mul_(self.factor / self.softcap).tanh_()
            slope = 1 - logits.square()
            logits.mul_(self.softcap / self.temperature)
        if len(self.forbidden):
            logits.index_fill_(-1, self.forbidden, _NEVER)
        return slope


class _Head(NamedTuple):
    weight: Tensor
    bias: Tensor | None

    def logits_into(self, buffer: Tensor, hidden: Tensor) -> Tensor:
        """(C, V) logits of `hidden` (C, H), in the front of the buffer."""
        out = buffer[: len(hidden)]
        if out.dtype != hidden.dtype:
            return out.copy_(functional.linear(hidden, self.weight, self.bias))
        torch.mm(hidden, self.weight.T, out=out)
        return out if self.bias is None else out.add_(self.bias)


def fused_log_probs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    token_ids: Tensor,
    *,
    temperature: float = 1.0,
    forbidden: Sequence[int] = (),
    rule: LogitRule = PLAIN_LOGITS,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (M,) in nats of `token_ids` (M,), predicted by `hidden` (M, H).

    `weight` (V, H) and `bias` (V,) are the output head's. Results are float32 (float64 for float64
    inputs), equal to those of `log_probs.sampled_distribution`; both have gradients with respect
    to `hidden`, `weight` and `bias`, once. Memory is that of `chunk_tokens` rows of logits.
    """
    ids = torch.tensor(list(forbidden), dtype=torch.long, device=hidden.device)
    scores = _Scores(rule.scale, rule.softcap, temperature, ids)
    size = chunk_tokens or chunk_size(len(weight), weight.dtype)
    log_probs, entropy = _FusedLogProbs.apply(
        hidden.to(weight.dtype), weight, bias, token_ids, scores, size
    )
    return log_probs, entropy


def chunk_size(vocabulary: int, dtype: torch.dtype) -> int:
    """Tokens whose logits fill a chunk's memory."""
    return max(1, _CHUNK_BYTES // (vocabulary * compute_dtype(dtype).itemsize))


class _FusedLogProbs(torch.autograd.Function):
    """The computation in chunks; the backward pass keeps two numbers a token of the forward's."""

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd takes no keywords
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        token_ids: Tensor,
        scores: _Scores,
        size: int,
    ) -> tuple[Tensor, Tensor]:
        """(M,) log-probs and entropies."""
        results = hidden.new_empty((3, len(hidden)), dtype=compute_dtype(weight.dtype))
        for rows, logits in _chunks(hidden, _Head(weight, bias), size):
            for part, block in _cached_rows(rows, logits):
                results[:, part] = _score_block(block, token_ids[part], scores)
        log_probs, entropy, log_total = results
        ctx.save_for_backward(hidden, weight, bias, token_ids, entropy, log_total)
        ctx.scores, ctx.size = scores, size
        ctx.set_materialize_grads(False)
        never = torch.isin(token_ids, scores.forbidden)
        return log_probs.masked_fill(never, -torch.inf), entropy.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Gradients of `hidden`, `weight` and `bias`; the others have none."""
        hidden, weight, bias, token_ids, entropy, log_total = ctx.saved_tensors
        if grad_log_probs is None:
            grad_log_probs = torch.zeros_like(entropy)
        upstream = _Upstream.of(ctx.scores, token_ids, grad_log_probs, grad_entropy, entropy)
        sums = _GradientSums(hidden, weight, bias, ctx.needs_input_grad)
        for rows, logits in _chunks(hidden, _Head(weight, bias), ctx.size):
            for part, block in _cached_rows(rows, logits):
                _to_gradient_(block, token_ids[part], log_total[part], upstream.select(part))
            sums.add(rows, logits)
        return (*sums.results(), None, None, None)


def _chunks(hidden: Tensor, head: _Head, size: int) -> Iterator[tuple[slice, Tensor]]:
    """(rows, logits) of `size` tokens at a time; all share one buffer."""
    dtype = compute_dtype(head.weight.dtype)
    buffer = hidden.new_empty((min(size, len(hidden)), len(head.weight)), dtype=dtype)
    for start in range(0, len(hidden), size):
        rows = slice(start, min(start + size, len(hidden)))
        yield rows, head.logits_into(buffer, hidden[rows])


def _cached_rows(rows: slice, logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """A chunk in pieces: on a CPU the several passes over a piece find it in the cache."""
    count, width = logits.shape
    step = max(1, _CACHED_ELEMENTS // width) if logits.device.type == "cpu" else count
    for start in range(0, count, step):
        stop = min(start + step, count)
        yield slice(rows.start + start, rows.start + stop), logits[start:stop]


def _score_block(logits: Tensor, token_ids: Tensor, scores: _Scores) -> Tensor:
    """(3, C): log-probs, entropies, and logarithms of the softmax's denominators."""
    scores.apply_(logits)
    peak = logits.amax(dim=-1)
    logits.sub_(peak[:, None])
    chosen = logits.gather(1, token_ids[:, None])[:, 0]
    exponentials = logits.exp()
    total = exponentials.sum(dim=-1)
    log_total = total.log()
    entropy = log_total - logits.mul_(exponentials).sum(dim=-1) / total
    return torch.stack([chosen - log_total, entropy, peak + log_total])


class _Upstream(NamedTuple):
    """What comes from above, (M,) each, for scores whose softmax has the entropy H.

    The gradient with respect to a score s with log-prob l is -exp(l) · (log_prob + entropy ·
    (l + H)), and `label` more for the sampled token's.
    """

    scores: _Scores
    label: Tensor
    log_prob: Tensor
    entropy: Tensor | None
    total: Tensor  # log_prob + entropy · H

    @classmethod
    def of(
        cls,
        scores: _Scores,
        token_ids: Tensor,
        grad_log_probs: Tensor,
        grad_entropy: Tensor | None,
        entropy: Tensor,
    ) -> _Upstream:
        slope = scores.factor / scores.temperature
        log_prob = grad_log_probs * slope
        label = log_prob.masked_fill(torch.isin(token_ids, scores.forbidden), 0)
        if grad_entropy is None:
            return cls(scores, label, log_prob, None, log_prob)
        scaled = grad_entropy * slope
        return cls(scores, label, log_prob, scaled, log_prob + scaled * entropy)

    def select(self, rows: slice) -> _Upstream:
        entropy = None if self.entropy is None else self.entropy[rows]
        return _Upstream(
            self.scores, self.label[rows], self.log_prob[rows], entropy, self.total[rows]
        )


def _to_gradient_(
    logits: Tensor, token_ids: Tensor, log_total: Tensor, upstream: _Upstream
) -> None:
    """Turn logits (C, V) into the gradient with respect to them, in place."""
    slope = upstream.scores.apply_(logits)
    logits.sub_(log_total[:, None])
    if upstream.entropy is None:
        logits.exp_().mul_(-upstream.total[:, None])
    else:
        probabilities = logits.exp()
        logits.mul_(upstream.entropy[:, None]).add_(upstream.total[:, None])
        logits.mul_(probabilities).neg_()
    logits.scatter_add_(1, token_ids[:, None], upstream.label[:, None])
    if slope is not None:
        logits.mul_(slope)


class _GradientSums:
    """Gradients summed over chunks: the weight's and the bias's in float32."""

    def __init__(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, needed: Sequence[bool]
    ) -> None:
        dtype = compute_dtype(weight.dtype)
        self._inputs = hidden, weight, bias
        self._hidden = torch.empty_like(hidden) if needed[0] else None
        self._weight = torch.zeros_like(weight, dtype=dtype) if needed[1] else None
        self._bias = torch.zeros_like(bias, dtype=dtype) if bias is not None and needed[2] else None

    def add(self, rows: slice, gradient: Tensor) -> None:
        """A chunk's gradient (C, V) with respect to its logits."""
        hidden, weight, _ = self._inputs
        if self._bias is not None:
            self._bias += gradient.sum(dim=0)
        gradient = gradient.to(weight.dtype)
        if self._hidden is not None:
            torch.mm(gradient, weight, out=self._hidden[rows])
        if self._weight is None:
            return
        if self._weight.dtype == weight.dtype:
            self._weight.addmm_(gradient.T, hidden[rows])
        else:
            self._weight += gradient.T @ hidden[rows]

    def results(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """In the types of the inputs."""
        _, weight, bias = self._inputs
        return (
            self._hidden,
            None if self._weight is None else self._weight.to(weight.dtype),
            None if self._bias is None or bias is None else self._bias.to(bias.dtype),
        )
