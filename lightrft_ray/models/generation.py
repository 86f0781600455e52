"""Sampling from a policy by transformers' own loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

from lightrft_ray.models.families import hugging_face_model, token_type_inputs
from lightrft_ray.models.policy_passes import evaluating
from lightrft_ray.models.positions import MRopePositions, position_rule
from lightrft_ray.models.sequence_passes import packed_position_ids
from lightrft_ray.models.sequences import (
    SequenceLayout,
    padded_behind,
    process_sequences,
    until_stop,
)
from lightrft_ray.models.token_models import Sampling


@dataclass(frozen=True)
class GenerationSettings:
    """Keywords of `generate`; others are a TypeError.

    Without any, tokens are drawn from the policy's own distribution, whatever sampling settings
    come with the checkpoint. A temperature of 0 is greedy. Ids None: those of the checkpoint.
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    num_beams: int = 1
    num_return_sequences: int = 1
    early_stopping: bool = False
    use_cache: bool = True
    eos_token_id: int | Sequence[int] | None = None
    pad_token_id: int | None = None


def generate_sequences(
    model: nn.Module,
    input_ids: Tensor,
    media: Mapping[str, Tensor],
    sampling: Sampling,
    *,
    attention_mask: Tensor | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """`(sequences, attention_mask, action_mask)` of sampled responses to `input_ids` (B, P).

    `settings` are those of `GenerationSettings`. Without a mask, pad tokens before a prompt are
    padding.
    """
    chosen = GenerationSettings(**settings)
    inner = hugging_face_model(model)
    stop_ids, pad_id = _special_ids(inner, chosen)
    width = input_ids.shape[1]
    if attention_mask is None:
        _, attention_mask, _ = process_sequences(input_ids, width, stop_ids, pad_id)
    with evaluating(model), torch.no_grad():
        sequences = inner.generate(  # type: ignore[operator]
            input_ids=input_ids,
            attention_mask=attention_mask,
            generation_config=_generation_config(chosen, sampling, stop_ids, pad_id),
            **_positions(inner, input_ids, attention_mask.bool(), media),
            **token_type_inputs(inner, input_ids),
            **media,
        )
    prompt_mask = attention_mask.repeat_interleave(chosen.num_return_sequences, dim=0)
    # A row is padded behind a stop token alone: any other pad token was sampled.
    action_mask = until_stop(sequences[:, width:], stop_ids)
    return padded_behind(sequences, prompt_mask, action_mask, pad_id)


def _positions(
    model: PreTrainedModel, input_ids: Tensor, mask: Tensor, media: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """M-RoPE ids (4, B, P) as scoring has them, led by plain ones; other models need none."""
    rule = position_rule(model.config)
    if not isinstance(rule, MRopePositions):
        return {}
    lengths = mask.sum(dim=1)
    layout = SequenceLayout.of_lengths(lengths, torch.zeros_like(lengths))
    packed = packed_position_ids(rule, input_ids[mask], layout, media)
    positions = packed.new_zeros(4, *mask.shape)
    positions[:, mask] = torch.cat([layout.packed_positions[None], packed])
    return {"position_ids": positions}


def _special_ids(model: PreTrainedModel, settings: GenerationSettings) -> tuple[list[int], int]:
    """Stop ids and the pad id, by default the checkpoint's; a stop id pads where nothing else."""
    own: GenerationConfig = model.generation_config
    stop = own.eos_token_id if settings.eos_token_id is None else settings.eos_token_id
    if stop is None:
        raise ValueError("eos_token_id: neither given nor part of the checkpoint")
    stop_ids = [stop] if isinstance(stop, int) else list(stop)
    pad = own.pad_token_id if settings.pad_token_id is None else settings.pad_token_id
    return stop_ids, stop_ids[0] if pad is None else pad


def _generation_config(
    settings: GenerationSettings, sampling: Sampling, stop_ids: list[int], pad_id: int
) -> GenerationConfig:
    temperature = sampling.temperature
    if settings.temperature is not None:
        temperature = settings.temperature
    samples = temperature > 0 if settings.do_sample is None else settings.do_sample
    drawn = {"temperature": temperature, "top_k": settings.top_k, "top_p": settings.top_p}
    return GenerationConfig(
        max_new_tokens=settings.max_new_tokens,
        max_length=settings.max_length,
        min_new_tokens=settings.min_new_tokens,
        do_sample=samples,
        **(drawn if samples else {}),
        repetition_penalty=settings.repetition_penalty,
        num_beams=settings.num_beams,
        num_return_sequences=settings.num_return_sequences,
        early_stopping=settings.early_stopping,
        use_cache=settings.use_cache,
        eos_token_id=stop_ids,
        pad_token_id=pad_id,
        suppress_tokens=list(sampling.forbidden_token_ids) or None,
    )
