"""What goes wrong in a run, in words: pure functions of its latest step records.

Each alarm looks at the records and gives a text while its cause holds, and tells whether the cause
is over. Between the two lies a band in which nothing changes, so that a figure that wavers about a
limit is told of once.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lightrft_ray.observe.names import Record

_WINDOW = 10  # steps
_KEPT = _WINDOW + 1
_FEW = 3  # steps that a figure is averaged over, so that one bad batch raises no alarm

Records = Sequence[Record]


class Finding(NamedTuple):
    """How an alarm sees the records: its text where the cause holds, and whether it is over."""

    text: str | None
    is_over: bool


_NOTHING = Finding(None, is_over=False)


class Alarms:
    """Follows a run's records and says each cause once, until it was over and comes back."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_KEPT)
        self._raised: set[str] = set()

    def read(self, record: Record) -> list[str]:
        """New warnings after a step; a step that comes again replaces the abandoned ones."""
        while self._records and self._records[-1]["step"] >= record["step"]:
            self._records.pop()
        if record["step"] == 0:
            return []
        self._records.append(record)
        records = list(self._records)
        return [text for name, alarm in ALARMS.items() if (text := self._new(name, alarm(records)))]

    def _new(self, name: str, finding: Finding) -> str | None:
        if finding.text is not None and name not in self._raised:
            self._raised.add(name)
            return finding.text
        if finding.is_over:
            self._raised.discard(name)
        return None


def entropy_collapse(records: Records) -> Finding:
    """The policy's entropy fell by half within ten steps; over once it is back where it was."""
    entropies = _values(records, "policy/entropy")
    if len(entropies) < _KEPT:
        return _NOTHING
    before, now = _median(entropies[:_FEW]), _median(entropies[-_FEW:])
    text = (
        (
            f"entropy fell by {_percent(1 - now / before)} in {_WINDOW} steps ({before:.3g} → "
            f"{now:.3g} nats): the policy may stop exploring; lower the learning rate, or raise "
            "algorithm.entropy_coef or init_kl_coef"
        )
        if before > 0
        else None
    )
    return Finding(text if now <= 0.5 * before else None, is_over=now >= before)


def cut_responses(records: Records) -> Finding:
    """More than 30 % of the responses are cut by the length limit; over below 20 %."""
    shares = _values(records[-_FEW:], "rollout/truncated_fraction")
    if len(shares) < _FEW:
        return _NOTHING
    share = sum(shares) / len(shares)
    text = f"{_percent(share)} of responses are cut by the length limit: raise generate_max_len"
    return Finding(text if share >= 0.3 else None, is_over=share < 0.2)


def equal_rewards(records: Records) -> Finding:
    """No group has rewards that differ, twice in a row; over once a tenth of them have."""
    shares = _values(records[-2:], "reward/informative_groups")
    if len(shares) < 2:
        return _NOTHING
    level = _values(records[-1:], "reward/mean")
    at = f" ({level[0]:.3g})" if level else ""
    text = (
        f"all samples of a prompt get the same reward{at}, in every group of two steps: there is "
        "nothing to learn from; look at the reward, choose easier or harder prompts, or set "
        "rollout.dynamic_sampling"
    )
    return Finding(text if max(shares) == 0 else None, is_over=shares[-1] >= 0.1)


def growing_gap(records: Records) -> Finding:
    """Rollout and learner drift apart: their largest log-prob gap is tenfold what it was.

    A gap below 0.05 nats is rounding. Over once it is below three times the former gap.
    """
    gaps = _values(records, "rollout/log_prob_gap_max")
    if len(gaps) < _KEPT:
        return _NOTHING
    before, now = _median(gaps[:_FEW]), _median(gaps[-_FEW:])
    text = (
        f"the log-probs of generator and learner drift apart: the largest gap grew from "
        f"{before:.2g} to {now:.2g} nats in {_WINDOW} steps; look at "
        "publish/canary_max_abs_diff, lower rollout.max_staleness, or set algorithm.old_log_probs "
        "to learner"
    )
    has_grown = now >= max(10 * before, 0.05)
    return Finding(text if has_grown else None, is_over=now < max(3 * before, 0.02))


def failing_rewards(records: Records) -> Finding:
    """Rewards fail: of more than 1 in 100 samples in the last steps; over when none fails."""
    latest = records[-_FEW:]
    failed, samples = sum(_values(latest, "reward/failed")), _samples(latest)
    if samples == 0:
        return _NOTHING
    text = (
        f"{failed:.0f} of the last {samples:.0f} samples got no reward: they are left out of the "
        "loss; reward.max_failed_fraction says how many may"
    )
    return Finding(text if failed > 0.01 * samples else None, is_over=failed == 0)


def skipped_updates(records: Records) -> Finding:
    """An update was skipped because it was not finite; over after ten steps without."""
    skipped = sum(
        sum(_values(records, name)) for name in ("policy/skipped_updates", "value/skipped_updates")
    )
    text = (
        "an optimizer update was skipped, for its loss or gradient was not finite: its batch lies "
        "in skipped_updates; lower the learning rate"
    )
    return Finding(text if skipped > 0 else None, is_over=skipped == 0)


ALARMS: dict[str, Callable[[Records], Finding]] = {
    "entropy_collapse": entropy_collapse,
    "cut_responses": cut_responses,
    "equal_rewards": equal_rewards,
    "growing_gap": growing_gap,
    "failing_rewards": failing_rewards,
    "skipped_updates": skipped_updates,
}
"""All alarms by name; each gets up to eleven records, the latest last, without step 0."""


def _values(records: Records, name: str) -> list[float]:
    return [record[name] for record in records if math.isfinite(record.get(name, math.nan))]


def _samples(records: Records) -> float:
    """Samples with and without a reward, by the steps' rates."""
    return sum(
        record["speed/samples_per_second"] * record["time/step"]
        for record in records
        if "speed/samples_per_second" in record
    )


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
