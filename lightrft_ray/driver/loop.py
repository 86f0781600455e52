"""The training loop: generate, score, assemble, learn, publish, evaluate."""

from collections.abc import Callable

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.evaluation import Evaluator
from lightrft_ray.driver.preflight import RunInputs
from lightrft_ray.driver.publication import WeightPublisher
from lightrft_ray.driver.records import (
    assembly_record,
    batch_record,
    experience_record,
    memory_record,
    source_record,
    speed_record,
)
from lightrft_ray.driver.rewards import SampleRewards
from lightrft_ray.driver.rollout import RolloutManager, prompt_source
from lightrft_ray.driver.scoring import Scorer
from lightrft_ray.driver.selection import RewardSelection
from lightrft_ray.driver.stopwatch import Stopwatch
from lightrft_ray.driver.updates import Updater
from lightrft_ray.driver.workers import Workers
from lightrft_ray.trainer.assembler import Assembler
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask

Record = dict[str, float]

_MEMORY_EVERY = 10  # steps: looking at all processes takes some milliseconds


class TrainingLoop:
    """A synchronous run: every batch is sampled with the weights of the step before."""

    def __init__(self, config: RunConfig, inputs: RunInputs, workers: Workers) -> None:
        self._config = config
        self._workers = workers
        self._pad_token_id = inputs.pad_token_id
        self._bad_rows = inputs.bad_rows
        self._rollouts = RolloutManager(
            config, prompt_source(config, inputs.train_prompts), workers.generator
        )
        self._scorer = Scorer(config, workers)
        self._selection = RewardSelection(config, self._rollouts, self._scorer)
        self._assembler = Assembler(config)
        self._updater = Updater(config, workers, inputs.demonstrations)
        self._publisher = WeightPublisher(
            config,
            workers.learner,
            workers.generator,
            inputs.train_prompts,
            (*inputs.canary_answer, inputs.stop_token_id),
        )
        self._evaluator = Evaluator(config, inputs.eval_prompts, workers)
        self._samples = 0

    def run(self, report: Callable[[Record], None]) -> None:
        """Run all steps; `report` gets a record of each, step 0 being the state before training."""
        watch = Stopwatch()
        record = self._publish(watch) | self._evaluate(watch)
        report(self._finish({"step": 0, **record}, watch))
        for step in range(1, self._config.trainer.num_steps + 1):
            report(self._step(step))

    def _step(self, step: int) -> Record:
        watch = Stopwatch()
        with watch.phase("generate"):
            batch, rewards, drawn = self._next_batch()
        with watch.phase("score"):
            scores = self._scorer.score(batch, rewards)
            if rewards is None:
                self._rollouts.note_rewards(batch.groups, scores.total_rewards)
        with watch.phase("assemble"):
            assembled = self._assembler.assemble(batch.samples, scores)
            experience = assembled.experience
        with watch.phase("train"):
            updates = self._updater.train(
                step, batch.tokens, experience, kl_coef=self._assembler.kl_coef
            )
        self._account(batch, experience)
        record = {"step": step, **batch_record(batch), **experience_record(experience), **updates}
        record |= drawn | assembly_record(assembled.metrics) | source_record(self._scorer.figures)
        record |= {"kl/coef": self._assembler.kl_coef, "samples": self._samples}
        self._assembler.steer_kl(experience)
        record |= self._publish(watch)
        if self._evaluates_after(step):
            record |= self._evaluate(watch)
        return self._finish(record, watch)

    def _next_batch(self) -> tuple[RolloutBatch, SampleRewards | None, Record]:
        """The samples to train on, and their rewards where these decided which they are."""
        if not self._selection.is_needed:
            return RolloutBatch.of(self._rollouts.next_batch(), self._pad_token_id), None, {}
        collected = self._selection.next_batch()
        chosen = collected.groups
        batch = RolloutBatch.of([each.group for each in chosen], self._pad_token_id)
        record = {"rollout/batches_drawn": float(collected.batches)}
        return batch, SampleRewards.joined([each.rewards for each in chosen]), record

    def _account(self, batch: RolloutBatch, experience: ExperienceVL) -> None:
        """Count prompts by what became of them: without any reward they trained nothing."""
        has_actions = required_mask(experience).any(dim=1)
        used = batch.group_ids[has_actions].unique()
        self._rollouts.account.trained += len(used)
        self._rollouts.account.filtered += len(batch.groups) - len(used)
        self._samples += int(has_actions.sum())

    def _publish(self, watch: Stopwatch) -> Record:
        with watch.phase("publish"):
            publication = self._publisher.publish()
        return {
            "publish/version": publication.version,
            "publish/bytes": publication.nbytes,
            "publish/canary_max_abs_diff": publication.canary_max_abs_diff,
        }

    def _evaluates_after(self, step: int) -> bool:
        every = self._config.evaluation.eval_steps
        return step == self._config.trainer.num_steps or (every > 0 and step % every == 0)

    def _evaluate(self, watch: Stopwatch) -> Record:
        if not self._evaluator.has_prompts:
            return {}
        record = self._swap_average(watch)
        with watch.phase("eval"):
            evaluation = self._evaluator.evaluate()
        record |= {"eval/accuracy": evaluation.accuracy, "eval/samples": evaluation.samples}
        return record | self._swap_average(watch)

    def _swap_average(self, watch: Stopwatch) -> Record:
        """Publish the average of the weights, or back what it was swapped with."""
        if not self._config.evaluation.eval_ema:
            return {}
        self._workers.learner.call("swap_average")
        return self._publish(watch)

    def _finish(self, record: Record, watch: Stopwatch) -> Record:
        record |= self._rollouts.as_record() | {"data/skipped": self._bad_rows}
        is_looked_at = record["step"] % _MEMORY_EVERY == 0
        record |= memory_record(self._workers if is_looked_at else None)
        record |= watch.as_record()
        return record | speed_record(record, self._config.samples_per_step)
