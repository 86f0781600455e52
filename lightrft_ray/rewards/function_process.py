"""A reward function in a process of its own, which is killed when it does not answer in time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.child_process import ChildProcess, ChildProcessFault
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
        self._child = ChildProcess("lightrft_ray.rewards.function_host")

    def start(self) -> None:
        """Return once the function is loaded. Raises UserError where it cannot be."""
        if self._child.is_running:
            return
        self._child.start()
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
        self._child.kill()

    def _exchange(self, message: object, timeout: float) -> object:
        """Send a message and give its answer; without one, the process is gone."""
        try:
            return self._child.exchange(message, timeout)
        except ChildProcessFault as fault:
            raise FunctionProcessError(f"the reward function's process {fault}") from None
