"""What experience makers take, and the errors for what they do not."""

from pathlib import Path

import pytest
import torch
from makers import IMAGES, LABELS, PROMPTS, REFERENCES, maker, picture, strategy

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.trainer.experience_settings import ExperienceSettings, experience_settings
from lightrft_ray.trainer.length_rewards import LengthShaping

_INPUTS = (PROMPTS, IMAGES, REFERENCES, LABELS)


def test_tokenizing_pads_on_the_left_and_never_cuts(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    batch = own.tokenize_fn(["abc", "a"], 3)
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert own.tokenize_fn(["abc", "a"], 3, padding=False) == [
        batch["input_ids"][0].tolist(),
        batch["input_ids"][1, 2:].tolist(),
    ]
    with pytest.raises(ValueError, match="prompt 'abc': 3 tokens, over the limit 2"):
        own.tokenize_fn(["abc", "a"], 2)


def test_a_prompt_that_is_too_long_with_its_image_is_named(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    own.prompt_max_len = 12
    with pytest.raises(ValueError, match=r"What is it\?': 17 tokens, over the limit 12"):
        own.generate_samples(PROMPTS[1:2], IMAGES[1:2], None, None)


def test_inputs_of_processor_fn_are_for_each_text_or_for_the_batch(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    batch = own.processor_fn(PROMPTS, IMAGES, 64)
    single = own.processor_fn(PROMPTS, IMAGES, 64, padding=False)
    assert "pixel_values" not in single[0]
    pixels = torch.cat([single[1]["pixel_values"], single[2]["pixel_values"]])
    assert torch.equal(batch["pixel_values"], pixels)
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4], [1, 4, 4], [1, 4, 6]]
    text_only = own.processor_fn(["abc"], None, 64)
    assert set(text_only) == {"input_ids", "attention_mask"}


def test_bad_lists_and_missing_processors_are_named(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    with pytest.raises(ValueError, match="images has 1 entries for 3 prompts"):
        own.generate_samples(PROMPTS, [None], None, None)
    with pytest.raises(ValueError, match="all_labels has 1 entries for 3 prompts"):
        own.generate_samples(PROMPTS, IMAGES, None, ["x"])
    own.processor = None
    with pytest.raises(ValueError, match="has images, but there is no processor"):
        own.generate_samples(PROMPTS[:1], [picture(1)], None, None)


def test_what_a_strategy_may_be() -> None:
    defaults = experience_settings(None)
    assert defaults == experience_settings(RunConfig()) == ExperienceSettings()
    assert experience_settings(defaults) is defaults
    own = experience_settings(strategy(gamma=0.5, lambd=None, init_kl_coef=0.1, use_kl_loss=None))
    assert own.algorithm.init_kl_coef == 0.1
    assert own.algorithm.use_kl_loss is RunConfig().algorithm.use_kl_loss
    assert (own.n_samples_per_prompt, own.micro_rollout_batch_size, own.max_new_tokens) == (3, 4, 5)
    with pytest.raises(ValueError, match="strategy is a dict"):
        experience_settings({})
    with pytest.raises(ValueError, match="n_samples_per_prompt 0"):
        experience_settings(strategy(n_samples_per_prompt=0))
    with pytest.raises(ValueError, match=r"gamma 1\.5"):
        own.with_discounts(1.5, None)


def test_a_run_brings_its_reward_shaping() -> None:
    shaping = [
        ("advantage_estimator", "dr_grpo"),
        ("reward_clip_range", "[-1, 1]"),
        ("reward_running_norm", "scale"),
        ("dynamic_sampling", "true"),
        ("length_shaping", "cosine"),
        ("cosine_exceeded", "-2"),
    ]
    own = experience_settings(load_config(None, shaping))
    assert own.reward_clip_range == (-1, 1)
    assert own.reward_running_norm
    assert own.dynamic_sampling
    assert own.length_rewards == LengthShaping("cosine", exceeded=-2.0)
    with pytest.raises(ValueError, match=r"reward\.reward_running_norm standardize"):
        experience_settings(load_config(None, [*shaping, ("reward_running_norm", "standardize")]))


def test_a_hot_first_token_is_refused() -> None:
    fire = [("use_fire", "true"), ("old_log_probs", "learner")]
    for given in (load_config(None, fire), strategy(use_fire=True)):
        with pytest.raises(ValueError, match="no use_fire"):
            experience_settings(given)
    assert experience_settings(strategy(use_fire=False)) == experience_settings(strategy())
