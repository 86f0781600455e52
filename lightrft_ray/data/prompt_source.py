"""The endless, shuffled stream of prompts a run trains on, with a cursor that can be saved."""

import hashlib
from collections.abc import Sequence

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.prompts import Prompt


class PromptSource:
    """Yields every prompt once an epoch, in an order given by the seed and the epoch alone.

    The order sorts the prompts by a hash of (seed, epoch, prompt id). It depends neither on the
    order in the file nor on a library's random generator, so a resumed run meets the same prompts
    after an upgrade too.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        """Raises UserError without prompts, ValueError if two have one id."""
        if not prompts:
            raise UserError("there are no prompts to train on; check data.prompt_data")
        self._prompts = {prompt.id: prompt for prompt in prompts}
        if len(self._prompts) != len(prompts):
            raise ValueError("the ids of the prompts are not unique")
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._order = self._order_of(self._epoch)

    def take(self, count: int) -> list[tuple[Prompt, int]]:
        """The next `count` prompts, each with its epoch from 0; goes on into the next epoch."""
        taken: list[tuple[Prompt, int]] = []
        while len(taken) < count:
            if self._position == len(self._order):
                self._seek(self._epoch + 1, position=0)
            end = min(len(self._order), self._position + count - len(taken))
            names = self._order[self._position : end]
            taken.extend((self._prompts[name], self._epoch) for name in names)
            self._position = end
        return taken

    def state_dict(self) -> dict[str, int | str]:
        """The cursor: plain values, of the same size however many prompts there are."""
        return {
            "seed": self._seed,
            "prompts": self._fingerprint(),
            "epoch": self._epoch,
            "position": self._position,
        }

    def load_state_dict(self, state: dict[str, int | str]) -> None:
        """Go on exactly where `state` was taken.

        Raises UserError if it was taken with another seed or other prompts, since the stream could
        not be continued.
        """
        for name, here in (("seed", self._seed), ("prompts", self._fingerprint())):
            if state[name] != here:
                raise UserError(
                    f"the checkpoint's {name} ({state[name]}) are not this run's ({here}): resume"
                    " with the same seed and the same data, or start a new run"
                )
        self._seek(int(state["epoch"]), int(state["position"]))

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
