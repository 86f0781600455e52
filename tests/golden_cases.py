"""Reads golden vector files and compares results with them; every key in a file must be used.

The folder is `tests/golden`, or the one that the environment variable LIGHTRFT_GOLDEN_DIR names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lightrft_ray.config.errors import UserError

DTYPES = (torch.float32, torch.float64)
_FOLDER = Path(os.environ.get("LIGHTRFT_GOLDEN_DIR", Path(__file__).parent / "golden"))
_CASE_KEYS = {
    "id",
    "kind",
    "tags",
    "params",
    "inputs",
    "expected",
    "note",
    "tolerance",
    "optional",
    "alternative",
    "shards",
}


@dataclass
class Case:
    """One golden case; it remembers which parameters and inputs an adapter has read."""

    raw: Mapping[str, Any]
    tolerance: Mapping[str, float]
    dtype: torch.dtype = torch.float32
    unread: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        assert set(self.raw) <= _CASE_KEYS, set(self.raw) - _CASE_KEYS
        self.unread = {*self.raw["params"], *self.raw["inputs"]}

    def __str__(self) -> str:
        return str(self.raw["id"])

    @property
    def kind(self) -> str:
        return str(self.raw["kind"])

    def has(self, name: str) -> bool:
        return name in self.raw["params"] or name in self.raw["inputs"]

    def param(self, name: str, *default: Any) -> Any:
        self.unread.discard(name)
        if default and name not in self.raw["params"]:
            return default[0]
        return self.raw["params"][name]

    def raw_input(self, name: str) -> Any:
        self.unread.discard(name)
        return self.raw["inputs"][name]

    def floats(self, name: str) -> Tensor:
        return torch.tensor(self.raw_input(name), dtype=self.dtype)

    def integers(self, name: str) -> Tensor:
        return torch.tensor(self.raw_input(name), dtype=torch.long)

    def mask(self) -> Tensor:
        return self.integers("mask").bool()


Adapter = Callable[[Case], Mapping[str, Any]]


def topics() -> set[str]:
    """Those of the folder."""
    return {path.stem for path in _FOLDER.glob("*.json")}


def load(topic: str) -> list[Case]:
    """All cases of one topic's file."""
    document = json.loads((_FOLDER / f"{topic}.json").read_text())
    assert document["format"] == 1
    assert len(document["cases"]) == document["n_cases"] > 0
    return [Case(raw, raw.get("tolerance", document["tolerance"])) for raw in document["cases"]]


def run(
    case: Case, dtype: torch.dtype, adapters: Mapping[str, Adapter], information: Iterable[str] = ()
) -> None:
    """Calls the adapter of the case's kind and compares every expected value.

    `information` names expected keys that the format's description calls informative only.
    """
    case = Case(case.raw, case.tolerance, dtype)
    adapter = adapters[case.kind]
    expected = _without(case.raw["expected"], set(information))
    if expected == {"behaviour": "raise"}:
        with pytest.raises((UserError, ValueError)):
            adapter(case)
        return
    got = adapter(case)
    assert not case.unread, f"{case}: not used: {sorted(case.unread)}"
    _compare(got, expected, case.tolerance, str(case))


def _without(expected: Any, names: set[str]) -> Any:
    if not isinstance(expected, Mapping):
        return expected
    return {key: _without(value, names) for key, value in expected.items() if key not in names}


def _compare(got: Any, expected: Any, tolerance: Mapping[str, float], where: str) -> None:
    if isinstance(expected, Mapping):
        for name, value in expected.items():
            assert name in got, f"{where}: nothing computed for {name}"
            _compare(got[name], value, tolerance, f"{where}.{name}")
    elif isinstance(expected, list) and expected and _is_nested(expected):
        assert len(got) == len(expected), f"{where}: {len(got)} entries, not {len(expected)}"
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            _compare(one, other, tolerance, f"{where}[{index}]")
    elif expected is None:
        assert got is None, where
    else:
        _compare_numbers(got, expected, tolerance, where)


def _is_nested(values: list[Any]) -> bool:
    """Whether a list holds objects or rows of different lengths, not one rectangular array."""
    if isinstance(values[0], Mapping):
        return True
    return isinstance(values[0], list) and len({len(row) for row in values}) > 1


def _compare_numbers(got: Any, expected: Any, tolerance: Mapping[str, float], where: str) -> None:
    got = torch.as_tensor(got)
    wanted = torch.as_tensor(expected, dtype=torch.float64)
    assert got.shape == wanted.shape, f"{where}: shape {tuple(got.shape)}"
    assert torch.isfinite(got).all(), f"{where}: not finite: {got}"
    close = (got.double() - wanted).abs() <= tolerance["atol"] + tolerance["rtol"] * wanted.abs()
    assert close.all(), f"{where}: got {got.tolist()}, expected {wanted.tolist()}"
