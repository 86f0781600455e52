"""The reward worker: all rewards of a run, asked side by side."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import ray
from ray.actor import ActorHandle

from lightrft_ray.config import RunConfig
from lightrft_ray.data.processing import load_processor, tokenizer_of
from lightrft_ray.observe.structured_log import log_as_worker
from lightrft_ray.rewards.opening import open_rewards
from lightrft_ray.rewards.process_scores import Decode, process_rewards
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed
from lightrft_ray.workers.activity import Activity, WorkDone, noted
from lightrft_ray.workers.messages import GroupResponses, RewardReport
from lightrft_ray.workers.process_memory import process_tree_mb
from lightrft_ray.workers.reward_model import RewardModelSource
from lightrft_ray.workers.reward_samples import reward_samples

logger = logging.getLogger(__name__)

_FAILURES_LOGGED = 3  # of a call: when a source is down, all its samples fail alike


@ray.remote
class RewardWorker:
    """Scores responses by what the run's settings name."""

    def __init__(self, config: RunConfig, models: Mapping[str, Sequence[ActorHandle]]) -> None:
        """`models` has the actors of each of `reward.models`."""
        log_as_worker()
        self._activity = Activity()
        self._config = config
        self._models = {name: RewardModelSource(actors) for name, actors in models.items()}
        self._decode: Decode | None = None

    async def ready(self) -> None:
        """Return once all functions are loaded."""
        self._rewards = await open_rewards(self._config.reward, self._models)

    @noted("score")
    async def score(self, groups: Sequence[GroupResponses]) -> RewardReport:
        """A score or a failure for every response, in order."""
        entries = await asyncio.to_thread(
            reward_samples,
            groups,
            self._config.data.system_prompt,
            with_media=self._rewards.wants_media,
        )
        samples = [each for each in entries if isinstance(each, RewardSample)]
        answers = iter(await self._rewards.whole.score(samples))
        scores = [next(answers) if isinstance(e, RewardSample) else e for e in entries]
        token_ids = [ids for group in groups for ids in group.token_ids]
        pairs = [self._process(*pair) for pair in zip(scores, token_ids, strict=True)]
        _log_failures([score for score, _ in pairs])
        figures = {name: source.figures() for name, source in self._rewards.by_name.items()}
        return RewardReport(
            tuple(score for score, _ in pairs), tuple(rewards for _, rewards in pairs), figures
        )

    async def work_done(self) -> WorkDone:
        """What this worker did since it was last asked."""
        return self._activity.fetch()

    async def ping(self) -> None:
        """Answer, also while there is work: a sign of life."""

    async def resident_mb(self) -> float:
        """Memory of this worker and its functions' processes, in MB."""
        return process_tree_mb()

    async def stop(self) -> None:
        """End the functions' processes and close all connections."""
        await self._rewards.whole.close()

    def _process(
        self, score: SampleScore, token_ids: np.ndarray
    ) -> tuple[SampleScore, np.ndarray | None]:
        """A score, and its process rewards on the response's tokens; a failure if they misfit."""
        if score.token_scores is None and score.step_scores is None:
            return score, None
        separator = self._config.reward.step_separator
        try:
            return score, process_rewards(score, token_ids.tolist(), self._text, separator)
        except ValueError as error:
            return failed(score.sample_id, str(error)), None

    def _text(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens, as the generator gave it."""
        if self._decode is None:
            model = self._config.model
            tokenizer = tokenizer_of(load_processor(model.pretrain, model.trust_remote_code))
            self._decode = lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True))
        return self._decode(token_ids)


def _log_failures(scores: Sequence[SampleScore]) -> None:
    faults = [(each.sample_id, each.error) for each in scores if each.error is not None]
    for sample_id, error in faults[:_FAILURES_LOGGED]:
        logger.warning("a sample got no reward", extra={"sample": sample_id, "reason": error})
    if len(faults) > _FAILURES_LOGGED:
        logger.warning("%d samples of a call got no reward", len(faults))
