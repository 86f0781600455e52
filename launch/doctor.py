"""Checks the machine, and the cluster at RAY_ADDRESS, and says what to do where something is amiss.

Status 0 where runs can work, 1 where a check failed. Warnings do not count.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightrft_ray.driver.doctor import Finding

_SIGNS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


def main(argv: Sequence[str]) -> int:
    """Run all checks by the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="launch/doctor.py", description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="fail where there is no GPU")
    parser.add_argument("--output_dir", type=Path, default=Path("runs"), help="where runs write")
    options = parser.parse_args(argv)
    failed = 0
    for check in _checks(needs_gpu=options.gpu, output_dir=options.output_dir):
        for finding in check():
            failed += finding.status == "failed"
            _show(finding)
    sys.stdout.write(f"{failed} failed\n" if failed else "all that runs need is there\n")
    return 1 if failed else 0


def _checks(*, needs_gpu: bool, output_dir: Path) -> list[Callable[[], list["Finding"]]]:
    # Imported here: --help need not wait for Ray.
    from lightrft_ray.driver import doctor
    from lightrft_ray.driver.doctor_cluster import check_cluster

    return [
        doctor.check_python,
        doctor.check_packages,
        lambda: doctor.check_gpus(needed=needs_gpu),
        doctor.check_nccl,
        doctor.check_vllm,
        doctor.check_deepspeed,
        doctor.check_shared_memory,
        lambda: doctor.check_disk(output_dir),
        doctor.check_open_files,
        doctor.check_ports,
        doctor.check_authentication,
        check_cluster,
    ]


def _show(finding: "Finding") -> None:
    sys.stdout.write(f"{_SIGNS[finding.status]}  {finding.check}: {finding.text}\n")
    if finding.status != "ok":
        sys.stdout.write(f"         {finding.remedy}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
