"""Log-probs of sampled tokens under the sampled distribution, in float32.

The distribution is the one the generator sampled from: logits divided by the temperature, with
the ids that can never be sampled (media placeholders) left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_LOG_FLOOR = -1e4  # 0 · log 0 is 0: keeps the product finite at ids of probability 0


@dataclass(frozen=True)
class LogitRule:
    """What a family does to its head's outputs: multiply by `scale`, then c · tanh(x / c)."""

    scale: float = 1.0
    softcap: float | None = None

    def apply(self, outputs: Tensor) -> Tensor:
        """Logits of the head's outputs, of any shape."""
        scaled = outputs if self.scale == 1 else outputs * self.scale
        if self.softcap is None:
            return scaled
        return torch.tanh(scaled / self.softcap) * self.softcap


PLAIN_LOGITS = LogitRule()


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32 for everything that is smaller."""
    return torch.float32 if dtype.itemsize < 4 else dtype


def sampled_distribution(
    logits: Tensor, *, temperature: float = 1.0, forbidden: Sequence[int] = ()
) -> Tensor:
    """Log-probs (…, V) of the distribution that the generator samples from.

    `logits` (…, V) of any float type; the result is float32 (float64 for float64 logits).
    """
    scaled = logits.to(compute_dtype(logits.dtype)) / temperature
    if forbidden:
        ids = torch.tensor(list(forbidden), device=logits.device)
        scaled = scaled.index_fill(-1, ids, float("-inf"))
    return scaled.log_softmax(dim=-1)


def token_log_probs(distribution: Tensor, token_ids: Tensor) -> Tensor:
    """Log-prob (…) of each token; `distribution` (…, V) log-probs, `token_ids` (…) long."""
    return distribution.gather(-1, token_ids[..., None])[..., 0]


def token_entropy(distribution: Tensor) -> Tensor:
    """Entropy (…) in nats; `distribution` (…, V) log-probs."""
    probabilities = distribution.exp()
    expected = (probabilities * distribution.clamp(min=_LOG_FLOOR)).sum(dim=-1)
    # In float32, 150,000 probabilities add up to 1 ± 1e-6, which weighs 12 nats at such a size.
    return -expected / probabilities.sum(dim=-1)
