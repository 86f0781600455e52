"""The reward models that a server's settings name."""

import torch

from lightrft_ray.config.serve_reward import ServedRewardConfig
from lightrft_ray.models.verdicts import VerdictRule
from lightrft_ray.rewards.judge_reward import JudgeReward
from lightrft_ray.rewards.scalar_reward import ScalarReward

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_scalar(reward: ServedRewardConfig) -> ScalarReward:
    """A model with a scalar head. Raises UserError that says what is wrong with it."""
    return ScalarReward.load(
        str(reward.pretrain),
        bf16=reward.dtype == "bfloat16",
        device=reward.device,
        batch_size=reward.micro_batch_size,
        show_images=reward.show_images,
    )


def load_judge(reward: ServedRewardConfig) -> JudgeReward:
    """A chat model that writes verdicts. Raises UserError that says what is wrong with it."""
    scores = reward.verdict_scores
    pattern = reward.verdict_pattern
    rule = VerdictRule(scores=scores) if pattern is None else VerdictRule(pattern, scores)
    return JudgeReward.load(
        str(reward.pretrain),
        str(reward.template),
        rule,
        dtype=_DTYPES[reward.dtype],
        device=reward.device,
        max_new_tokens=reward.max_new_tokens,
        batch_size=reward.micro_batch_size,
        show_images=reward.show_images,
    )
