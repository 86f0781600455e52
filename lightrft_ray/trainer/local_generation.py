"""Samples drawn by an actor in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.trainer.batch_media import batch_extras, batch_fields, model_inputs
from lightrft_ray.trainer.experience_types import SamplesVL
from lightrft_ray.trainer.prompt_inputs import PromptInputs, left_padded


@dataclass(frozen=True, eq=False)
class PromptRow:
    """One prompt and what belongs to it; repeated for each of its samples."""

    text: str
    inputs: PromptInputs
    reference: str | None
    label: str | None


def prompt_rows(
    texts: Sequence[str],
    encoded: Sequence[PromptInputs],
    references: Sequence[str] | None,
    labels: Sequence[str] | None,
) -> list[PromptRow]:
    """The prompts with their columns; ValueError for a column of another length."""
    columns: list[Sequence[str | None]] = []
    for name, values in (("all_references", references), ("all_labels", labels)):
        column = [None] * len(texts) if values is None else list(values)
        if len(column) != len(texts):
            raise ValueError(f"{name} has {len(column)} entries for {len(texts)} prompts")
        columns.append(column)
    return [PromptRow(*row) for row in zip(texts, encoded, *columns, strict=True)]


def prompt_batch(
    prompts: Sequence[PromptInputs], pad_token_id: int, device: torch.device | str | None
) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` (B, P), left-padded, and the prompts' media."""
    padded = left_padded([prompt.token_ids for prompt in prompts], pad_token_id)
    media = [prompt.media for prompt in prompts]
    shown = SamplesVL(padded["input_ids"], **batch_fields(media))  # type: ignore[arg-type]
    shown.media_inputs = batch_extras(media)
    return {name: value.to(device) for name, value in (padded | model_inputs(shown)).items()}


def score_at(models: Sequence[nn.Module | None], temperature: float) -> None:
    """Have actors score at the temperature that samples are drawn with."""
    for model in models:
        if isinstance(model, ActorLanguage | ActorVL):
            model.sampling = replace(model.sampling, temperature=temperature)


def generate_batch(
    actor: nn.Module,
    rows: Sequence[PromptRow],
    tokenizer: PreTrainedTokenizerBase,
    pad_token_id: int,
    arguments: dict[str, Any],
) -> SamplesVL:
    """One sample of each row; `arguments` are those of the actor's `generate`."""
    device = next(actor.parameters()).device
    prompts = [row.inputs for row in rows]
    inputs = prompt_batch(prompts, pad_token_id, device)
    sequences, attention_mask, action_mask = actor.generate(**inputs, **arguments)  # type: ignore[operator]
    lengths = action_mask.sum(dim=1)
    responses = sequences[:, inputs["input_ids"].shape[1] :]
    images = [image for prompt in prompts for image in prompt.images]
    samples = SamplesVL(
        sequences=sequences,
        attention_mask=attention_mask,
        action_mask=action_mask,
        pixel_values=inputs.get("pixel_values"),
        image_grid_thws=inputs.get("image_grid_thw"),
        raw_images=images or None,
        image_num=[prompt.media.images.count for prompt in prompts],
        pixel_values_videos=inputs.get("pixel_values_videos"),
        video_grid_thws=inputs.get("video_grid_thw"),
        video_num=[prompt.media.videos.count for prompt in prompts],
        num_actions=action_mask.shape[1],
        response_length=lengths,
        total_length=attention_mask.sum(dim=1),
        references=_column([row.reference for row in rows]),
        labels=_column([row.label for row in rows]),
        prompts=[row.text for row in rows],
        output_texts=[
            str(tokenizer.decode(row[:length].tolist(), skip_special_tokens=True))
            for row, length in zip(responses, lengths.tolist(), strict=True)
        ],
    )
    samples.media_inputs = batch_extras([prompt.media for prompt in prompts])
    return samples


def _column(values: Sequence[str | None]) -> list[str] | None:
    given = [value for value in values if value is not None]
    return given if len(given) == len(values) else None
