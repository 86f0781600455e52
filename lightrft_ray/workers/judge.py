"""A generative judge in a Ray actor: a chat model under vLLM that writes verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import ray

from lightrft_ray.config import RunConfig
from lightrft_ray.data.messages import ChatMessage, ContentPart
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.models.families import forbidden_token_ids
from lightrft_ray.models.judge_prompts import JudgedSample
from lightrft_ray.models.loading import load_config
from lightrft_ray.observe.structured_log import log_as_worker
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore, failed
from lightrft_ray.workers.activity import Activity, WorkDone, noted
from lightrft_ray.workers.devices import model_source
from lightrft_ray.workers.gpu_memory import EngineGpus
from lightrft_ray.workers.judge_settings import engine_config, judge_template, verdict_rule
from lightrft_ray.workers.messages import (
    GenerationSettings,
    PromptTask,
    RolloutGroup,
    SkippedPrompt,
)
from lightrft_ray.workers.process_memory import process_tree_mb


@ray.remote
class JudgeWorker:
    """Scores samples by one of `reward.models`, greedily: the same sample, the same verdict."""

    def __init__(self, config: RunConfig, name: str) -> None:
        # Imported here: the driver knows this class too, and need not load vLLM for it.
        from lightrft_ray.workers.vllm_engine import VllmEngine

        log_as_worker()
        judge = config.reward.models[name]
        own = engine_config(config, judge)
        self._activity = Activity(EngineGpus(uses_gpu=own.placement.vllm_use_gpu))
        forbidden = forbidden_token_ids(load_config(model_source(own, judge.pretrain)))
        self._engine = VllmEngine(own, forbidden, judge.max_images)
        self._template = judge_template(judge)
        self._rule = verdict_rule(judge)
        self._settings = GenerationSettings(1, judge.max_new_tokens, temperature=0.0)
        self._max_images = judge.max_images
        self._seed = config.seed

    async def ready(self) -> None:
        """Return once the engine runs."""

    @noted("score")
    async def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples; an answer without a verdict is a failure."""
        with TemporaryDirectory(prefix="judge-") as folder:
            tasks = [PromptTask(self._question(s, Path(folder)), 0, self._seed) for s in samples]
            answers = await self._engine.generate(tasks, self._settings)
        pairs = zip(samples, answers, strict=True)
        return [self._score(sample.sample_id, answer) for sample, answer in pairs]

    async def work_done(self) -> WorkDone:
        """What this worker did since it was last asked."""
        return self._activity.fetch()

    async def ping(self) -> None:
        """Answer, also while there is work: a sign of life, of the engine's processes as well."""
        await self._engine.ping()

    async def resident_mb(self) -> float:
        """Memory of this worker and its engine's processes, in MB."""
        return process_tree_mb()

    async def stop(self) -> None:
        """End the engine's processes."""
        self._engine.stop()

    def _question(self, sample: RewardSample, folder: Path) -> Prompt:
        judged = JudgedSample(sample.prompt, sample.response, sample.reference, sample.label)
        text = self._template.render(judged)
        images = [_write(media, folder) for media in sample.images[: self._max_images]]
        message: ChatMessage = {"role": "user", "content": text}
        if images:
            parts: list[ContentPart] = [{"type": "image"} for _ in images]
            message["content"] = [*parts, {"type": "text", "text": text}]
        return Prompt(sample.sample_id, (message,), tuple(images), folder, "", "")

    def _score(self, sample_id: str, answer: RolloutGroup | SkippedPrompt) -> SampleScore:
        if isinstance(answer, SkippedPrompt):
            return failed(sample_id, f"the judge could not be asked: {answer.reason}")
        verdict = self._rule.parse(answer.samples[0].text)
        if verdict.fault is not None:
            return failed(sample_id, verdict.fault)
        return SampleScore(sample_id, verdict.score)


def _write(media: EncodedMedia, folder: Path) -> str:
    """The engine takes files; the same image of several samples is one."""
    path = folder / media.content_id
    if not path.exists():
        path.write_bytes(media.data)
    return path.name
