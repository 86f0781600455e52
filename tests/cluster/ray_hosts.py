"""Ray on hosts: one node each, with its own folder, as `ray start` gives it."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.cluster.network import Host
from tests.cluster.runs import RESOURCES
from tests.integration.launching import ROOT, assert_all_gone, command, environment

BIN = Path(sys.executable).parent
_PORT = 6379
_UP_WITHIN = 180.0  # s
_OBJECT_STORE = 300_000_000


class RayHosts:
    """A head on the first host, and workers on the others."""

    def __init__(self, machines: list[Host], folder: Path) -> None:
        self.hosts = machines
        self._folder = folder
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.environment = environment(
            PATH=f"{BIN}:{os.environ['PATH']}",
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=secrets.token_hex(16),
            RAY_USAGE_STATS_ENABLED="0",
            PYTHONUNBUFFERED="1",
            RAY_raylet_start_wait_time_s="120",  # on a busy machine
        )

    @property
    def address(self) -> str:
        """Of the cluster."""
        return f"{self.hosts[0].address}:{_PORT}"

    def start_all(self) -> None:
        """Start the nodes of all hosts; returns when they run."""
        for host in self.hosts:
            self.start(host)
            self._wait_until_up(host)

    def start(self, host: Host) -> None:
        """Start the host's node."""
        # Sockets' paths must be short.
        folder = self._folder / str(host.number)
        folder.mkdir(exist_ok=True)
        is_head = host is self.hosts[0]
        where = ["--head", f"--port={_PORT}"] if is_head else [f"--address={self.address}"]
        words = [
            *("ray", "start", "--block", *where, f"--node-ip-address={host.address}"),
            *(f"--temp-dir={folder}", "--num-cpus=2", f"--object-store-memory={_OBJECT_STORE}"),
            f"--resources={json.dumps(RESOURCES[host.number])}",
        ]
        with self._log(host).open("ab") as log:
            self._nodes[host.number] = subprocess.Popen(
                host.inside(words), stdout=log, stderr=log, env=self.environment, cwd=ROOT
            )

    def _wait_until_up(self, host: Host) -> None:
        deadline = time.monotonic() + _UP_WITHIN
        while "Ray runtime started" not in self._log(host).read_text():
            assert self._nodes[host.number].poll() is None, self.logs()
            assert time.monotonic() < deadline, f"host {host.number} did not start: {self.logs()}"
            time.sleep(0.5)

    def _log(self, host: Host) -> Path:
        """What `ray start` printed there."""
        return self._folder / f"{host.number}.log"

    def launch(self, output_dir: Path, **options: object) -> subprocess.Popen[str]:
        """Start the entry point on the head's host."""
        return subprocess.Popen(
            self.hosts[0].inside(command(output_dir, **options)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment | {"RAY_ADDRESS": self.address},
            cwd=ROOT,
        )

    def kill(self, host: Host) -> None:
        """End all processes of a host at once, as when its power fails."""
        node = self._nodes.pop(host.number)
        family = [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]
        for process in family:
            process.send_signal(signal.SIGKILL)
        node.wait()
        assert_all_gone(family)

    def stop(self) -> None:
        """End all nodes, and kill what is left of them; the head comes last."""
        for number in sorted(self._nodes, reverse=True):
            node = self._nodes.pop(number)
            if node.poll() is not None:
                continue  # it did not start, or was lost; its processes end with it
            family = psutil.Process(node.pid).children(recursive=True)
            node.terminate()
            _, alive = psutil.wait_procs([*family, psutil.Process(node.pid)], timeout=45)
            for process in alive:
                process.kill()
            node.wait()

    def logs(self) -> str:
        """What `ray start` printed on each host."""
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))
