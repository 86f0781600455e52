"""Demonstrations for the supervised loss that is mixed into the policy's updates."""

from collections.abc import Sequence

from lightrft_ray.config import DataFault, RunConfig, UserError
from lightrft_ray.data.demonstrations import Demonstration
from lightrft_ray.data.prompt_source import CursorState, PromptSource
from lightrft_ray.trainer.microbatch import balanced_partition
from lightrft_ray.workers.actor_group import ActorGroup
from lightrft_ray.workers.batches import DemonstrationBatch
from lightrft_ray.workers.messages import GroupTokens

_REASONS_NAMED = 3


class DemonstrationFeed:
    """Draws demonstrations for optimizer steps and has them encoded by the generators.

    The generators process the prompts' media, so that the driver never holds a pixel. A
    demonstration that cannot be used is replaced by the next one.
    """

    def __init__(
        self, config: RunConfig, demonstrations: Sequence[Demonstration], generators: ActorGroup
    ) -> None:
        self._config = config
        self._generators = generators
        self._by_id = {each.prompt.id: each for each in demonstrations}
        self._source = PromptSource([each.prompt for each in demonstrations], config.seed)
        self._taken = 0
        self._faults: list[DataFault] = []

    def next_batches(self, updates: int, ranks: int) -> list[list[DemonstrationBatch]]:
        """For each rank its share of the next `updates` optimizer steps, equal in samples.

        Raises UserError once more demonstrations than `max_bad_fraction` could not be used.
        """
        size = self._config.demonstrations_per_update
        encoded = self._next_encoded(updates * size)
        steps = [encoded[start : start + size] for start in range(0, len(encoded), size)]
        by_step = [share_out(step, ranks) for step in steps]
        return [[shares[rank] for shares in by_step] for rank in range(ranks)]

    def state_dict(self) -> CursorState:
        """The cursor."""
        return self._source.state_dict()

    def load_state_dict(self, state: CursorState) -> None:
        """Go on exactly where `state` was taken; UserError where it is of other demonstrations."""
        self._source.load_state_dict(state)

    def _next_encoded(self, count: int) -> list[GroupTokens]:
        groups: list[GroupTokens] = []
        while len(groups) < count:
            taken = [prompt.id for prompt, _ in self._source.take(count - len(groups))]
            results = self._encode([self._by_id[name] for name in taken])
            groups += [result for result in results if isinstance(result, GroupTokens)]
            self._taken += len(taken)
            self._faults += [result for result in results if isinstance(result, DataFault)]
            self._check_faults()
        return groups

    def _encode(self, demonstrations: list[Demonstration]) -> list[GroupTokens | DataFault]:
        """Shared out over the generators; results in the order of the demonstrations."""
        actors = self._generators.actors
        shares = [demonstrations[first :: len(actors)] for first in range(len(actors))]
        encoded = self._generators.wait(self._generators.start_each("encode", shares))
        results: dict[int, GroupTokens | DataFault] = {}
        for first, share in enumerate(encoded):
            results |= {first + len(actors) * index: each for index, each in enumerate(share)}
        return [results[index] for index in range(len(demonstrations))]

    def _check_faults(self) -> None:
        limit = self._config.data.max_bad_fraction
        if len(self._faults) > limit * self._taken:
            named = "; ".join(str(fault) for fault in self._faults[:_REASONS_NAMED])
            raise UserError(
                f"{len(self._faults)} of {self._taken} demonstrations of data.pretrain_data could "
                f"not be used, more than the share {limit:g} that data.max_bad_fraction allows "
                f"({named})"
            )


def share_out(step: Sequence[GroupTokens], ranks: int) -> list[DemonstrationBatch]:
    """The demonstrations of an optimizer step in equal numbers and nearly equal tokens a rank."""
    n_tokens = sum(group.action_count for group in step)
    parts = balanced_partition([group.token_count for group in step], ranks, equal_size=True)
    return [DemonstrationBatch(tuple(step[index] for index in part), n_tokens) for part in parts]
