"""The Python made of the protocol is that of the file beside it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_FOLDER = Path("lightrft_ray/rewards/proto")


@pytest.fixture(scope="module")
def made_anew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("proto")
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs]
    subprocess.run([*command, str(_FOLDER / "reward.proto")], cwd=ROOT, check=True, timeout=60)
    return target


@pytest.mark.parametrize("name", ["reward_pb2.py", "reward_pb2.pyi", "reward_pb2_grpc.py"])
def test_committed_python_is_up_to_date(made_anew: Path, name: str) -> None:
    """To renew it, `make proto`."""
    assert (made_anew / _FOLDER / name).read_text() == (ROOT / _FOLDER / name).read_text()
