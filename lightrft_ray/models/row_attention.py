"""Attention within a row of many samples: who sees whom, and kernels that compute no more.

A row is prompts and their responses one behind another. A token sees its own segment up to itself
and, in a response, the whole prompt. `RowAttention` holds that rule in three forms: blocks of
queries and keys for SDPA (no mask spans two groups, none is larger than `_MASK_ELEMENTS` for more
than one query), a dense mask for eager attention, and a block mask for FlexAttention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ROW_SDPA = "row_sdpa"  # as an attention implementation of transformers

_MASK_ELEMENTS = 2**24
_WIDTH_RATIO = 1.5  # of the widest to the narrowest block of a batch: padding costs less than calls
_NARROW = 64  # blocks of up to so many tokens are one batch, whatever their ratio


class _Span(NamedTuple):
    """A block's queries, and its keys: those of a prompt, then those from `start` on."""

    prompt: range
    start: int
    queries: range

    @property
    def key_count(self) -> int:
        return len(self.prompt) + self.queries.stop - self.start


class _Visibility(NamedTuple):
    """Who sees whom: `segments` (T,) and `prompts` (T,) as in `RowAttention`."""

    segments: Tensor
    prompts: Tensor

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Whether the token at row index `query` sees the one at `key`; any shapes."""
        own = self.segments[key] == self.segments[query]
        return (key <= query) & (own | (self.segments[key] == self.prompts[query]))

    def mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(B, 1, Q, K) bool. A padded query sees the first key: without any, softmax gives NaN."""
        allowed = self.sees(queries.clamp(min=0)[:, :, None], keys.clamp(min=0)[:, None])
        allowed &= (keys >= 0)[:, None]
        allowed[:, :, 0] |= queries < 0
        return allowed[:, None]


@dataclass(frozen=True)
class _Blocks:
    """B blocks of equal widths as row indices, −1 at padding: `queries` (B, Q), `keys` (B, K).

    `mask` (B, 1, Q, K) bool; None where the blocks are causal.
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor | None

    def to(self, device: torch.device) -> _Blocks:
        mask = None if self.mask is None else self.mask.to(device)
        return _Blocks(self.queries.to(device), self.keys.to(device), mask)


@dataclass(frozen=True, eq=False)
class RowAttention:
    """The attention of one row of T tokens.

    `visibility` numbers prompts and responses as segments, and has for each token the number of
    the prompt that it sees whole (its own in a prompt). `positions` (T,) counts from each sample's
    start, `places` (T,) says where the blocks' queries, laid end to end, have each token.
    """

    visibility: _Visibility
    positions: Tensor
    blocks: tuple[_Blocks, ...]
    places: Tensor
    is_packed: bool
    calls: list[int]  # one entry for each call of a layer

    @staticmethod
    def of_groups(groups: Sequence[tuple[int, Sequence[int]]]) -> RowAttention:
        """For groups of (prompt length, response lengths); a sample alone is a prompt."""
        lengths: list[int] = []
        prompts: list[int] = []
        offsets: list[int] = []
        for prompt, responses in groups:
            first = len(lengths)
            lengths += [prompt, *responses]
            prompts += [first] * (1 + len(responses))
            offsets += [0] + [prompt] * len(responses)
        sizes = torch.tensor(lengths)
        segments = torch.arange(len(sizes)).repeat_interleave(sizes)
        starts = (sizes.cumsum(0) - sizes)[segments]
        positions = torch.arange(len(segments)) - starts + torch.tensor(offsets)[segments]
        causal, prefixed = _spans(groups)
        visibility = _Visibility(segments, torch.tensor(prompts)[segments])
        blocks = [_causal_blocks(batch) for batch in _batches(causal)]
        blocks += [_prefixed_blocks(batch, visibility) for batch in _batches(prefixed)]
        flat = torch.cat([block.queries.flatten() for block in blocks])
        real = (flat >= 0).nonzero().flatten()
        places = real[flat[real].argsort()]
        is_packed = not any(responses for _, responses in groups)
        return RowAttention(visibility, positions, tuple(blocks), places, is_packed, [])

    def to(self, device: torch.device) -> RowAttention:
        """The same on another device."""
        return replace(
            self,
            visibility=_Visibility(*(part.to(device) for part in self.visibility)),
            positions=self.positions.to(device),
            blocks=tuple(block.to(device) for block in self.blocks),
            places=self.places.to(device),
        )

    def samples_of_tokens(self) -> Tensor:
        """(T,) the number of samples that each token belongs to: all of its group in a prompt."""
        segments, prompts = self.visibility
        first = segments.diff(prepend=segments.new_tensor([-1])) > 0
        responses = prompts[first & (segments != prompts)].bincount(minlength=len(segments))
        return torch.where(segments == prompts, responses[prompts].clamp(min=1), 1)

    def dense_mask(self, dtype: torch.dtype) -> Tensor:
        """(1, 1, T, T) to add to scores: eager attention adds whatever mask it gets."""
        row = torch.arange(len(self.positions), device=self.positions.device)
        hidden = ~self.visibility.sees(row[:, None], row[None])
        mask = torch.zeros(hidden.shape, dtype=dtype, device=row.device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)[None, None]

    def block_mask(self) -> BlockMask:
        """For FlexAttention, whose kernel passes over what no token of a tile sees."""

        def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return self.visibility.sees(query, key)

        size = len(self.positions)
        return create_block_mask(sees, None, None, size, size, device=str(self.positions.device))

    def attend(
        self,
        kernel: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor],
        states: tuple[Tensor, Tensor, Tensor],
        window: int | None,
    ) -> Tensor:
        """(1, T, heads, D) by `kernel` over the blocks of query, key and value (1, heads, T, D)."""
        self.calls.append(1)
        query, key, value = (state[0].transpose(0, 1) for state in states)
        results = []
        for block in self.blocks:
            mask = block.mask if window is None else self._windowed(block, window)
            keys, values = _gather(key, block.keys), _gather(value, block.keys)
            results.append(kernel(_gather(query, block.queries), keys, values, mask).flatten(0, 1))
        # index_select and not [places]: its backward pass adds up in a fixed order.
        return torch.cat(results).index_select(0, self.places)[None]

    def _windowed(self, block: _Blocks, window: int) -> Tensor | None:
        """The block's mask for layers that see the last `window` positions alone."""
        queries, keys = block.queries.clamp(min=0), block.keys.clamp(min=0)
        if block.mask is None and queries.shape[1] <= window:
            return None
        mask = block.mask
        if mask is None:
            mask = self.visibility.mask(block.queries, block.keys)
        distance = self.positions[queries][:, :, None] - self.positions[keys][:, None]
        near = (distance < window) | (block.queries < 0)[:, :, None]
        return mask & near[:, None]


def attend_rows(  # noqa: PLR0917 - called by transformers
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    row_attention: RowAttention | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers: SDPA by blocks with `row_attention`, else SDPA."""
    if row_attention is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )

    def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        return sdpa_attention_forward(
            module, query, key, value, mask, dropout=dropout, scaling=scaling, is_causal=True
        )[0]

    return row_attention.attend(kernel, (query, key, value), sliding_window), None


AttentionInterface.register(ROW_SDPA, attend_rows)
AttentionMaskInterface.register(ROW_SDPA, sdpa_mask)


def _spans(groups: Sequence[tuple[int, Sequence[int]]]) -> tuple[list[_Span], list[_Span]]:
    """Causal spans (a prompt, or a sample alone), and those of responses behind a prompt."""
    causal: list[_Span] = []
    prefixed: list[_Span] = []
    start = 0
    for length, responses in groups:
        prompt = range(start, start + length)
        causal.append(_Span(range(0), start, prompt))
        start += length
        for count in _together(responses, most=max(length, 2 * _NARROW)):
            prefixed += _bounded(prompt, range(start, start + count))
            start += count
    return causal, prefixed


def _together(lengths: Sequence[int], most: int) -> Iterator[int]:
    """Tokens of neighbours that are one block: at most `most`, as they do not see each other."""
    total = 0
    for length in lengths:
        if total and total + length > most:
            yield total
            total = 0
        total += length
    if total:
        yield total


def _bounded(prompt: range, tokens: range) -> Iterator[_Span]:
    """A block cut into blocks of fewer queries where its mask would be too large."""
    step = max(1, _MASK_ELEMENTS // (len(prompt) + len(tokens)))
    for start in range(tokens.start, tokens.stop, step):
        yield _Span(prompt, tokens.start, range(start, min(start + step, tokens.stop)))


def _batches(spans: Sequence[_Span]) -> Iterator[list[_Span]]:
    """Spans of like widths together, so that a batch has little padding and a bounded mask."""
    batch: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.key_count, reverse=True):
        if batch:
            widest = batch[0].key_count
            is_narrower = widest > max(_NARROW, _WIDTH_RATIO * span.key_count)
            queries = max(len(each.queries) for each in [*batch, span])
            if is_narrower or (len(batch) + 1) * queries * widest > _MASK_ELEMENTS:
                yield batch
                batch = []
        batch.append(span)
    if batch:
        yield batch


def _causal_blocks(spans: Sequence[_Span]) -> _Blocks:
    """Padding lies behind the tokens, which see nothing behind themselves."""
    indices = _padded([torch.tensor(span.queries) for span in spans])
    return _Blocks(indices, indices, None)


def _prefixed_blocks(spans: Sequence[_Span], visibility: _Visibility) -> _Blocks:
    seen = [[*span.prompt, *range(span.start, span.queries.stop)] for span in spans]
    queries = _padded([torch.tensor(span.queries) for span in spans])
    keys = _padded([torch.tensor(own) for own in seen])
    return _Blocks(queries, keys, visibility.mask(queries, keys))


def _padded(indices: Sequence[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(indices), batch_first=True, padding_value=-1)


def _gather(states: Tensor, indices: Tensor) -> Tensor:
    """(B, heads, W, D) of (T, heads, D) states at (B, W) indices; anything at padding."""
    chosen = states.index_select(0, indices.flatten().clamp(min=0))
    return chosen.view(*indices.shape, *states.shape[1:]).transpose(1, 2)
