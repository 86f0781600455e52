"""Each check of the doctor: all is well, and what is said where it is not."""

import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from lightrft_ray.driver import doctor
from lightrft_ray.driver.doctor import Finding
from lightrft_ray.driver.doctor_cluster import (
    check_cluster,
    check_nodes,
    check_object_stores,
    check_versions,
    own_versions,
)


def _statuses(findings: list[Finding]) -> list[str]:
    assert all(each.remedy for each in findings if each.status != "ok")
    return [each.status for each in findings]


def test_python() -> None:
    assert _statuses(doctor.check_python((3, 11))) == ["ok"]
    assert _statuses(doctor.check_python((3, 9))) == ["failed"]


def test_packages_here_fit() -> None:
    assert _statuses(doctor.check_packages()) == ["ok"]


def test_packages_that_do_not_fit() -> None:
    def installed(name: str) -> str:
        if name == "absent":
            raise PackageNotFoundError
        return {"old": "1.0", "local": "2.13.0+cpu"}[name]

    wanted = ["absent>=1", "old>=2,<3", "local>=2.13", "other; extra == 'gpu'"]
    findings = doctor.check_packages(wanted, installed)
    assert [(each.text, each.remedy) for each in findings] == [
        ("absent is not installed", "pip install 'absent>=1'"),
        ("old is 1.0", "pip install 'old<3,>=2'"),
    ]


def test_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(doctor, "_listed_gpus", list)
    assert _statuses(doctor.check_gpus(needed=False)) == ["warning"]
    assert _statuses(doctor.check_gpus(needed=True)) == ["failed"]
    monkeypatch.setattr(doctor, "_listed_gpus", lambda: ["GPU 0: H100"])
    (finding,) = doctor.check_gpus(needed=False)
    assert (finding.status, finding.text) == ("failed", "PyTorch sees none of 1 GPUs")


def test_nccl_is_for_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.version.cuda", None)
    assert _statuses(doctor.check_nccl()) == ["ok"]
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: False)
    assert _statuses(doctor.check_nccl()) == ["failed"]


def test_what_crashes_in_a_process_of_its_own() -> None:
    finding = doctor._ran("vllm", "import no_such_module", "install it")
    assert finding.status == "failed"
    assert finding.text == "ModuleNotFoundError: No module named 'no_such_module'"
    assert doctor._ran("vllm", "print('here')", "install it") == Finding("vllm", "ok", "here")


def test_what_hangs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_SUBPROCESS_TIMEOUT", 0.2)
    finding = doctor._ran("vllm", "import time; time.sleep(60)", "install it")
    assert (finding.status, finding.text) == ("failed", "no answer in 0.2 s")


def test_space(tmp_path: Path) -> None:
    there = tmp_path / "not" / "yet"
    assert _statuses(doctor.check_space("disk", there, 1, "free some")) == ["ok"]
    assert _statuses(doctor.check_space("disk", there, 10**18, "free some")) == ["warning"]
    fatal = doctor.check_space("disk", there, 10**18, "free some", is_fatal=True)
    assert _statuses(fatal) == ["failed"]
    assert str(tmp_path) in fatal[0].text


def test_open_files() -> None:
    assert _statuses(doctor.check_open_files(65536)) == ["ok"]
    assert _statuses(doctor.check_open_files(1024)) == ["warning"]


def test_ports() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        (finding,) = doctor.check_ports({port: "the dashboard"})
    assert (finding.status, finding.text) == ("warning", f"in use: {port} (the dashboard)")
    assert _statuses(doctor.check_ports({port: "the dashboard"})) == ["ok"]


def test_authentication() -> None:
    assert _statuses(doctor.check_authentication({})) == ["ok"]
    named = {"RAY_ADDRESS": "10.0.0.1:6379"}
    assert _statuses(doctor.check_authentication(named)) == ["warning"]
    assert _statuses(doctor.check_authentication(named | {"RAY_AUTH_MODE": "token"})) == ["ok"]


def _node(address: str, alive: bool = True, **resources: float) -> dict[str, object]:
    return {"NodeManagerAddress": address, "Alive": alive, "Resources": resources}


def test_nodes() -> None:
    nodes = [_node("a", GPU=8, CPU=64), _node("b", CPU=4), _node("c", alive=False, GPU=8)]
    findings = check_nodes(nodes)
    assert findings[0].text == "2 nodes with 8 GPU, 68 CPU"
    assert (findings[1].status, findings[1].text) == ("warning", "1 have died: c")


def test_object_stores() -> None:
    large, small = _node("a", object_store_memory=2e10), _node("b", object_store_memory=1e9)
    assert _statuses(check_object_stores([large])) == ["ok"]
    (finding,) = check_object_stores([large, small])
    assert (finding.status, finding.text) == ("warning", "below 4 GB on b")


def test_nodes_of_one_version() -> None:
    assert _statuses(check_versions({"a": own_versions(), "b": own_versions()})) == ["ok"]


def test_nodes_of_several_versions() -> None:
    other = own_versions() | {"python": "3.10.1", "ray": "2.9.0"}
    findings = check_versions({"a": own_versions(), "b": other, "c": own_versions()})
    assert _statuses(findings) == ["failed", "failed"]
    assert findings[0].text.startswith("python is 3.10.1 on b; 3.1")
    assert findings[1].text.startswith("ray is 2.")
    assert "2.9.0 on b" in findings[1].text


def test_a_node_that_does_not_answer() -> None:
    (finding,) = check_versions({"a": own_versions(), "b": None})
    assert (finding.status, finding.text) == ("failed", "no answer from b")


def test_no_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert _statuses(check_cluster()) == ["ok"]


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    (finding,) = check_cluster()
    assert finding.status == "failed"
    assert "RAY_ADDRESS=127.0.0.1:1" in finding.text
