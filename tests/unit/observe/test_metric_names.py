"""The table of metric names: complete, documented, and the gate for step records."""

import subprocess
import sys

import pytest

from lightrft_ray.observe.names import (
    FAMILIES,
    METRICS,
    PHASES,
    ROLES,
    WORK,
    check_record,
    glossary,
    is_timing,
)


def test_every_name_has_a_unit_a_meaning_and_a_direction() -> None:
    for name, metric in METRICS.items():
        assert metric.unit, name
        assert len(metric.meaning) > 5, name
        assert metric.direction in {"up", "down", "none"}, name


def test_every_phase_and_role_has_its_name() -> None:
    assert {f"time/{phase}" for phase in PHASES} <= set(METRICS)
    assert {f"memory/{role}_mb" for role in ROLES} <= set(METRICS)


def test_exactly_the_times_speeds_and_memories_are_timing() -> None:
    timing = {name for name in METRICS if is_timing(name)}
    expected = {f"time/{phase}" for phase in (*PHASES, "publish_pause", "observe", "step")}
    expected |= {f"memory/{role}_mb" for role in ROLES} | {f"busy/{role}" for role in WORK}
    expected |= {f"memory/{role}/{phase}_mb" for role in WORK for phase in WORK[role]}
    expected |= {name for name in METRICS if name.startswith("speed/")} | {"failures/restarts"}
    assert timing == expected


def test_an_undocumented_name_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="reward/median"):
        check_record({"step": 1, "reward/median": 0.5})


def test_a_family_has_a_name_for_each_reward() -> None:
    check_record({"step": 1, "reward/component/exact_match": 1, "reward/latency/a/p50": 2})
    assert is_timing("reward/latency/a/p50")
    assert not is_timing("reward/failed_fraction/a")
    for name in ("reward/component/", "reward/latency/a/p51"):
        with pytest.raises(ValueError, match=name):
            check_record({"step": 1, name: 0.5})


def test_a_record_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="'step'"):
        check_record({"reward/mean": 0.5})


def test_the_glossary_has_one_markdown_row_for_each_name() -> None:
    header, rule, *rows = glossary().splitlines()
    columns = header.count("|")
    assert rule.count("|") == columns
    assert [row.split("`")[1] for row in rows] == [*METRICS, *FAMILIES]
    assert all(row.count("|") == columns for row in rows)
    assert "| `reward/mean` | reward | mean reward of the step's samples | higher |" in rows


def test_the_layer_imports_without_torch_and_ray() -> None:
    code = (
        "import sys, pkgutil, importlib, lightrft_ray.observe as layer\n"
        "for module in pkgutil.iter_modules(layer.__path__, 'lightrft_ray.observe.'):\n"
        "    importlib.import_module(module.name)\n"
        "print([name for name in ('torch', 'ray', 'vllm', 'tensorflow') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"
