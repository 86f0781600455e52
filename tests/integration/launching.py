"""Starting the entry point as a user does, and looking at what it leaves."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir

import psutil

from lightrft_ray.observe.names import is_timing

ROOT = Path(__file__).parents[2]
ENTRY_POINT = ROOT / "launch" / "ppo_vl.py"
TIMEOUT = 400
_MARK = "LIGHTRFT_TEST_RUN"

# A few short steps on few prompts; the rest is the embedded default.
SHORT = {
    "--num_steps": "3",
    "--rollout_batch_size": "8",
    "--n_samples_per_prompt": "4",
    "--train_batch_size": "32",
    "--micro_train_batch_size": "16",
    "--eval_max_samples": "32",
    "--progress": "plain",
}


def command(output_dir: Path, *documented: str, **options: object) -> list[str]:
    """The command line of a short run, with options by leaf name.

    `documented` are words of a command of the README, which what makes it short comes behind.
    """
    assert documented[:1] in ((), ("launch/ppo_vl.py",))
    chosen = SHORT | {f"--{name}": str(value) for name, value in options.items()}
    words = [word for pair in chosen.items() for word in pair]
    start = [sys.executable, str(ENTRY_POINT), *documented[1:]]
    return [*start, "--output_dir", str(output_dir), *words]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without a Ray address, so that a run starts its own."""
    kept = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return kept | variables


def left_behind() -> set[Path]:
    """Shared memory, and what is kept for engines, on this machine now."""
    return {*Path("/dev/shm").iterdir(), *Path(gettempdir()).glob("lightrft_engine_*")}


def launch(
    output_dir: Path, *documented: str, cwd: Path = ROOT, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run to the end, and fail if a process of the run is left."""
    words = command(output_dir, *documented, **options)
    result = run_program(words, environment(**{_MARK: str(output_dir)}), cwd=cwd)
    assert_all_gone(processes_of(output_dir))
    return result


def run_program(
    words: Sequence[str], variables: Mapping[str, str] | None = None, *, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; without `variables`, in an environment without a Ray address."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        cwd=cwd,
        env=environment() if variables is None else variables,
    )


def processes_of(output_dir: Path) -> list[psutil.Process]:
    """All processes of a run, orphans included: they inherit its environment."""
    return [each for each in psutil.process_iter() if _has_mark(each, str(output_dir))]


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except psutil.Error:
        return False


def start(output_dir: Path, *documented: str, **options: object) -> subprocess.Popen[str]:
    """Start a run and leave it running."""
    return subprocess.Popen(
        command(output_dir, *documented, **options),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment(**{_MARK: str(output_dir)}),
        # A shell's background jobs ignore SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Lines of its output until one holds `text`."""
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if text in " ".join(line.split()):
            return lines
    raise AssertionError(f"{text!r} was never printed: {''.join(lines)}")


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[int, str]:
    """Send a signal and wait for the end; the exit status and the rest of the output."""
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes that a run started, the ones of Ray and vLLM included."""
    return psutil.Process(process.pid).children(recursive=True)


def called(processes: Iterable[psutil.Process], words: str) -> list[psutil.Process]:
    """Those that live and have `words` in their command line."""
    return [process for process in processes if words in _command_line(process)]


def _command_line(process: psutil.Process) -> str:
    """Empty for a process that has ended: any may, while one looks at it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def assert_all_gone(processes: list[psutil.Process], within: float = 10) -> None:
    """Fail if one of the processes lives on."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        alive = [process for process in processes if _is_alive(process)]
        if not alive:
            return
        time.sleep(0.2)
    raise AssertionError(f"left behind: {alive}")


def metrics(output_dir: Path) -> list[dict[str, float]]:
    """The step records without what may differ between equal runs."""
    return [
        {name: value for name, value in record.items() if not is_timing(name)}
        for record in all_metrics(output_dir)
    ]


def all_metrics(output_dir: Path) -> list[dict[str, float]]:
    """The step records."""
    lines = (output_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
