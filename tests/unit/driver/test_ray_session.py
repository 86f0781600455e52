"""Addresses of a cluster that no run can use, without any Ray."""

import socket
import time

import pytest

from lightrft_ray.config import UserError
from lightrft_ray.driver.ray_session import ray_session


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://head:10001", "the address of Ray's client server: give HOST:6379"),
        ("http://head:8265", "the address of a dashboard: give HOST:6379"),
        ("redis://head:6379", "the address of no Ray cluster: give HOST:6379"),
        ("no.such.host.invalid:6379", "no Ray cluster can be used at RAY_ADDRESS="),
    ],
)
def test_an_address_of_something_else(
    address: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError) as error, ray_session():
        pass
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_nobody_listens_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{probe.getsockname()[1]}")
    start = time.monotonic()
    with pytest.raises(UserError, match="start one with `ray start --head`"), ray_session():
        pass
    assert time.monotonic() - start < 5
