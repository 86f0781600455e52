"""The training loop: generate, score, assemble, learn, publish, evaluate."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.checkpoint_store import Checkpoint
from lightrft_ray.driver.checkpointer import Checkpointer
from lightrft_ray.driver.evaluation import Evaluator
from lightrft_ray.driver.generator_pool import RayGenerators
from lightrft_ray.driver.interruption import Interruption
from lightrft_ray.driver.observer import Observer
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
from lightrft_ray.driver.staleness import staleness_record
from lightrft_ray.driver.stopwatch import Stopwatch
from lightrft_ray.driver.updates import Updater
from lightrft_ray.driver.workers import Workers
from lightrft_ray.trainer.assemble import Scores
from lightrft_ray.trainer.assembler import Assembler
from lightrft_ray.trainer.experience_types import ExperienceVL, required_mask

Record = dict[str, float]

_MEMORY_EVERY = 10  # steps: looking at all processes takes some milliseconds


class TrainingLoop:
    """A run: every batch is sampled with the weights of the step before.

    With `rollout.max_staleness` above 0 it is sampled while the steps before are trained, with
    weights that are older by no more versions.
    """

    def __init__(
        self,
        config: RunConfig,
        inputs: RunInputs,
        workers: Workers,
        checkpointer: Checkpointer,
        interruption: Interruption,
        *,
        observer: Observer,
    ) -> None:
        self._config = config
        self._runs_ahead = config.rollout.max_staleness > 0
        self._workers = workers
        self._checkpointer = checkpointer
        self._interruption = interruption
        self._observer = observer
        self._pad_token_id = inputs.pad_token_id
        self._bad_rows = inputs.bad_rows
        self._rollouts = RolloutManager(
            config,
            prompt_source(config, inputs.train_prompts),
            RayGenerators(workers.generator),
        )
        self._scorer = Scorer(config, workers)
        self._selection = RewardSelection(config, self._rollouts, self._scorer)
        self._assembler = Assembler(config)
        self._colocation = workers.colocation(config)
        self._updater = Updater(config, workers, inputs.demonstrations)
        self.publisher = WeightPublisher(
            config,
            workers.learner,
            workers.generator,
            inputs.train_prompts,
            (*inputs.canary_answer, inputs.stop_token_id),
            colocation=self._colocation,
        )
        self._evaluator = Evaluator(config, inputs, workers.generator, workers.reward)
        self._samples = 0
        self._step = 0
        self.results: Record = {}  # the latest value of each metric
        self._score: float | None = None  # held-out accuracy, where the last step was evaluated
        self._finished: dict[str, Any] | None = None  # the state after the last finished step

    def run(self, report: Callable[[Record], None], resumed: Checkpoint | None = None) -> None:
        """Run all steps, or those behind a checkpoint.

        `report` gets a record of each, step 0 being the state before training. When interrupted, it
        saves what the last finished step left before KeyboardInterrupt goes on.
        """
        try:
            with self._workers.meanwhile(self._rollouts.attend):
                self._start(report, resumed)
                for step in range(self._step + 1, self._config.trainer.num_steps + 1):
                    self._run_step(step, report)
        except KeyboardInterrupt:
            self._save_finished()
            raise
        finally:
            self._checkpointer.wait()

    def _start(self, report: Callable[[Record], None], resumed: Checkpoint | None) -> None:
        watch = Stopwatch()
        self._colocation.to_learner()
        if resumed is not None:
            self.load_state_dict(self._checkpointer.restore(resumed))
            self._publish(watch)
            self._finished = self.state_dict()
            return
        record = self._publish(watch) | self._evaluate(watch)
        self._remember(record)
        report(self._finish({"step": 0, **record}, watch))
        self._finished = self.state_dict()

    def _run_step(self, step: int, report: Callable[[Record], None]) -> None:
        """A step; until it trains, it can be interrupted and nothing has happened."""
        watch = Stopwatch()
        with watch.phase("generate"):
            batch, rewards, drawn = self._next_batch()
            self._colocation.to_learner()
        with watch.phase("score"):
            scores = self._scorer.score(batch, rewards)
        with self._interruption.shielded():
            if rewards is None:
                self._rollouts.note_rewards(batch.groups, scores.total_rewards)
            record = self._learn(step, batch, scores, watch) | drawn
            self._step = step
            self._remember(record)
            self._finished = self.state_dict()
            if self._checkpointer.is_due(step):
                with watch.phase("save"):
                    self._checkpointer.take(step, self._finished)
            self._checkpointer.check()
            report(self._finish(record, watch))
            self._checkpointer.write()  # now that the step's record is on the disk

    def _learn(self, step: int, batch: RolloutBatch, scores: Scores, watch: Stopwatch) -> Record:
        stale = staleness_record(batch, self.publisher.version) if self._runs_ahead else {}
        with watch.phase("assemble"):
            assembled = self._assembler.assemble(batch.samples, scores)
            experience = assembled.experience
        self._observer.look_at(step, batch, experience)
        with watch.phase("train"):
            updates = self._updater.train(
                step, batch.tokens, experience, kl_coef=self._assembler.kl_coef
            )
        self._account(batch, experience)
        record = {"step": step, **batch_record(batch), **experience_record(experience), **updates}
        record |= assembly_record(assembled.metrics) | source_record(self._scorer.figures)
        record |= {"kl/coef": self._assembler.kl_coef, "samples": self._samples, **stale}
        self._assembler.steer_kl(experience)
        record |= self._publish(watch)
        if self._evaluates_after(step):
            record |= self._evaluate(watch)
        return record

    def _remember(self, record: Record) -> None:
        finite = {name: value for name, value in record.items() if math.isfinite(value)}
        self.results |= finite
        self._score = finite.get("eval/accuracy")

    def _save_finished(self) -> None:
        """Save the state after the last finished step, unless that is done."""
        if self._finished is None or self._checkpointer.last_step == self._finished["step"]:
            return
        self._checkpointer.take(self._finished["step"], self._finished)
        self._checkpointer.write()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep of the driver: plain values."""
        return {
            "step": self._step,
            "samples": self._samples,
            "results": dict(self.results),
            "score": self._score,
            "version": self.publisher.version,
            "rollouts": self._rollouts.state_dict(),
            "scorer": self._scorer.state_dict(),
            "assembler": self._assembler.state_dict(),
            "updater": self._updater.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict()`."""
        self._step = state["step"]
        self._samples = state["samples"]
        self.results = dict(state["results"])
        self._score = state["score"]
        self.publisher.resume_at(state["version"])
        self._rollouts.load_state_dict(state["rollouts"])
        self._scorer.load_state_dict(state["scorer"])
        self._assembler.load_state_dict(state["assembler"])
        self._updater.load_state_dict(state["updater"])

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
            publication = self.publisher.publish()
            self._rollouts.published(publication.version)
        return {
            "publish/version": publication.version,
            "publish/bytes": publication.nbytes,
            "publish/canary_max_abs_diff": publication.canary_max_abs_diff,
            "time/publish_pause": publication.pause_seconds,
        }

    def _evaluates_after(self, step: int) -> bool:
        every = self._config.evaluation.eval_steps
        return step == self._config.trainer.num_steps or (every > 0 and step % every == 0)

    def _evaluate(self, watch: Stopwatch) -> Record:
        if not self._evaluator.has_prompts:
            return {}
        record = self._swap_average(watch)
        with watch.phase("eval"):
            record |= self._evaluator.evaluate()
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
        record |= self._observer.finish(int(record["step"]), watch)
        record |= watch.as_record()
        return record | speed_record(record, self._config)
