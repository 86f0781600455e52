"""An engine's process ends with the owner of the engine, and with nobody else."""

import os
import subprocess
import sys

import psutil
import pytest

from lightrft_ray.sync.engine_owner import end_with_owner

# Starts a process as vLLM would, by way of another one where asked to, and says its number.
_OWNER = """
import subprocess, sys, time
from lightrft_ray.sync.engine_owner import end_with_owner, own_engine

own_engine()
end_with_owner()  # the owner itself
_CHILD = '''
import os, time
from lightrft_ray.sync.engine_owner import end_with_owner
end_with_owner()
end_with_owner()
print(os.getpid(), flush=True)
time.sleep(60)
'''
command = [sys.executable, "-c", _CHILD]
_BETWEEN = f"import subprocess; subprocess.run({command!r})"
if sys.argv[1] == "grandchild":
    command = [sys.executable, "-c", _BETWEEN]
subprocess.Popen(command)
time.sleep(60)
"""


@pytest.mark.parametrize("who", ["child", "grandchild"])
def test_it_ends_with_a_killed_owner(who: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, who], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = psutil.Process(int(owner.stdout.readline()))
    with pytest.raises(psutil.TimeoutExpired):
        child.wait(timeout=0.5)
    owner.kill()
    owner.wait()
    child.wait(timeout=10)


def test_an_owner_that_is_gone_already_ends_it() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    environment = os.environ | {"LIGHTRFT_ENGINE_OWNER": str(gone.pid)}
    code = "import time; from lightrft_ray.sync.engine_owner import end_with_owner as end; end()"
    child = subprocess.run(
        [sys.executable, "-c", f"{code}; time.sleep(60)"], env=environment, timeout=30, check=False
    )
    assert child.returncode == -9


def test_processes_of_others_are_left_alone() -> None:
    assert "LIGHTRFT_ENGINE_OWNER" not in os.environ
    end_with_owner()
