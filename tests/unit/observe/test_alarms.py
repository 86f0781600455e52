"""Warnings in words: each at its limit, once, and again only after its cause was over."""

import pytest

from lightrft_ray.observe.alarms import (
    ALARMS,
    Alarms,
    cut_responses,
    entropy_collapse,
    equal_rewards,
    failing_rewards,
    growing_gap,
    skipped_updates,
)

Records = list[dict[str, float]]


def _series(name: str, *values: float) -> Records:
    return [{"step": step, name: value} for step, value in enumerate(values, start=1)]


FELL = (2.0, 1.9, 2.1, 1.8, 1.6, 1.4, 1.2, 1.1, 1.2, 1.0, 0.4)


def test_entropy_that_falls_by_half_is_told_of_with_its_figures() -> None:
    """The middle one of three steps counts, so that one batch alone raises no alarm."""
    finding = entropy_collapse(_series("policy/entropy", *FELL))
    assert finding.text is not None
    assert "entropy fell by 50 % in 10 steps (2 → 1 nats)" in finding.text
    assert entropy_collapse(_series("policy/entropy", *FELL[:-2], 1.1, 0.4)).text is None
    assert entropy_collapse(_series("policy/entropy", *FELL[1:])).text is None


def test_entropy_in_between_changes_nothing() -> None:
    between = entropy_collapse(_series("policy/entropy", *FELL[:-3], 1.9, 1.9, 0.4))
    assert (between.text, between.is_over) == (None, False)
    assert entropy_collapse(_series("policy/entropy", *FELL[:-3], 2.0, 2.0, 0.4)).is_over
    assert entropy_collapse(_series("policy/entropy", *[0.0] * len(FELL))).text is None


@pytest.mark.parametrize(
    ("shares", "warns", "is_over"),
    [
        ([0.3, 0.3, 0.3], True, False),
        ([0.9, 0.0, 0.0], True, False),
        ([0.25, 0.25, 0.25], False, False),
        ([0.1, 0.1, 0.1], False, True),
        ([0.9, 0.9], False, False),  # too few steps to say
    ],
)
def test_cut_responses(shares: list[float], warns: bool, is_over: bool) -> None:
    finding = cut_responses(_series("rollout/truncated_fraction", *shares))
    assert (finding.text is not None, finding.is_over) == (warns, is_over)


def test_the_text_of_cut_responses_names_the_remedy() -> None:
    text = cut_responses(_series("rollout/truncated_fraction", 0.4, 0.3, 0.35)).text
    assert text == "35 % of responses are cut by the length limit: raise generate_max_len"


def test_equal_rewards_in_all_groups() -> None:
    name = "reward/informative_groups"
    assert equal_rewards(_series(name, 0.0)).text is None
    assert equal_rewards(_series(name, 0.5, 0.0)).text is None
    records = [{**record, "reward/mean": 1.0} for record in _series(name, 0.0, 0.0)]
    assert "the same reward (1)" in (equal_rewards(records).text or "")
    assert equal_rewards(_series(name, 0.0, 0.2)).is_over


def test_a_gap_that_grows_tenfold_past_rounding() -> None:
    name = "rollout/log_prob_gap_max"
    assert growing_gap(_series(name, *[0.01] * 8, *[0.1] * 3)).text is not None
    assert growing_gap(_series(name, *[1e-5] * 8, *[1e-3] * 3)).text is None  # still rounding
    assert growing_gap(_series(name, *[0.05] * 8, *[0.1] * 3)).text is None
    assert growing_gap(_series(name, *[0.01] * 7, *[0.1] * 3)).text is None  # too few steps
    assert growing_gap(_series(name, *[0.05] * 11)).is_over


def _failing(*failed: float) -> Records:
    rates = {"speed/samples_per_second": 50.0, "time/step": 2.0}
    return [{**record, **rates} for record in _series("reward/failed", *failed)]


def test_failing_rewards() -> None:
    text = failing_rewards(_failing(0, 2, 2)).text
    assert text is not None
    assert text.startswith("4 of the last 300 samples got no reward")
    assert failing_rewards(_failing(0, 1, 2)).text is None
    assert failing_rewards(_failing(9, 0, 0, 0)).is_over


def test_skipped_updates() -> None:
    assert skipped_updates(_series("policy/skipped_updates", 0, 1)).text is not None
    assert skipped_updates(_series("value/skipped_updates", 0, 0)).is_over


def test_records_without_a_figure_raise_no_alarm() -> None:
    records: Records = [{"step": step} for step in range(1, 12)]
    assert [alarm(records).text for alarm in ALARMS.values()] == [None] * len(ALARMS)


def _said(shares: list[float]) -> list[int]:
    alarms = Alarms()
    records = _series("rollout/truncated_fraction", *shares)
    return [int(record["step"]) for record in records if alarms.read(record)]


def test_a_cause_is_told_once_while_it_wavers_about_its_limit() -> None:
    assert _said([0.5, 0.5, 0.5, 0.22, 0.5, 0.5, 0.22, 0.5]) == [3]


def test_a_cause_that_comes_back_is_told_again() -> None:
    assert _said([0.5] * 4 + [0.0] * 4 + [0.5] * 4) == [3, 10]


def test_steps_that_come_again_replace_the_abandoned_ones() -> None:
    alarms = Alarms()
    for record in _series("policy/entropy", *FELL[:-1]):
        assert alarms.read(record) == []
    assert alarms.read({"step": 1, "policy/entropy": 0.5}) == []
    assert alarms.read({"step": 2, "policy/entropy": 0.4}) == []


def test_the_state_before_training_is_no_step() -> None:
    alarms = Alarms()
    assert alarms.read({"step": 0, "policy/entropy": 9.0}) == []
    assert alarms.read({"step": 1, "policy/entropy": 1.0}) == []
