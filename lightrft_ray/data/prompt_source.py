"""The endless, shuffled stream of prompts a run trains on, with a cursor that can be saved."""

import hashlib
from collections.abc import Sequence
from typing import NotRequired, TypedDict

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.difficulty import PassRates, PassRateState
from lightrft_ray.data.prompts import Prompt


class CursorState(TypedDict):
    """Where a stream stands, in plain values; without pass rates of one size for any data."""

    seed: int
    prompts: str
    epoch: int
    position: int
    difficulty: NotRequired[PassRateState]


class PromptSource:
    """Yields every prompt once an epoch, in an order given by the seed and the epoch alone.

    With `pass_rates`, an epoch leaves out those that these pass over.

    The order sorts the prompts by a hash of (seed, epoch, prompt id). It depends neither on the
    order in the file nor on a library's random generator, so a resumed run meets the same prompts
    after an upgrade too.
    """

    def __init__(
        self, prompts: Sequence[Prompt], seed: int, pass_rates: PassRates | None = None
    ) -> None:
        """Raises UserError without prompts, ValueError if two have one id."""
        if not prompts:
            raise UserError("there are no prompts to train on; check data.prompt_data")
        self._prompts = {prompt.id: prompt for prompt in prompts}
        if len(self._prompts) != len(prompts):
            raise ValueError("the ids of the prompts are not unique")
        self._seed = seed
        self._pass_rates = pass_rates
        self._epoch = 0
        self._position = 0
        self._order = self._order_of(self._epoch)

    def take(self, count: int) -> list[tuple[Prompt, int]]:
        """The next `count` prompts, each with its epoch from 0; goes on into the next epoch."""
        taken: list[tuple[Prompt, int]] = []
        while len(taken) < count:
            if self._position == len(self._order):
                self._seek(self._epoch + 1, position=0)
            name = self._order[self._position]
            self._position += 1
            if self._pass_rates is None or self._pass_rates.takes(name, self._epoch):
                taken.append((self._prompts[name], self._epoch))
        return taken

    def prompt(self, name: str) -> Prompt:
        """The prompt with this id."""
        return self._prompts[name]

    def note(self, name: str, pass_rate: float) -> None:
        """Tell the share of a prompt's samples that were correct; of no account without rates."""
        if self._pass_rates is not None:
            self._pass_rates.update(name, pass_rate)

    def as_record(self) -> dict[str, float]:
        """Metrics by name."""
        return {} if self._pass_rates is None else self._pass_rates.as_record()

    def state_dict(self) -> CursorState:
        """The cursor, and pass rates where prompts are taken by them."""
        state: CursorState = {
            "seed": self._seed,
            "prompts": self._fingerprint(),
            "epoch": self._epoch,
            "position": self._position,
        }
        if self._pass_rates is not None:
            state["difficulty"] = self._pass_rates.state_dict()
        return state

    def load_state_dict(self, state: CursorState) -> None:
        """Go on exactly where `state` was taken.

        Raises UserError if it was taken with another seed, other prompts or another way to sample
        them, since the stream could not be continued.
        """
        own = {"seed": self._seed, "prompts": self._fingerprint()}
        for name, before in (("seed", state["seed"]), ("prompts", state["prompts"])):
            if before != own[name]:
                raise UserError(
                    f"the checkpoint's {name} ({before}) are not this run's ({own[name]}): resume"
                    " with the same seed and the same data, or start a new run"
                )
        self._load_pass_rates(state.get("difficulty"))
        self._seek(state["epoch"], state["position"])

    def _load_pass_rates(self, state: PassRateState | None) -> None:
        if (state is None) != (self._pass_rates is None):
            there, here = ("uniform", "difficulty") if state is None else ("difficulty", "uniform")
            raise UserError(
                f"the checkpoint was made with data.prompt_sampling {there}, and this run has "
                f"{here}: set data.prompt_sampling to {there}, or start a new run"
            )
        if state is not None and self._pass_rates is not None:
            self._pass_rates.load_state_dict(state)

    def _seek(self, epoch: int, position: int) -> None:
        self._epoch = epoch
        self._position = position
        self._order = self._order_of(epoch)

    def _order_of(self, epoch: int) -> list[str]:
        return sorted(self._prompts, key=lambda name: self._rank(epoch, name))

    def _rank(self, epoch: int, name: str) -> bytes:
        key = f"{self._seed}/{epoch}/{name}".encode()
        return hashlib.blake2b(key, digest_size=16).digest()

    def _fingerprint(self) -> str:
        names = "\n".join(sorted(self._prompts))
        return hashlib.sha256(names.encode()).hexdigest()[:16]
