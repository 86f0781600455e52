"""The endless, shuffled stream of prompts a run trains on, with a cursor that can be saved."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.difficulty import PassRates, PassRateState
from lightrft_ray.data.prompt import Prompt
from lightrft_ray.data.prompt_set import PromptSet
from lightrft_ray.data.shuffled import Cursor, ShuffledPlaces


class CursorState(TypedDict):
    """Where a stream stands, in plain values; without pass rates of one size for any data."""

    seed: int
    prompts: str
    epoch: int
    position: int
    mixture: NotRequired[list[Cursor]]
    difficulty: NotRequired[PassRateState]


@dataclass(frozen=True)
class Share:
    """One of several sources that are mixed: its prompts' places, and its weight in the mixture."""

    places: range
    weight: float


class PromptSource:
    """Yields every prompt once an epoch, in an order given by the seed and the epoch alone.

    With `shares`, each source has epochs of its own, and of any number of prompts taken each
    source's part is that of its weight, to within one prompt a source. With `pass_rates`, an epoch
    leaves out those that these pass over.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        seed: int,
        pass_rates: PassRates | None = None,
        shares: Sequence[Share] | None = None,
    ) -> None:
        """Raises UserError without prompts, ValueError if two have one id."""
        if not prompts:
            raise UserError("there are no prompts to train on; check data.prompt_data")
        self._prompts = prompts
        if isinstance(prompts, PromptSet):
            self._names = prompts.ids
        else:
            self._names = [prompt.id for prompt in prompts]
        self._places = {name: place for place, name in enumerate(self._names)}
        if len(self._places) != len(prompts):
            raise ValueError("the ids of the prompts are not unique")
        self._seed = seed
        self._pass_rates = pass_rates
        shares = shares or [Share(range(len(prompts)), 1.0)]
        total = sum(share.weight for share in shares)
        self._weights = [share.weight / total for share in shares]
        self._streams = [ShuffledPlaces(self._names, share.places, seed) for share in shares]

    def take(self, count: int) -> list[tuple[Prompt, int]]:
        """The next `count` prompts, each with its epoch from 0; goes on into the next epoch."""
        return [self._take() for _ in range(count)]

    def peek(self, count: int) -> list[Prompt]:
        """The prompts that `take` would give now; the stream stays where it is.

        By pass rates, others may come in their place once these have changed.
        """
        cursors = [stream.cursor() for stream in self._streams]
        passed_over = 0 if self._pass_rates is None else self._pass_rates.passed_over
        coming = [prompt for prompt, _ in self.take(count)]
        for stream, cursor in zip(self._streams, cursors, strict=True):
            stream.go_to(cursor)
        if self._pass_rates is not None:
            self._pass_rates.passed_over = passed_over
        return coming

    def _take(self) -> tuple[Prompt, int]:
        stream = self._next_stream()
        while True:
            place, epoch = stream.advance()
            if self._pass_rates is None or self._pass_rates.takes(self._names[place], epoch):
                stream.taken += 1
                return self._prompts[place], epoch

    def _next_stream(self) -> ShuffledPlaces:
        """The one that is furthest behind its share; the first of several."""
        total = sum(stream.taken for stream in self._streams) + 1
        pairs = zip(self._weights, self._streams, strict=True)
        return max(pairs, key=lambda pair: pair[0] * total - pair[1].taken)[1]

    def prompt(self, name: str) -> Prompt:
        """The prompt with this id."""
        return self._prompts[self._places[name]]

    def note(self, name: str, pass_rate: float) -> None:
        """Tell the share of a prompt's samples that were correct; of no account without rates."""
        if self._pass_rates is not None:
            self._pass_rates.update(name, pass_rate)

    def as_record(self) -> dict[str, float]:
        """Metrics by name."""
        return {} if self._pass_rates is None else self._pass_rates.as_record()

    def state_dict(self) -> CursorState:
        """The cursor, and pass rates where prompts are taken by them."""
        first = self._streams[0].cursor()
        state: CursorState = {
            "seed": self._seed,
            "prompts": self._fingerprint(),
            "epoch": first["epoch"],
            "position": first["position"],
        }
        if len(self._streams) > 1:
            state["mixture"] = [stream.cursor() for stream in self._streams]
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
        self._load_cursors(state)

    def _load_pass_rates(self, state: PassRateState | None) -> None:
        if (state is None) != (self._pass_rates is None):
            there, here = ("uniform", "difficulty") if state is None else ("difficulty", "uniform")
            raise UserError(
                f"the checkpoint was made with data.prompt_sampling {there}, and this run has "
                f"{here}: set data.prompt_sampling to {there}, or start a new run"
            )
        if state is not None and self._pass_rates is not None:
            self._pass_rates.load_state_dict(state)

    def _load_cursors(self, state: CursorState) -> None:
        alone: Cursor = {"epoch": state["epoch"], "position": state["position"], "taken": 0}
        cursors = state.get("mixture", [alone])
        if len(cursors) != len(self._streams):
            raise UserError(
                f"the checkpoint mixed {len(cursors)} source(s), and this run {len(self._streams)}:"
                " resume with the same data.prompt_data_probs, or start a new run"
            )
        for stream, cursor in zip(self._streams, cursors, strict=True):
            stream.go_to(cursor)

    def _fingerprint(self) -> str:
        names = "\n".join(sorted(self._names))
        return hashlib.sha256(names.encode()).hexdigest()[:16]


def mixture(prompts: PromptSet, weights: Sequence[float] | None) -> list[Share] | None:
    """The parts of the prompts with their weights; None without weights."""
    if weights is None:
        return None
    return [Share(places, weight) for places, weight in zip(prompts.parts, weights, strict=True)]
