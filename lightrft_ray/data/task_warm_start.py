"""A short supervised phase that teaches the tiny checkpoint the form of each task's answers.

As in `warm_start`, the policy must be right sometimes for reinforcement learning to begin: half of
the shown answers are the true ones, and the others those of some other question of the same task.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2_5_VLForConditionalGeneration,
)

from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.decoding import load_media
from lightrft_ray.data.processing import EncodedPrompt, PromptEncoder, load_processor, tokenizer_of
from lightrft_ray.data.prompts import Prompt, read_prompts
from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.data.warm_start import single_threaded

STEPS = 240  # in turns, one task each
BATCH_SIZE = 32
LEARNING_RATE = 1e-3
TRUE_SHARE = 0.5
SEED = 0
_MAX_GRADIENT_NORM = 1.0
_LONGEST_PROMPT = 1024
_IGNORED = -100  # of cross_entropy


@dataclass(frozen=True)
class _Row:
    prompt: EncodedPrompt
    answer: Tensor  # (L,) int64, the end of the turn included


def warm_start_on_tasks(
    checkpoint: Path,
    tasks: Sequence[TaskFiles],
    kind: type[PreTrainedModel] = Qwen2_5_VLForConditionalGeneration,
    steps: int = STEPS,
) -> None:
    """Train the checkpoint folder of a `kind` of model in place.

    The same machine gives the same bytes every time.
    """
    processor = load_processor(checkpoint)
    encoder, tokenizer = PromptEncoder(processor, None, _LONGEST_PROMPT), tokenizer_of(processor)
    generator = torch.Generator().manual_seed(SEED)
    with single_threaded():
        model = kind.from_pretrained(checkpoint, dtype=torch.float32)
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=LEARNING_RATE)
        prompts = [read_prompts(task.train_file)[0] for task in tasks]
        for step in range(steps):
            rows = _batch(encoder, tokenizer, prompts[step % len(prompts)], generator)
            loss = _answer_loss(model, rows)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_GRADIENT_NORM)
            optimizer.step()
    model.save_pretrained(checkpoint)


def _batch(
    encoder: PromptEncoder,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    generator: torch.Generator,
) -> list[_Row]:
    """Random prompts with the answers to be shown."""
    rows = []
    for index in torch.randint(len(prompts), (BATCH_SIZE,), generator=generator).tolist():
        media = load_media(prompts[index], MediaConfig())
        encoded = encoder.encode(prompts[index], media.images, media.videos)
        is_true = float(torch.rand((), generator=generator)) < TRUE_SHARE
        other = int(torch.randint(len(prompts), (), generator=generator))
        answer = prompts[index if is_true else other].reference
        ids = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        rows.append(_Row(encoded, torch.tensor(ids)))
    return rows


def _answer_loss(model: PreTrainedModel, rows: Sequence[_Row]) -> Tensor:
    """Mean cross-entropy of the answers' tokens, a scalar."""
    ids = [torch.cat([row.prompt.expanded_ids, row.answer]) for row in rows]
    targets = [F.pad(row.answer, (len(row.prompt.expanded_ids), 0), value=_IGNORED) for row in rows]
    types = [
        F.pad(row.prompt.mm_inputs["mm_token_type_ids"], (0, len(row.answer)))
        for row in rows
        if "mm_token_type_ids" in row.prompt.mm_inputs
    ]
    logits = model(
        input_ids=pad_sequence(ids, batch_first=True),
        attention_mask=pad_sequence([torch.ones_like(each) for each in ids], batch_first=True),
        **({"mm_token_type_ids": pad_sequence(types, batch_first=True)} if types else {}),
        **_media(rows),
    ).logits[:, :-1]
    labels = pad_sequence(targets, batch_first=True, padding_value=_IGNORED)[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=_IGNORED)


def _media(rows: Sequence[_Row]) -> dict[str, Tensor]:
    """The pixels and grids of all rows, one behind another."""
    names = {name for row in rows for name in row.prompt.mm_inputs if name != "mm_token_type_ids"}
    return {
        name: torch.cat([torch.as_tensor(row.prompt.mm_inputs[name]) for row in rows])
        for name in names
    }
