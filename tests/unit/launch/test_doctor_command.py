"""The command line of launch/doctor.py, with the quickest of its checks."""

from pathlib import Path

import pytest

from launch import doctor as command
from lightrft_ray.driver import doctor
from lightrft_ray.driver.doctor import Finding


def _only(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(command, "_checks", lambda **_: [lambda: list(findings)])


def test_all_is_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _only(
        monkeypatch, *doctor.check_python((3, 12)), Finding("disk", "warning", "low", "free some")
    )
    assert command.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok       python: 3.12",
        "warning  disk: low",
        "         free some",
        "all that runs need is there",
    ]


def test_a_failure_is_shown_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _only(monkeypatch, *doctor.check_python((3, 9)))
    assert command.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAILED   python: 3.9",
        "         make the environment with Python 3.11 or 3.12",
        "1 failed",
    ]


def test_every_check_of_the_module_is_run() -> None:
    defined = {name for name in vars(doctor) if name.startswith("check_")} - {"check_space"}
    checks = command._checks(needs_gpu=False, output_dir=Path("runs"))
    assert len(checks) == len(defined) + 1  # and that of the cluster
