"""Rewards by a chat model that writes verdicts, from samples as all rewards get them."""

import math
from collections.abc import Sequence

import torch

from lightrft_ray.data.processing import load_processor
from lightrft_ray.models.judge import GenerativeJudge
from lightrft_ray.models.judge_prompts import JudgedSample, JudgeTemplate
from lightrft_ray.models.loading import ModelSource, load_policy
from lightrft_ray.models.verdicts import VerdictRule
from lightrft_ray.rewards.model_scoring import images_of, score_in_batches
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed


class JudgeReward:
    """Scores samples by a judge's verdicts.

    `batch_size` samples are asked about at once; without `show_images` the judge gets the text
    alone.
    """

    def __init__(
        self, judge: GenerativeJudge, *, batch_size: int, show_images: bool = True
    ) -> None:
        self._judge = judge
        self._batch_size = batch_size
        self._show_images = show_images

    @staticmethod
    def load(
        path: str,
        template: str,
        rule: VerdictRule,
        *,
        dtype: torch.dtype,
        device: str,
        max_new_tokens: int,
        batch_size: int,
        show_images: bool = True,
    ) -> "JudgeReward":
        """From a Hugging Face name or folder. Raises UserError that says what is wrong."""
        asked = JudgeTemplate(template)
        model = load_policy(ModelSource(path, dtype=dtype))
        model.to(torch.device(device))  # type: ignore[arg-type] # wrapped by transformers
        judge = GenerativeJudge(
            model.eval(),
            load_processor(path),
            asked,
            rule,
            max_new_tokens=max_new_tokens,
            batch_size=batch_size,
        )
        return JudgeReward(judge, batch_size=batch_size, show_images=show_images)

    def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples; where there is no verdict, there is no reward."""
        return score_in_batches(samples, self._batch_size, self._score_batch)

    def _score_batch(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        judged = [
            JudgedSample(
                each.prompt,
                each.response,
                each.reference,
                each.label,
                images=images_of(each) if self._show_images else (),
            )
            for each in samples
        ]
        with torch.inference_mode():
            verdicts = self._judge.score(judged)
        return [
            failed(sample.sample_id, verdict.fault or "the judge gave no verdict")
            if math.isnan(verdict.score)
            else SampleScore(sample.sample_id, verdict.score)
            for sample, verdict in zip(samples, verdicts, strict=True)
        ]
