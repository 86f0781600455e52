"""The metrics as Prometheus has them, and the Grafana dashboard that shows them."""

import json
import re
from collections.abc import Iterable
from typing import Any

from lightrft_ray.observe.names import FAMILIES, METRICS, Metric

_RAY_PREFIX = "ray_"  # Ray puts it before all names
_COLUMNS, _WIDTH, _HEIGHT = 3, 8, 7  # panels a row, and their size in Grafana's units
_UNITS = {"s": "s", "ms": "ms", "MB": "decmbytes", "bytes": "decbytes", "fraction": "percentunit"}
_RUNS = f"{_RAY_PREFIX}lightrft_step"


def gauge_name(name: str) -> str:
    """The gauge of a name of the tables, as it is given to Ray: "lightrft_reward_mean"."""
    return "lightrft_" + re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def dashboard() -> str:
    """The Grafana dashboard as JSON: a row for each section of the table, a panel for each name."""
    panels: list[dict[str, Any]] = []
    top = 0
    for section, names in _sections(METRICS | FAMILIES):
        panels.append(_row(len(panels) + 1, section, top))
        top += 1
        for index, (name, metric) in enumerate(names):
            place = (index % _COLUMNS * _WIDTH, top + index // _COLUMNS * _HEIGHT)
            panels.append(_panel(len(panels) + 1, name, metric, place))
        top += -(-len(names) // _COLUMNS) * _HEIGHT
    board = {
        "title": "LightRFT-Ray",
        "uid": "lightrft-ray",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _runs()]},
        "panels": panels,
    }
    return json.dumps(board, indent=2) + "\n"


def _sections(
    metrics: dict[str, Metric],
) -> Iterable[tuple[str, list[tuple[str, Metric]]]]:
    sections: dict[str, list[tuple[str, Metric]]] = {}
    for name, metric in metrics.items():
        sections.setdefault(name.partition("/")[0] if "/" in name else "run", []).append(
            (name, metric)
        )
    return sections.items()


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": _COLUMNS * _WIDTH, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place}


def _panel(number: int, name: str, metric: Metric, place: tuple[int, int]) -> dict[str, Any]:
    # A metric of a family has one curve for each reward, set or label.
    legend = "{{run}} {{name}}" if re.search("[A-Z]{3}", name) else "{{run}}"
    query = {
        "refId": "A",
        "expr": f'{_RAY_PREFIX}{gauge_name(name)}{{run=~"$run"}}',
        "legendFormat": legend,
    }
    return {
        "id": number,
        "type": "timeseries",
        "title": name,
        "description": metric.meaning,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": _UNITS.get(metric.unit, "short")}, "overrides": []},
        "gridPos": {"x": place[0], "y": place[1], "w": _WIDTH, "h": _HEIGHT},
        "targets": [query],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _runs() -> dict[str, Any]:
    return {
        "name": "run",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values({_RUNS}, run)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
    }
