"""How long to wait before asking again."""

import random


def full_jitter(attempt: int, base: float, longest: float, rng: random.Random) -> float:
    """Seconds to wait after the failed attempt `attempt` (from 1): uniform in [0, base · 2^(n-1)].

    The upper end is capped at `longest`. Clients that failed together do not come back together
    (Brooker 2015, "Exponential Backoff And Jitter").
    """
    # The exponent is capped: nobody waits longer than 2^30 times the base, and floats overflow.
    return rng.uniform(0, min(longest, base * 2.0 ** min(attempt - 1, 30)))
