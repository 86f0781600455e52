"""The distributed path and the maker in one process give equal experience for equal samples."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.data.processing import load_processor, tokenizer_of
from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.driver.batch import RolloutBatch
from lightrft_ray.driver.generator_pool import RayGenerators
from lightrft_ray.driver.placement import Placement, role_demands
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.rollout import RolloutManager
from lightrft_ray.driver.scoring import Scorer
from lightrft_ray.driver.workers import Workers, start_workers
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.critic_vl import CriticVL
from lightrft_ray.models.loading import ModelSource, load_backbone
from lightrft_ray.models.token_models import TokenCritic
from lightrft_ray.trainer.assembler import Assembler
from lightrft_ray.trainer.experience_maker_vl import NaiveExperienceMakerVL, SamplesVL
from lightrft_ray.trainer.kl import FixedKLController
from lightrft_ray.trainer.rollout_advantages import add_advantages

SETTINGS = [
    ("advantage_estimator", "gae"),
    ("init_kl_coef", "0.1"),
    ("kl_estimator", "k1"),
    ("use_kl_loss", "false"),
    ("old_log_probs", "learner"),
    ("off_policy_correction", "none"),
    ("temperature", "0.8"),
    ("rollout_batch_size", "6"),
    ("n_samples_per_prompt", "3"),
    ("train_batch_size", "18"),
    ("micro_train_batch_size", "9"),
    ("micro_rollout_batch_size", "5"),
    ("reward_fn", str(Path(__file__).with_name("token_reward.py"))),
]


@pytest.fixture(scope="module")
def run_config() -> RunConfig:
    """PPO with the KL and rewards of tokens, micro-batches that cut groups, and a temperature."""
    return resolve_checkpoints(load_config(None, SETTINGS))


@pytest.fixture(scope="module")
def run_inputs(run_config: RunConfig) -> RunInputs:
    """Prompts of the embedded default."""
    return check_inputs(run_config)


@pytest.fixture(scope="module")
def workers(local_ray: None, run_config: RunConfig, run_inputs: RunInputs) -> Iterator[Workers]:
    """All roles of the run."""
    demands = role_demands(run_config)
    placement = Placement(demands, 60, is_local=True)
    started = start_workers(run_config, run_inputs, demands, placement)
    yield started
    started.stop()
    placement.close()


def _with_pixels(batch: RolloutBatch) -> SamplesVL:
    """The samples as the maker takes them: every sample with its own copy of the pixels."""
    media = [ray.get(group.media) for group in batch.groups for _ in group.samples]
    return replace(
        batch.samples,
        pixel_values=torch.from_numpy(np.concatenate([m["pixel_values"] for m in media])),
        image_grid_thws=torch.from_numpy(np.concatenate([m["image_grid_thw"] for m in media])),
    )


def _maker(config: RunConfig, inputs: RunInputs) -> NaiveExperienceMakerVL:
    path = config.model.pretrain
    options = {"bf16": False, "temperature": config.rollout.temperature}
    critic = CriticVL(path, bf16=False)
    distributed = TokenCritic(load_backbone(ModelSource(path)), seed=config.seed)
    critic.value_head.load_state_dict(distributed.value_head.state_dict())
    processor = load_processor(path)
    return NaiveExperienceMakerVL(
        ActorVL(path, **options).eval(),
        critic.eval(),
        None,
        ActorVL(path, **options).eval(),
        tokenizer_of(processor),
        processor,
        config.data.prompt_max_len,
        FixedKLController(config.algorithm.init_kl_coef),
        strategy=config,
        remote_rm_url=[config.reward.reward_fn],
    )


def test_both_paths_make_the_same_experience(
    workers: Workers, run_config: RunConfig, run_inputs: RunInputs
) -> None:
    source = PromptSource(run_inputs.train_prompts, run_config.seed)
    groups = RolloutManager(run_config, source, RayGenerators(workers.generator)).next_batch()
    batch = RolloutBatch.of(groups, run_inputs.pad_token_id)
    scores = Scorer(run_config, workers).score(batch)
    distributed = Assembler(run_config).assemble(batch.samples, scores).experience

    maker = _maker(run_config, run_inputs)
    (local,), rewards = maker.process_experiences([maker.make_experience(_with_pixels(batch))])
    add_advantages([local], rewards, run_config.algorithm, kl_coef=0.1)

    assert rewards[0].sum() > 0
    assert scores.process_rewards is not None
    torch.testing.assert_close(rewards[0], scores.rewards)
    for name in (
        "action_log_probs",
        "base_action_log_probs",
        "values",
        "kl",
        "advantages",
        "returns",
    ):
        ours, theirs = getattr(distributed, name), getattr(local, name)
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5, msg=name)
    assert distributed.action_mask is not None
    assert torch.equal(distributed.action_mask, local.action_mask)
