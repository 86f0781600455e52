"""What an evaluation says of a set of held-out prompts."""

import math
from pathlib import Path

import pytest

from lightrft_ray.config import UserError
from lightrft_ray.config.load import dump_config, load_config
from lightrft_ray.driver.evaluation import PromptScores, accuracy_record
from lightrft_ray.observe.names import METRICS, check_record, documented_as, in_table_order

SCORES = [
    PromptScores("count", [1.0, 0.0]),
    PromptScores("count", [0.0, 0.0]),
    PromptScores("what colour?", [0.5]),  # of one sample the reward failed
    PromptScores("count", []),
]


def test_accuracy_is_over_scored_samples_and_passing_over_prompts() -> None:
    record = accuracy_record(SCORES, with_pass=True)
    assert record == {
        "accuracy": pytest.approx(1.5 / 5),
        "samples": 5,
        "pass_at_k": pytest.approx(2 / 3),
        "accuracy/count": pytest.approx(1 / 4),
        "accuracy/what_colour_": 0.5,
    }


def test_one_label_says_nothing_more_than_the_whole() -> None:
    record = accuracy_record(SCORES[:2], with_pass=False)
    assert record == {"accuracy": 0.25, "samples": 4}


def test_nothing_scored_is_no_zero() -> None:
    record = accuracy_record([PromptScores("a", [])], with_pass=True)
    assert math.isnan(record["accuracy"]) and record["samples"] == 0
    assert record.keys() == {"accuracy", "samples"}


def test_names_of_sets_and_labels_are_in_the_table() -> None:
    names = {
        "eval/accuracy": "eval/accuracy",
        "eval/accuracy/count": "eval/accuracy/LABEL",
        "eval/hard/samples": "eval/SET/samples",
        "eval/hard/accuracy/count": "eval/SET/accuracy/LABEL",
    }
    for name, documented in names.items():
        assert documented_as(name) == documented
        assert documented in METRICS
        check_record({"step": 0, name: 0.0})
    with pytest.raises(ValueError, match="eval/hard/median"):
        check_record({"step": 0, "eval/hard/median": 0.0})
    assert in_table_order(["time/step", "eval/b/samples", "eval/a/samples", "step"]) == [
        "step",
        "eval/a/samples",
        "eval/b/samples",
        "time/step",
    ]


SETS = (
    "{hard: {data: hard.jsonl, temperature: 0.6, n_samples_per_prompt: 4}, easy: {data: e.jsonl}}"
)


def test_sets_are_read_and_written_back(tmp_path: Path) -> None:
    config = load_config(None, [("eval_sets", SETS)])
    assert config.evaluation.eval_sets["hard"].n_samples_per_prompt == 4
    assert config.evaluation.eval_sets["easy"].temperature == 0
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml", []) == config


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        ("{hard: {}}", "eval_sets on the command line"),
        ("{hard: {data: 3}}", "eval_sets on the command line: hard data must be a valid string"),
        ("{accuracy: {data: a}}", "the name accuracy must be"),
        ("{a: {data: a, n_samples_per_prompt: 2}}", "temperature 0 gives the same sample"),
        ("{a: {data: a, top_p: 1.0}}", "eval_sets on the command line: a top_p"),
        ("[a]", "eval_sets on the command line: must be a valid dictionary"),
    ],
)
def test_a_wrong_set_is_named(sets: str, named: str) -> None:
    with pytest.raises(UserError) as refusal:
        load_config(None, [("eval_sets", sets)])
    assert named in str(refusal.value)


def test_the_longest_response_counts_all_sets() -> None:
    evaluation = load_config(
        None,
        [("eval_sets", "{a: {data: a, generate_max_len: 90}}"), ("eval_generate_max_len", "7")],
    ).evaluation
    assert evaluation.longest(8) == 90
    assert load_config(None, []).evaluation.longest(8) == 8
