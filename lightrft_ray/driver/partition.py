"""Dividing a step's experience into optimizer steps and over the learner's ranks."""

from collections.abc import Sequence

import torch

from lightrft_ray.trainer.aggregation import Denominators, count_denominators
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask
from lightrft_ray.trainer.microbatch import balanced_partition
from lightrft_ray.workers.batches import RankBatch, select_samples
from lightrft_ray.workers.messages import GroupTokens, split_micro_batches

_Piece = tuple[GroupTokens, list[int]]  # tokens of samples of a group, and their rows in the batch


def divide_batch(
    groups: Sequence[GroupTokens],
    experience: ExperienceVL,
    *,
    batch_size: int,
    ranks: int,
    kl_coef: float,
    horizon: int,
) -> list[list[RankBatch]]:
    """For each rank its share of every optimizer step of `batch_size` samples, in order.

    Samples of a group stay together where sizes allow, so that they share their prompt. Within an
    optimizer step the ranks get equal numbers of samples and nearly equal numbers of tokens.
    `horizon` is the longest possible response.
    """
    shares: list[list[RankBatch]] = [[] for _ in range(ranks)]
    for number, step in enumerate(_steps(groups, batch_size)):
        denominators = _denominators(step, experience, horizon)
        for rank, pieces in enumerate(_over_ranks(step, ranks)):
            batch = RankBatch(
                groups=tuple(group for group, _ in pieces),
                experience=select_samples(experience, _rows(pieces)),
                denominators=denominators,
                kl_coef=kl_coef,
                is_first=number == 0,
            )
            shares[rank].append(batch)
    return shares


def _steps(groups: Sequence[GroupTokens], batch_size: int) -> list[list[_Piece]]:
    steps, row = [], 0
    for micro_batch in split_micro_batches(groups, batch_size):
        pieces: list[_Piece] = []
        for group in micro_batch:
            pieces.append((group, list(range(row, row + len(group.responses)))))
            row += len(group.responses)
        steps.append(pieces)
    return steps


def _over_ranks(pieces: list[_Piece], ranks: int) -> list[list[_Piece]]:
    sizes = {len(rows) for _, rows in pieces}
    if len(sizes) == 1 and len(pieces) % ranks == 0:
        tokens = [group.token_count for group, _ in pieces]
        parts = balanced_partition(tokens, ranks, equal_size=True)
        return [[pieces[index] for index in part] for part in parts]
    return _cut_evenly(pieces, ranks)


def _cut_evenly(pieces: list[_Piece], ranks: int) -> list[list[_Piece]]:
    """Consecutive samples for each rank, where whole groups do not divide evenly."""
    rows = [row for _, piece_rows in pieces for row in piece_rows]
    parts = split_micro_batches([group for group, _ in pieces], len(rows) // ranks)
    remaining = iter(rows)
    return [
        [(group, [next(remaining) for _ in group.responses]) for group in part] for part in parts
    ]


def _denominators(pieces: list[_Piece], experience: ExperienceVL, horizon: int) -> Denominators:
    return count_denominators(required_mask(experience)[_rows(pieces)], horizon=horizon)


def _rows(pieces: list[_Piece]) -> torch.Tensor:
    """The batch's rows that the pieces are made of, in their order."""
    return torch.tensor([row for _, piece_rows in pieces for row in piece_rows])
