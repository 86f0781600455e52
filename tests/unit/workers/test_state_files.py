"""State is read back as it was, and a file that would run something is refused."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lightrft_ray.config import UserError
from lightrft_ray.workers.state_files import (
    deepspeed_classes,
    state_from_bytes,
    state_from_file,
    state_to_bytes,
)

STATE = {"weights": torch.arange(6.0), "steps": (1, 2.5, None), "names": ["a"]}


class _Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self._trace),)


def test_state_comes_back(tmp_path: Path) -> None:
    data = state_to_bytes(STATE).tobytes()
    (tmp_path / "x.pt").write_bytes(data)
    for state in (state_from_bytes(data, "x.pt"), state_from_file(tmp_path / "x.pt")):
        assert isinstance(state, dict) and state.keys() == STATE.keys()
        assert torch.equal(state["weights"], STATE["weights"])
        assert state["steps"] == STATE["steps"] and state["names"] == STATE["names"]


@pytest.mark.parametrize("from_disk", [False, True])
def test_a_file_that_would_run_something_is_refused(tmp_path: Path, from_disk: bool) -> None:
    trace = tmp_path / "trace"
    data = state_to_bytes({"module": STATE, "more": _Malicious(trace)}).tobytes()
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(UserError, match=r"x.pt .* is refused.*more than data .*mkdir") as refusal:
        if from_disk:
            state_from_file(tmp_path / "x.pt", deepspeed_classes())
        else:
            state_from_bytes(data, "x.pt", allowed=deepspeed_classes())
    assert "\n" not in str(refusal.value)
    assert not trace.exists()
    torch.load(tmp_path / "x.pt", weights_only=False)
    assert trace.exists()  # it would have run
