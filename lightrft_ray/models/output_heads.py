"""Log-probs and entropies by a model's own output head, whatever kind of layer it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.fused_log_probs import chunk_size, fused_log_probs
from lightrft_ray.models.log_probs import (
    PLAIN_LOGITS,
    LogitRule,
    sampled_distribution,
    token_entropy,
    token_log_probs,
)

# What families that treat their logits in further ways call the numbers for it.
_UNKNOWN_RULES = (
    "lm_head_multiplier",
    "logits_soft_cap",
    "output_logit_soft_cap",
    "output_multiplier",
    "unpadded_vocab_size",
)


def logit_rule(config: PretrainedConfig) -> LogitRule:
    """What the family does to its head's outputs (Gemma's soft cap, Granite's and Cohere's scale).

    Raises UserError for a family whose rule is not known here.
    """
    text = getattr(config, "text_config", config)
    for name in _UNKNOWN_RULES:
        if getattr(text, name, None) is not None:
            raise UserError(
                f"models of the family {config.model_type!r} change their logits by {name!r}, "
                "which is not supported"
            )
    factor = getattr(text, "logit_scale", None)
    divisor = getattr(text, "logits_scaling", None)
    scale = (1.0 if factor is None else factor) / (1.0 if divisor is None else divisor)
    return LogitRule(scale, getattr(text, "final_logit_softcapping", None))


def has_fused_head(model: nn.Module) -> bool:
    """Whether `output_head` and `logit_rule` can stand for the end of the model's forward."""
    if not isinstance(model, PreTrainedModel) or model.base_model is model:
        return False
    try:
        logit_rule(model.config)
    except UserError:
        return False
    return isinstance(model.get_output_embeddings(), nn.Module)


def output_head(model: PreTrainedModel) -> nn.Module:
    """The layer that gives logits; UserError where the model has none."""
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Module):
        raise UserError(f"{type(model).__name__} has no language-model head")
    return head


def head_log_probs(
    head: nn.Module,
    hidden: Tensor,
    token_ids: Tensor,
    *,
    temperature: float,
    forbidden: Sequence[int],
    rule: LogitRule = PLAIN_LOGITS,
    trains_entropy: bool = False,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies (M,) of `token_ids` (M,), predicted by `hidden` (M, H).

    Entropies have a gradient only with `trains_entropy`. A linear head runs fused; any other
    (adapted, quantised, wrapped) is called on chunks that the backward pass calls it on again.
    Either way the head is called as a module, so that ZeRO-3 gathers its weight around the call.
    """
    if type(head) is nn.Linear and "forward" not in vars(head):

        def fused(states: Tensor) -> tuple[Tensor, Tensor]:
            log_probs, entropy = fused_log_probs(
                states,
                head.weight,
                head.bias,
                token_ids,
                temperature=temperature,
                forbidden=forbidden,
                rule=rule,
                chunk_tokens=chunk_tokens,
            )
            return log_probs, entropy if trains_entropy else entropy.detach()

        with _forward_replaced(head, fused):
            return head(hidden)

    def scored(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        distribution = sampled_distribution(
            rule.apply(head(states)), temperature=temperature, forbidden=forbidden
        )
        entropy = token_entropy(distribution if trains_entropy else distribution.detach())
        return token_log_probs(distribution, ids), entropy

    size = chunk_tokens or chunk_size(getattr(head, "out_features", hidden.shape[1]), hidden.dtype)
    return _in_chunks(scored, hidden, token_ids, size)


def _in_chunks(
    scored: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    hidden: Tensor,
    token_ids: Tensor,
    size: int,
) -> tuple[Tensor, Tensor]:
    """(M,) results of `size` tokens at a time, of which the backward pass keeps the inputs."""
    results = [
        checkpoint(scored, *chunk, use_reentrant=False)
        for chunk in zip(hidden.split(size), token_ids.split(size), strict=True)
    ]
    log_probs, entropies = zip(*results, strict=True)
    return torch.cat(log_probs), torch.cat(entropies)


@contextmanager
def _forward_replaced(
    module: nn.Module, forward: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Iterator[None]:
    """A call of the module inside runs `forward` between the module's hooks."""
    module.forward = forward
    try:
        yield
    finally:
        del module.forward  # the class's own again
