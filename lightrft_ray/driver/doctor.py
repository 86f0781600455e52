"""Checks of a machine and of a cluster: what a run needs, and what to do where it is missing.

Each check is a function that gives findings and never raises for what it looks for.
"""

import importlib.metadata
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.version import Version

Status = Literal["ok", "warning", "failed"]

_PACKAGE = "lightrft-ray"
_GB = 10**9
_NEEDED_DISK = 20 * _GB
_NEEDED_SHARED_MEMORY = 2 * _GB
_NEEDED_FILES = 4096
_RAY_PORTS = {6379: "the head's address", 8265: "the dashboard and jobs", 10001: "Ray clients"}
_SUBPROCESS_TIMEOUT = 180.0  # s: imports of vLLM are slow on a busy machine
_CONNECT_TIMEOUT = 5.0  # s


@dataclass(frozen=True)
class Finding:
    """The outcome of one check; `remedy` says what to do unless all is well."""

    check: str
    status: Status
    text: str
    remedy: str = ""


def check_python(version: tuple[int, ...] = sys.version_info[:2]) -> list[Finding]:
    """The interpreter is one that the package runs with."""
    text = ".".join(map(str, version))
    if version in ((3, 11), (3, 12)):
        return [Finding("python", "ok", text)]
    return [Finding("python", "failed", text, "make the environment with Python 3.11 or 3.12")]


def check_packages(
    requirements: Sequence[str] | None = None,
    installed: Callable[[str], str] = importlib.metadata.version,
) -> list[Finding]:
    """What the package requires is installed, in versions that it works with."""
    if requirements is None:
        requirements = importlib.metadata.requires(_PACKAGE) or []
    findings = []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        findings += _wrong_version(requirement, installed)
    return findings or [Finding("packages", "ok", f"all of {len(requirements)} fit")]


def _wrong_version(requirement: Requirement, installed: Callable[[str], str]) -> list[Finding]:
    wanted = f"{requirement.name}{requirement.specifier}"
    remedy = f"pip install '{wanted}'"
    try:
        version = installed(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return [Finding("packages", "failed", f"{requirement.name} is not installed", remedy)]
    if requirement.specifier.contains(Version(version).base_version, prereleases=True):
        return []
    return [Finding("packages", "failed", f"{requirement.name} is {version}", remedy)]


def check_vllm() -> list[Finding]:
    """vLLM and transformers load side by side, and vLLM finds this package's weight transport."""
    code = (
        "import transformers, vllm, torch\n"
        "from vllm.platforms import current_platform\n"
        "from importlib.metadata import entry_points\n"
        "found = [e.name for e in entry_points(group='vllm.general_plugins')]\n"
        "assert 'lightrft_ray_object_store' in found, 'the plugin of lightrft-ray is missing'\n"
        "print('vLLM', vllm.__version__, 'for', current_platform.device_type,\n"
        "      'with transformers', transformers.__version__, 'and PyTorch', torch.__version__)\n"
    )
    return [_ran("vllm", code, "install as the README says; vLLM brings the torch it is built for")]


def check_deepspeed() -> list[Finding]:
    """DeepSpeed imports."""
    code = "import deepspeed\nprint('DeepSpeed', deepspeed.__version__)\n"
    return [_ran("deepspeed", code, "pip install the version that pyproject.toml names")]


def _ran(check: str, code: str, remedy: str) -> Finding:
    """Run Python in a process of its own: what crashes there ends no check after it."""
    try:
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=_SUBPROCESS_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(check, "failed", f"no answer in {_SUBPROCESS_TIMEOUT:g} s", remedy)
    lines = (result.stdout if result.returncode == 0 else result.stderr).strip().splitlines()
    last = lines[-1] if lines else f"ended with status {result.returncode}"
    if result.returncode != 0:
        return Finding(check, "failed", last, remedy)
    return Finding(check, "ok", last)


def check_gpus(*, needed: bool) -> list[Finding]:
    """PyTorch sees the GPUs that the driver has; without any, only CPU runs are possible."""
    import torch

    missing: Status = "failed" if needed else "warning"
    listed = _listed_gpus()
    if not torch.cuda.is_available():
        if listed:
            remedy = "install a PyTorch for CUDA, and a driver as new as it"
            return [Finding("gpus", "failed", f"PyTorch sees none of {len(listed)} GPUs", remedy)]
        remedy = "take a machine with NVIDIA GPUs; runs on a CPU need none"
        return [Finding("gpus", missing, "no GPU", remedy)]
    seen = torch.cuda.device_count()
    names = {torch.cuda.get_device_properties(index).name for index in range(seen)}
    text = f"{seen} × {', '.join(sorted(names))}, CUDA {torch.version.cuda}"
    if seen < len(listed):
        remedy = "unset CUDA_VISIBLE_DEVICES before `ray start`"
        return [Finding("gpus", "warning", f"{text}; the driver has {len(listed)}", remedy)]
    return [Finding("gpus", "ok", text)]


def _listed_gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    result = subprocess.run(
        ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False
    )
    return re.findall(r"^GPU \d+: .*$", result.stdout, re.MULTILINE)


def check_nccl() -> list[Finding]:
    """PyTorch has NCCL, which GPU learners talk by."""
    import torch

    if torch.version.cuda is None:
        return [Finding("nccl", "ok", "not needed: a PyTorch for CPUs talks by gloo")]
    if not torch.distributed.is_nccl_available():
        return [Finding("nccl", "failed", "PyTorch has none", "install PyTorch's CUDA build")]
    return [Finding("nccl", "ok", ".".join(map(str, torch.cuda.nccl.version())))]


def check_space(
    check: str, folder: Path, needed: int, remedy: str, *, is_fatal: bool = False
) -> list[Finding]:
    """At least `needed` bytes are free in a folder, or in the nearest one above that exists."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / _GB:.1f} GB free in {existing}"
    if free >= needed:
        return [Finding(check, "ok", text)]
    status: Status = "failed" if is_fatal else "warning"
    return [Finding(check, status, f"{text}, {needed / _GB:g} GB wanted", remedy)]


def check_shared_memory(folder: Path = Path("/dev/shm")) -> list[Finding]:
    """Ray's object store lies there; in a container it is 64 MB unless one asks for more."""
    remedy = "in a container: docker run --shm-size=16g, or an emptyDir of medium Memory"
    return check_space("shared memory", folder, _NEEDED_SHARED_MEMORY, remedy, is_fatal=True)


def check_disk(output_dir: Path) -> list[Finding]:
    """Checkpoints and Ray's logs have room."""
    remedy = "free some, or set output_dir, checkpoint.ckpt_path or `ray start --temp-dir`"
    folders = {"disk for output": output_dir.absolute(), "disk for Ray": Path("/tmp/ray")}
    return [
        finding
        for check, folder in folders.items()
        for finding in check_space(check, folder, _NEEDED_DISK, remedy)
    ]


def check_open_files(limit: int | None = None) -> list[Finding]:
    """Ray opens a file for each connection between workers."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if soft in (-1, resource.RLIM_INFINITY) or soft >= _NEEDED_FILES:
        return [Finding("open files", "ok", str(soft))]
    remedy = f"ulimit -n {16 * _NEEDED_FILES} before `ray start`"
    return [Finding("open files", "warning", f"at most {soft}", remedy)]


def check_ports(ports: dict[int, str] | None = None, host: str = "127.0.0.1") -> list[Finding]:
    """The ports of a head node are free, which only matters where one is to be started."""
    taken = {
        port: use for port, use in (ports or _RAY_PORTS).items() if _somebody_listens(host, port)
    }
    if not taken:
        return [Finding("ports", "ok", f"{', '.join(map(str, ports or _RAY_PORTS))} are free")]
    text = ", ".join(f"{port} ({use})" for port, use in taken.items())
    remedy = "fine where Ray runs already; otherwise `ray start --head --port` with another"
    return [Finding("ports", "warning", f"in use: {text}", remedy)]


def _somebody_listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(_CONNECT_TIMEOUT)
        return probe.connect_ex((host, port)) == 0


def check_authentication(environment: dict[str, str] | None = None) -> list[Finding]:
    """Where a cluster is named, tokens are on: whoever reaches its port could run code."""
    variables = dict(os.environ) if environment is None else environment
    if "RAY_ADDRESS" not in variables:
        return [Finding("authentication", "ok", "no cluster is named (RAY_ADDRESS)")]
    if variables.get("RAY_AUTH_MODE") == "token":
        return [Finding("authentication", "ok", "by token")]
    remedy = "export RAY_AUTH_MODE=token on all nodes, and `ray get-auth-token --generate` once"
    return [Finding("authentication", "warning", "RAY_AUTH_MODE is not token", remedy)]
