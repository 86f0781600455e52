"""The step records of a run as columns, for the page's curves."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from lightrft_ray.observe.names import FAMILIES, METRICS, documented_as, in_table_order
from lightrft_ray.observe.viewer.jsonl import parse_object, whole_lines

_DIRECTIONS = {"up": "higher is better", "down": "lower is better", "none": ""}


class MetricInfo(TypedDict):
    """What the page says about a metric."""

    unit: str
    meaning: str
    better: str


class MetricColumns(TypedDict):
    """One value a step in each column, null where it was not measured or not finite."""

    steps: list[int]
    columns: dict[str, list[float | None]]
    info: dict[str, MetricInfo]
    damaged: int


def read_columns(path: Path) -> MetricColumns:
    """The columns of a metrics.jsonl; lines that are no step record are counted, not raised.

    Where a run was resumed, the records that it wrote again replace the abandoned ones.
    """
    records: list[dict[str, float | None]] = []
    damaged = 0
    for line in whole_lines(path):
        record = _record(parse_object(line))
        if record is None:
            damaged += 1
            continue
        while records and _step(records[-1]) >= _step(record):
            records.pop()
        records.append(record)
    names = _known_first({name for record in records for name in record if name != "step"})
    return MetricColumns(
        steps=[_step(record) for record in records],
        columns={name: [record.get(name) for record in records] for name in names},
        info={name: describe(name) for name in names},
        damaged=damaged,
    )


def thinned(metrics: MetricColumns, most: int) -> MetricColumns:
    """At most `most` + 1 steps, evenly, the last one always; a held-out accuracy is never left out.

    Without this a page that holds everything would grow with the length of the run.
    """
    count = len(metrics["steps"])
    stride = max(1, math.ceil(count / most))
    accuracy = metrics["columns"].get("eval/accuracy", [])
    measured = {place for place, value in enumerate(accuracy) if value is not None}
    kept = sorted({*range(0, count, stride), *range(max(0, count - 1), count), *measured})
    if stride == 1:
        return metrics
    return MetricColumns(
        steps=[metrics["steps"][place] for place in kept],
        columns={
            name: [column[place] for place in kept] for name, column in metrics["columns"].items()
        },
        info=metrics["info"],
        damaged=metrics["damaged"],
    )


def describe(name: str) -> MetricInfo:
    """Unit, meaning and better direction of a metric; blanks for one that no table has."""
    metric = (METRICS | FAMILIES).get(documented_as(name))
    if metric is None:
        return MetricInfo(unit="", meaning="", better="")
    return MetricInfo(
        unit=metric.unit, meaning=metric.meaning, better=_DIRECTIONS[metric.direction]
    )


def _record(found: dict[str, object] | None) -> dict[str, float | None] | None:
    """The numbers of a step record; None where it has no whole step."""
    if found is None or not isinstance(found.get("step"), float):
        return None
    return {
        name: value for name, value in found.items() if value is None or isinstance(value, float)
    }


def _step(record: dict[str, float | None]) -> int:
    step = record["step"]
    assert step is not None
    return int(step)


def _known_first(names: Iterable[str]) -> list[str]:
    """In the order of the table of metrics; names of other versions come last."""
    tables = METRICS.keys() | FAMILIES.keys()
    known = [name for name in names if documented_as(name) in tables]
    return in_table_order(known) + sorted(set(names) - set(known))
