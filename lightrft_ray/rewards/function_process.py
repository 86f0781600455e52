"""A reward function in a process of its own, which is killed when it does not answer in time.

Not multiprocessing, whose children first run the main module of their parent again (for a worker
under Ray, all of Ray), and may outlive it.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.function_results import Rewards
from lightrft_ray.rewards.scoring import RewardInputs

_START_TIMEOUT = 120.0  # s: a function's file may import heavy libraries


@dataclass(frozen=True)
class FunctionSpec:
    """A reward function by name, as `load_reward` takes it."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    setting: str = "reward.reward_fn"


class FunctionProcessError(Exception):
    """The process did not answer in time or died; it is gone."""


class FunctionProcess:
    """Starts the process when it is first needed and again after a failure. For one thread."""

    def __init__(self, spec: FunctionSpec) -> None:
        self._spec = spec
        self.wants_media = True
        """Whether the function looks at images or videos; known once it is loaded."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Return once the function is loaded. Raises UserError where it cannot be."""
        if self._process is not None:
            return
        own, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "lightrft_ray.rewards.function_host"),
                    *(str(other.fileno()), str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._connection = Connection(own.detach())
        spec = self._spec
        answer = self._exchange((spec.name, dict(spec.arguments), spec.setting), _START_TIMEOUT)
        if isinstance(answer, str):
            self.kill()
            raise UserError(answer)
        self.wants_media = bool(answer)

    def call(self, inputs: RewardInputs, timeout: float) -> Rewards:
        """Rewards of samples. Raises FunctionProcessError after `timeout` seconds or a death."""
        self.start()
        rewards = self._exchange(inputs, timeout)
        if not isinstance(rewards, Rewards):
            raise TypeError(f"a function's process sent a {type(rewards).__name__}, no rewards")
        return rewards

    def kill(self) -> None:
        """End the process with SIGKILL, whatever it does."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _exchange(self, message: object, timeout: float) -> object:
        """Send a message and give its answer; without one, the process is gone."""
        if self._connection is None or self._process is None:
            raise RuntimeError("the process was not started")
        process = self._process
        try:
            self._connection.send(message)
            if self._connection.poll(timeout):
                return self._connection.recv()
        except (EOFError, ConnectionError):
            self.kill()
            raise FunctionProcessError(
                f"the reward function's process died (exit status {process.returncode})"
            ) from None
        self.kill()
        raise FunctionProcessError(
            f"the reward function did not answer within {timeout:.3g} s and was killed"
        )
