"""Token sequences of prompts and responses: their masks, and their padded and packed layouts.

B samples; prompts are left-padded to the longest, P tokens, and responses right-padded to the
longest, A tokens, so that every response starts at column P of S = P + A. A packed row is the
samples' real tokens one behind another, T in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


def process_sequences(
    sequences: Tensor,
    input_len: int,
    eos_token_id: int | Sequence[int],
    pad_token_id: int,
    prompt_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of generated `sequences` (B, S), whose responses start at column `input_len`.

    Gives `(sequences, attention_mask, action_mask)`: (B, S) long, (B, S) long, (B, A) bool. No
    sampled token is changed. The first of the stop ids in `eos_token_id` is the last action, and
    what follows it is padding; a response without one is kept whole, except for pad tokens at its
    end. `prompt_mask` (B, input_len) says which prompt tokens are real; without it, those from the
    first that is not the pad token on.

    Raises ValueError where `input_len` or the mask does not fit.
    """
    if not 0 < input_len <= sequences.shape[1]:
        raise ValueError(f"input_len {input_len} does not fit sequences of {sequences.shape[1]}")
    if prompt_mask is None:
        prompt_mask = _from_first_real(sequences[:, :input_len], pad_token_id)
        prompt_mask[:, -1] = True  # no prompt is empty
    elif prompt_mask.shape != (len(sequences), input_len):
        shape = tuple(prompt_mask.shape)
        raise ValueError(f"prompt_mask is {shape}, for prompts ({len(sequences)}, {input_len})")
    stop_ids = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)
    responses = sequences[:, input_len:]
    action_mask = until_stop(responses, stop_ids)
    if pad_token_id not in stop_ids:
        action_mask = action_mask & _from_first_real(responses.flip(1), pad_token_id).flip(1)
    return padded_behind(sequences, prompt_mask, action_mask, pad_token_id)


def padded_behind(
    sequences: Tensor, prompt_mask: Tensor, action_mask: Tensor, pad_token_id: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`(sequences, attention_mask, action_mask)` with padding where there is no action."""
    prompts, responses = sequences.split([prompt_mask.shape[1], action_mask.shape[1]], dim=1)
    padded = responses.masked_fill(~action_mask, pad_token_id)
    attention_mask = torch.cat([prompt_mask.bool(), action_mask], dim=1).long()
    return torch.cat([prompts, padded], dim=1), attention_mask, action_mask


def until_stop(responses: Tensor, stop_ids: Sequence[int]) -> Tensor:
    """(B, A) bool: tokens up to and with the first of `stop_ids`; all where there is none."""
    is_stop = torch.isin(responses, torch.tensor(list(stop_ids), device=responses.device))
    return (is_stop.cumsum(dim=1) - is_stop.long()) == 0


def _from_first_real(tokens: Tensor, pad_token_id: int) -> Tensor:
    """(B, L) bool: from the first token that is not the pad token on."""
    return (tokens != pad_token_id).cumsum(dim=1) > 0


@dataclass(frozen=True, eq=False)
class SequenceLayout:
    """Where the tokens of B samples lie in the padded and in the packed layout.

    `prompt_lengths` and `response_lengths` are (B,) long; a response may be empty. The padded
    layout has `prompt_width` and `response_width` columns, at least as many as the longest needs.
    """

    prompt_lengths: Tensor
    response_lengths: Tensor
    prompt_width: int
    response_width: int

    @classmethod
    def of_lengths(cls, prompt_lengths: Tensor, response_lengths: Tensor) -> SequenceLayout:
        """The narrowest layout for samples of these lengths, (B,) each."""
        widths = (int(lengths.max()) for lengths in (prompt_lengths, response_lengths))
        return cls(prompt_lengths, response_lengths, *widths)

    @classmethod
    def of_packed(cls, total_lengths: Tensor, num_actions: Tensor) -> SequenceLayout:
        """From a packed row's sequence lengths and numbers of actions, (B,) each."""
        if total_lengths.shape != num_actions.shape or (num_actions > total_lengths).any():
            raise ValueError(
                f"packed_seq_lens {total_lengths.tolist()} do not fit num_actions "
                f"{num_actions.tolist()}"
            )
        return cls.of_lengths(total_lengths - num_actions, num_actions)

    @classmethod
    def of_mask(cls, attention_mask: Tensor, num_actions: int) -> SequenceLayout:
        """From a padded batch's (B, S) mask, whose last `num_actions` columns are responses.

        Raises ValueError where padding lies elsewhere than before prompts and behind responses.
        """
        real = attention_mask.bool()
        split = real.shape[1] - num_actions
        lengths = real[:, :split].sum(dim=1), real[:, split:].sum(dim=1)
        layout = cls(*lengths, split, num_actions)
        wrong = (layout.attention_mask != real).any(dim=1).nonzero().flatten().tolist()
        if wrong:
            raise ValueError(
                f"attention_mask of sample {wrong[0]}: prompts must be padded on the left and "
                f"responses on the right of column {split}, and holes have no place"
            )
        return layout

    @property
    def action_mask(self) -> Tensor:
        """(B, A) bool: which actions exist."""
        columns = torch.arange(self.response_width, device=self.response_lengths.device)
        return columns[None] < self.response_lengths[:, None]

    @property
    def attention_mask(self) -> Tensor:
        """(B, S) bool of the padded layout."""
        columns = torch.arange(self.prompt_width, device=self.prompt_lengths.device)
        prompts = columns[None] >= self.prompt_width - self.prompt_lengths[:, None]
        return torch.cat([prompts, self.action_mask], dim=1)

    @property
    def total_lengths(self) -> Tensor:
        """(B,) tokens of each sample."""
        return self.prompt_lengths + self.response_lengths

    @cached_property
    def boundaries(self) -> Tensor:
        """(B + 1,) where each sample starts in the packed row, and the row's end."""
        return torch.nn.functional.pad(self.total_lengths.cumsum(0), (1, 0))

    @cached_property
    def sample_index(self) -> Tensor:
        """(T,) which sample each packed token belongs to."""
        samples = torch.arange(len(self.total_lengths), device=self.total_lengths.device)
        return samples.repeat_interleave(self.total_lengths)

    @property
    def packed_positions(self) -> Tensor:
        """(T,) each packed token's place in its own sample."""
        places = torch.arange(len(self.sample_index), device=self.sample_index.device)
        return places - self.boundaries[self.sample_index]

    @property
    def padded_actions(self) -> Tensor:
        """(B, A) column of the padded layout that predicts each action, −1 where there is none."""
        return self._predicting(torch.full_like(self.prompt_lengths, self.prompt_width))

    @property
    def packed_actions(self) -> Tensor:
        """(B, A) the same for the packed row."""
        return self._predicting(self.boundaries[:-1] + self.prompt_lengths)

    def _predicting(self, starts: Tensor) -> Tensor:
        """(B, A) the token before each action, for responses that begin at `starts` (B,)."""
        columns = torch.arange(self.response_width, device=starts.device)
        return (starts[:, None] - 1 + columns[None]).masked_fill(~self.action_mask, -1)

    def pack(self, padded: Tensor) -> Tensor:
        """(T, …) from padded (B, S, …) values."""
        return padded[self.attention_mask]

    def unpack(self, packed: Tensor, fill: float = 0) -> Tensor:
        """(B, S, …) from packed (T, …) values, with `fill` at padding."""
        mask = self.attention_mask
        padded = packed.new_full((*mask.shape, *packed.shape[1:]), fill)
        padded[mask] = packed
        return padded

    def at_actions(self, packed: Tensor) -> Tensor:
        """(B, A) of packed (T,) next-token values: each action's, 0 where there is none."""
        columns = self.packed_actions
        return torch.where(columns >= 0, packed[columns.clamp(min=0)], 0)
