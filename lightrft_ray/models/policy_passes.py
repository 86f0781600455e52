"""What actors and critics compute of a batch: log-probs, entropies, values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from lightrft_ray.models.families import (
    accepts,
    config_of,
    hugging_face_model,
    token_type_inputs,
    unwrapped,
)
from lightrft_ray.models.log_probs import sampled_distribution, token_entropy, token_log_probs
from lightrft_ray.models.output_heads import (
    has_fused_head,
    head_log_probs,
    logit_rule,
    output_head,
)
from lightrft_ray.models.positions import PositionRule, TextPositions, position_rule
from lightrft_ray.models.sequence_passes import (
    ActionCounts,
    SequencePass,
    packed_pass,
    padded_pass,
)
from lightrft_ray.models.token_models import Sampling


@dataclass(frozen=True)
class Batch:
    """The arguments of a forward call: `sequences` padded (B, S) or packed (1, T)."""

    sequences: Tensor
    num_actions: ActionCounts | None
    attention_mask: Tensor | None
    packed_seq_lens: Sequence[int] | Tensor | None
    media: Mapping[str, Tensor]


def make_pass(model: nn.Module, batch: Batch, *, pack: bool) -> SequencePass:
    """The pass of a batch; raises ValueError where the arguments do not fit together."""
    config = config_of(unwrapped(model))
    rule: PositionRule = TextPositions() if config is None else position_rule(config)
    if batch.packed_seq_lens is not None:
        return packed_pass(
            batch.sequences, batch.num_actions, batch.packed_seq_lens, rule, batch.media
        )
    if not isinstance(batch.num_actions, int | None):
        raise ValueError(f"num_actions {batch.num_actions}: a padded batch takes one number")
    return padded_pass(
        batch.sequences,
        batch.num_actions,
        batch.attention_mask,
        rule,
        batch.media,
        pack=pack,
    )


def policy_forward(
    model: nn.Module,
    batch: Batch,
    sampling: Sampling,
    *,
    pack: bool,
    return_output: bool,
    with_entropy: bool,
) -> Tensor | tuple[Tensor, ModelOutput]:
    """An actor's forward: log-probs in float32 and, where wanted, the model's output.

    The output has `action_entropy`, of the log-probs' shape, with `with_entropy`.
    """
    scored = make_pass(model, batch, pack=pack)
    if not return_output and has_fused_head(unwrapped(model)):
        return scored.scatter(_fused_log_probs(model, scored, sampling, batch.media))
    log_probs, entropy, output = _whole_log_probs(model, scored, sampling, batch.media)
    if not return_output:
        return log_probs
    if with_entropy:
        output["action_entropy"] = entropy
    return log_probs, output


def _fused_log_probs(
    model: nn.Module, scored: SequencePass, sampling: Sampling, media: Mapping[str, Tensor]
) -> Tensor:
    """(K,) log-probs by the backbone and its head: logits exist for a chunk of them at a time."""
    inner = hugging_face_model(model)
    states = inner.base_model(**_model_inputs(model, scored, media)).last_hidden_state
    log_probs, _ = head_log_probs(
        output_head(inner),
        scored.select(states),
        scored.labels,
        temperature=sampling.temperature,
        forbidden=sampling.forbidden_token_ids,
        rule=logit_rule(inner.config),
    )
    return log_probs


def _whole_log_probs(
    model: nn.Module, scored: SequencePass, sampling: Sampling, media: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, ModelOutput]:
    """Log-probs and entropies (without gradient) in the result's shape, float32, and the output.

    The output holds the logits of all tokens.
    """
    output = model(**_model_inputs(model, scored, media))
    distribution = sampled_distribution(
        scored.select(output.logits),
        temperature=sampling.temperature,
        forbidden=sampling.forbidden_token_ids,
    )
    log_probs = token_log_probs(distribution, scored.labels)
    entropy = token_entropy(distribution.detach())
    return scored.scatter(log_probs), scored.scatter(entropy), output


def value_forward(
    backbone: nn.Module, head: nn.Linear, batch: Batch, *, pack: bool
) -> tuple[Tensor, ModelOutput]:
    """A critic's forward: values in float32 and the backbone's output."""
    scored = make_pass(backbone, batch, pack=pack)
    output = backbone(**_model_inputs(backbone, scored, batch.media))
    states = scored.select(output.last_hidden_state)
    return scored.scatter(head(states.float())[:, 0]), output


def final_states(model: nn.Module, batch: Batch, *, pack: bool) -> Tensor:
    """(B, H) hidden states of a backbone at each sample's last real token."""
    scored = make_pass(model, batch, pack=pack)
    states = model(**_model_inputs(model, scored, batch.media)).last_hidden_state
    lengths = _sample_lengths(batch)
    if scored.attention_mask is None:  # a packed row
        return states[0, lengths.cumsum(0) - 1]
    last = scored.attention_mask.shape[1] - 1 - scored.attention_mask.flip(1).argmax(dim=1)
    return states[torch.arange(len(last), device=last.device), last]


def _sample_lengths(batch: Batch) -> Tensor:
    """(B,) real tokens of each sample."""
    device = batch.sequences.device
    if batch.packed_seq_lens is not None:
        return torch.as_tensor(batch.packed_seq_lens, device=device)
    if batch.attention_mask is None:
        return torch.full((len(batch.sequences),), batch.sequences.shape[1], device=device)
    return batch.attention_mask.bool().sum(dim=1)


def _model_inputs(
    model: nn.Module, scored: SequencePass, media: Mapping[str, Tensor]
) -> dict[str, Tensor | bool | None]:
    inner = unwrapped(model)
    optional: dict[str, Tensor | bool] = {"position_ids": scored.position_ids, "use_cache": False}
    return {
        "input_ids": scored.input_ids,
        "attention_mask": scored.attention_mask,
        # Hugging Face models hand what they do not name on to the language model inside.
        **{
            name: value
            for name, value in optional.items()
            if isinstance(inner, PreTrainedModel) or accepts(inner, name)
        },
        **token_type_inputs(inner, scored.input_ids),
        **media,
    }


@contextmanager
def evaluating(*models: nn.Module | None) -> Iterator[None]:
    """Without dropout inside; afterwards each model is in the mode that it was in."""
    modes = [(model, model.training) for model in models if model is not None]
    for model, _ in modes:
        model.eval()
    try:
        yield
    finally:
        for model, mode in modes:
            model.train(mode)
