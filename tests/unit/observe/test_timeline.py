"""Who was busy when, and which run it was."""

import json
from pathlib import Path

import pytest

from lightrft_ray.observe.run_identity import identify
from lightrft_ray.observe.timeline import Span, Timeline
from lightrft_ray.observe.utilization import busy_share


def _steps(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_spans_are_seconds_since_the_start_of_the_run_in_order(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path / "timeline.jsonl", started_at=1000.0)
    later = Span("driver", "train", 1002.5, 1003.0)
    timeline.log(10, [later, Span("generator/0", "generate", 1001.25, 1002.123456)])
    timeline.close()
    assert _steps(tmp_path / "timeline.jsonl") == [
        {
            "step": 10,
            "spans": [
                {"who": "generator/0", "phase": "generate", "start": 1.25, "end": 2.1235},
                {"who": "driver", "phase": "train", "start": 2.5, "end": 3.0},
            ],
        }
    ]


def test_going_back_forgets_the_spans_of_later_steps(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path / "timeline.jsonl", 0.0)
    for step in range(4):
        timeline.log(step, [])
    timeline.rewind(1)
    timeline.log(2, [])
    timeline.close()
    assert [entry["step"] for entry in _steps(tmp_path / "timeline.jsonl")] == [0, 1, 2]


def test_a_resumed_run_goes_on_behind_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "timeline.jsonl"
    path.write_text('{"step": 1, "spans": []}\n{"step": 2, "spans": []}\n{"step": 3, "sp')
    Timeline(path, 0.0, after_step=1).close()
    assert [entry["step"] for entry in _steps(path)] == [1]


@pytest.mark.parametrize(
    ("spans", "workers", "expected"),
    [
        ([("a", 1, 3)], ["a"], 0.2),
        ([("a", 1, 3), ("a", 2, 4)], ["a"], 0.3),  # side by side in one process
        ([("a", -5, 1), ("a", 9, 20)], ["a"], 0.2),  # what is outside does not count
        ([("a", 0, 10), ("b", 0, 5), ("c", 0, 10)], ["a", "b"], 0.75),
        ([("a", 2, 6), ("a", 3, 4)], ["a"], 0.4),
        ([], ["a"], 0.0),
    ],
)
def test_busy_share(spans: list[tuple[str, int, int]], workers: list[str], expected: float) -> None:
    worked = [Span(who, "train", start, end) for who, start, end in spans]
    assert busy_share(worked, workers, 0, 10) == pytest.approx(expected)


def test_a_run_keeps_its_identity(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    first = identify(path)
    assert json.loads(path.read_text()) == {"run_id": first.run_id, "started": first.started}
    assert identify(path) == first
    assert identify(tmp_path / "other.json").run_id != first.run_id


@pytest.mark.parametrize("text", ["", "{", '{"run_id": "a"}', '{"run_id": "a", "started": "now"}'])
def test_a_damaged_identity_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    assert identify(path) == identify(path)
    assert json.loads(path.read_text())["run_id"] != "a"
