"""Which samples of a step a person is shown."""

import math
import random
from collections.abc import Sequence

RULES = ("best", "worst", "random", "failed")


def choose_samples(rewards: Sequence[float], count: int, seed: int) -> dict[int, tuple[str, ...]]:
    """Rows of `count` samples by each of RULES, and the rules that chose them.

    `rewards` are NaN where scoring failed, which the rule "failed" takes and the first two do not.
    Of equals the earlier comes first. `seed` decides the random ones; a row chosen twice is there
    once, so that there are at most 4 · `count`.
    """
    scored = [row for row, reward in enumerate(rewards) if math.isfinite(reward)]
    by_reward = sorted(scored, key=lambda row: rewards[row])
    chosen = {
        "best": sorted(scored, key=lambda row: -rewards[row])[:count],
        "worst": by_reward[:count],
        "random": random.Random(seed).sample(range(len(rewards)), min(count, len(rewards))),
        "failed": [row for row in range(len(rewards)) if row not in set(scored)][:count],
    }
    rows = dict.fromkeys(row for rule in RULES for row in chosen[rule])
    return {row: tuple(rule for rule in RULES if row in chosen[rule]) for row in rows}
