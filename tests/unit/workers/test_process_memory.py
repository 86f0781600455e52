"""Memory of a worker counts its descendants."""

import subprocess
import sys

from lightrft_ray.workers.process_memory import process_tree_mb

_CHILD = "import sys; block = bytearray(60_000_000); print(flush=True); sys.stdin.read()"


def test_children_count() -> None:
    before = process_tree_mb()
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    during = process_tree_mb()
    child.communicate()
    assert during - before > 55
    assert process_tree_mb() < during - 55
