"""Changes to rewards before advantages: overlong penalty, clipping, running normalisation."""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from lightrft_ray.config.errors import UserError
from lightrft_ray.trainer.masked import promote_half
from lightrft_ray.trainer.moments import Moments

_SMALLEST_STD = 1e-8


def overlong_penalty(
    lengths: Tensor, *, max_length: int, buffer_length: int, factor: float = 1.0
) -> Tensor:
    """factor · clip(((max − buffer) − length) / buffer, −1, 0): DAPO's soft punishment, 2503.14476.

    `lengths` are tokens of the responses, (B,); the result, (B,) float32, is to be added to the
    rewards. Nothing happens up to max − buffer tokens; from there the penalty grows linearly and
    stays at −factor from `max_length` on.
    """
    if not 0 < buffer_length <= max_length:
        raise UserError(
            f"overlong buffer of {buffer_length} tokens: it must be at least 1 and at most "
            f"the maximal length, {max_length}"
        )
    excess = (max_length - buffer_length) - lengths
    return factor * (excess / buffer_length).clamp(-1, 0)


def clip_rewards(rewards: Tensor, low: float, high: float) -> tuple[Tensor, float]:
    """`(clipped, fraction)`: rewards within [low, high] and the share that lay outside, (B,)."""
    is_outside = (rewards < low) | (rewards > high)
    fraction = is_outside.float().mean().item() if rewards.numel() else 0.0
    return rewards.clamp(low, high), fraction


class RunningRewardNormalizer:
    """Divides rewards by the standard deviation of all rewards seen so far in training.

    `update` it with the raw rewards of each *training* batch, once for all ranks, and then
    `scale` or `standardize` that batch; evaluation only reads.
    """

    def __init__(self) -> None:
        self.moments = Moments()

    def update(self, rewards: Tensor) -> None:
        """Takes in the rewards of one batch, (B,)."""
        self.moments = self.moments.merge(Moments.of(rewards))

    @property
    def divisor(self) -> float:
        """The unbiased running standard deviation, or 1 while there is no spread to divide by."""
        return self.moments.std if self.moments.std > _SMALLEST_STD else 1.0

    def scale(self, rewards: Tensor) -> Tensor:
        """x / divisor, (B,): keeps the sign of a reward."""
        return promote_half(rewards) / self.divisor

    def standardize(self, rewards: Tensor) -> Tensor:
        """(x − running mean) / divisor, (B,)."""
        # In float64, as float32 would lose a small spread around a large mean.
        centred = (rewards.double() - self.moments.mean) / self.divisor
        return centred.to(promote_half(rewards).dtype)

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must keep."""
        return asdict(self.moments)

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continues from `state_dict()`."""
        self.moments = Moments(int(state["count"]), state["mean"], state["m2"])
