"""Hosts on one machine: network namespaces with a link each to one switch."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

SUBNET = "198.18.77"  # of the block that is reserved for benchmarks: no real host has it
_PREFIX = f"lrt{os.getpid()}"  # of names on the machine, where other runs may have theirs
_SWITCH = f"{_PREFIX}sw"


def missing() -> str | None:
    """Why hosts cannot be made here; None where they can."""
    if shutil.which("ip") is None:
        return "there is no `ip` (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    return None


@dataclass(frozen=True)
class Host:
    """A network namespace: its own loopback, one link, its own ports, and the machine's files."""

    number: int

    @property
    def name(self) -> str:
        """Of the namespace."""
        return f"{_PREFIX}h{self.number}"

    @property
    def address(self) -> str:
        """On the switch."""
        return f"{SUBNET}.{self.number}"

    def inside(self, words: Sequence[str]) -> list[str]:
        """The command line that runs `words` on this host."""
        return ["ip", "netns", "exec", self.name, *words]

    @property
    def _port(self) -> str:
        """The switch's end of the link."""
        return f"{_PREFIX}p{self.number}"

    def cut(self) -> None:
        """Pull the cable: both ends are silent, and open connections stay open."""
        _ip("link", "set", self._port, "down")

    def mend(self) -> None:
        """Put the cable back."""
        _ip("link", "set", self._port, "up")

    def connect(self) -> None:
        """Make the namespace and its link."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self._port, "type", "veth", "peer", "eth0", "netns", self.name)
        _ip("link", "set", self._port, "master", _SWITCH, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{self.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            _ip("-netns", self.name, *words)

    def remove(self) -> None:
        """With its link; nothing must run there any more."""
        _ip("link", "delete", self._port)
        _ip("netns", "delete", self.name)


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """`count` hosts that reach each other and nothing else."""
    with ExitStack() as stack:
        _ip("link", "add", _SWITCH, "type", "bridge")
        stack.callback(_ip, "link", "delete", _SWITCH)
        _ip("link", "set", _SWITCH, "up")
        made = []
        for number in range(1, count + 1):
            host = Host(number)
            stack.callback(host.remove)
            host.connect()
            made.append(host)
        yield made


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
