"""The configuration's settings: names, descriptions, strict types, bounds and what follows."""

import pickle
import subprocess
import sys
from collections import Counter
from typing import Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from lightrft_ray.config import AlgorithmConfig, PlacementConfig, RunConfig
from lightrft_ray.config.algorithm import Estimator, OffPolicyCorrection
from lightrft_ray.config.settings import all_settings, sections


def _error(**tree: object) -> str:
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(tree)
    (details,) = caught.value.errors()
    return f"{'.'.join(map(str, details['loc']))}: {details['msg']}"


def test_imports_without_torch() -> None:
    program = (
        "import sys, lightrft_ray.config, lightrft_ray.config.cli\n"
        "heavy = {'torch', 'ray', 'vllm', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_leaf_name_means_one_setting() -> None:
    leaves = Counter(setting.leaf for setting in all_settings())
    assert [leaf for leaf, count in leaves.items() if count > 1] == []
    assert not leaves.keys() & sections().keys()


def test_every_setting_has_a_short_description() -> None:
    for setting in all_settings():
        description = setting.field.description
        assert description, setting.key
        assert len(description) <= 200 and description.endswith("."), setting.key


def test_sections_in_the_order_of_a_run() -> None:
    assert list(sections()) == [
        "model",
        "data",
        "media",
        "rollout",
        "reward",
        "algorithm",
        "trainer",
        "evaluation",
        "checkpoint",
        "recovery",
        "sync",
        "placement",
        "logging",
    ]


def test_defaults_are_the_cpu_demo() -> None:
    config = RunConfig()
    assert config.model.pretrain == "embedded:tiny-qwen2.5-vl"
    assert config.data.prompt_data == "embedded:digits"
    assert config.learner_ranks == 1
    assert config.samples_per_step == 32 * 8
    assert config.optimizer_steps == config.trainer.num_steps
    assert not config.uses_reference
    assert not config.uses_critic


def test_is_frozen_and_survives_pickling() -> None:
    config = RunConfig(seed=7)
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 8
    with pytest.raises(ValidationError, match="frozen"):
        config.rollout.temperature = 0.5
    assert pickle.loads(pickle.dumps(config)) == config


def test_derived_values() -> None:
    config = RunConfig.model_validate(
        {
            "algorithm": {"advantage_estimator": "gae", "init_kl_coef": 0.01},
            "rollout": {"rollout_batch_size": 16, "n_samples_per_prompt": 4},
            "trainer": {
                "num_steps": 10,
                "max_epochs": 2,
                "train_batch_size": 32,
                "micro_train_batch_size": 4,
            },
            "placement": {
                "actor_num_nodes": 2,
                "actor_num_gpus_per_node": 4,
                "critic_num_nodes": 2,
                "critic_num_gpus_per_node": 2,
            },
        }
    )
    assert config.learner_ranks == 8
    assert config.critic_ranks == 4
    assert config.uses_reference
    assert config.uses_critic
    assert config.samples_per_step == 64
    assert config.optimizer_steps == 10 * 2 * 2


def test_the_policys_schedule_starts_after_the_critics_warm_up() -> None:
    config = RunConfig.model_validate(
        {
            "algorithm": {"advantage_estimator": "gae"},
            "trainer": {"num_steps": 10, "max_epochs": 2, "critic_warmup_steps": 3},
        }
    )
    assert (config.optimizer_steps, config.critic_optimizer_steps) == (14, 20)


def test_cpu_learner_ranks_count_without_gpus() -> None:
    config = RunConfig.model_validate(
        {"placement": {"cpu_learner_ranks": 2}, "trainer": {"micro_train_batch_size": 128}}
    )
    assert config.learner_ranks == 2
    assert config.critic_ranks == 2


def test_grpo_is_another_name_for_group_norm() -> None:
    assert AlgorithmConfig.model_validate({"advantage_estimator": "grpo"}) == AlgorithmConfig()


@pytest.mark.parametrize(
    ("estimator", "whiten", "expected"),
    [
        ("gae", None, True),
        ("group_norm", None, False),
        ("gae", False, False),
        ("group_norm", True, True),
        ("reinforce", None, False),
        ("reinforce_plus_plus", None, False),  # its formula whitens
        ("reinforce_baseline", None, False),
    ],
)
def test_whitening_is_the_default_with_gae_only(
    estimator: Estimator, whiten: bool | None, expected: bool
) -> None:
    config = AlgorithmConfig(advantage_estimator=estimator, whiten_advantages=whiten)
    assert config.whitens_advantages is expected


@pytest.mark.parametrize(
    ("old_log_probs", "correction", "expected"),
    [
        ("rollout", None, "none"),
        ("learner", None, "token_truncate"),
        ("learner", "none", "none"),
        ("learner", "token_mask", "token_mask"),
    ],
)
def test_truncation_is_the_default_with_the_learners_log_probs(
    old_log_probs: Literal["rollout", "learner"],
    correction: OffPolicyCorrection | None,
    expected: str,
) -> None:
    config = AlgorithmConfig(old_log_probs=old_log_probs, off_policy_correction=correction)
    assert config.correction == expected


@pytest.mark.parametrize(
    ("section", "leaf", "value"),
    [
        ("rollout", "n_samples_per_prompt", "4"),
        ("rollout", "n_samples_per_prompt", 4.0),
        ("rollout", "vllm_kv_cache_gb", 1.0),
        ("trainer", "num_steps", True),
        ("trainer", "max_norm", "1"),
        ("trainer", "max_norm", True),
        ("model", "pretrain", 3),
        ("logging", "use_tensorboard", "true"),
        ("logging", "use_tensorboard", 1),
        ("trainer", "adam_betas", [0.9]),
        ("trainer", "adam_betas", [0.9, "0.95"]),
        ("model", "pretrain", None),
    ],
)
def test_values_are_not_converted(section: str, leaf: str, value: object) -> None:
    assert f"{section}.{leaf}" in _error(**{section: {leaf: value}})


def test_a_choice_of_integers_takes_integers_alone() -> None:
    choices = [
        (setting, choice)
        for setting in all_settings()
        if get_origin(setting.field.annotation) is Literal
        for choice in get_args(setting.field.annotation)
        if isinstance(choice, int)
    ]
    assert choices
    for setting, choice in choices:
        for equal in (float(choice), *([bool(choice)] if choice in (0, 1) else [])):
            error = _error(**{setting.section: {setting.leaf: equal}})
            assert setting.key in error and "must be an integer" in error


def test_unknown_names_are_errors() -> None:
    assert "rollout.topp" in _error(rollout={"topp": 1.0})
    assert "sede" in _error(sede=1)


@pytest.mark.parametrize(
    ("section", "leaf", "refused", "accepted"),
    [
        ("rollout", "temperature", 0.0, 0.01),
        ("rollout", "temperature", 0.001, 0.01),
        ("rollout", "temperature", 2.01, 2.0),
        ("rollout", "temperature", float("nan"), 2),
        ("rollout", "temperature", float("inf"), 2),
        ("rollout", "vllm_gpu_memory_utilization", 0.0, 0.5),
        ("rollout", "vllm_gpu_memory_utilization", 1.01, 1.0),
        ("rollout", "vllm_max_num_seqs", 0, 1),
        ("rollout", "vllm_kv_cache_gb", 0, 1),
        ("rollout", "generate_timeout", 0, 1),
        ("reward", "reward_timeout", -1, 1),
        ("reward", "max_failed_fraction", 1.1, 0.0),
        ("data", "max_bad_fraction", -0.1, 1.0),
        ("data", "max_samples", 0, 1),
        ("model", "pretrain", "", "x"),
        ("algorithm", "init_kl_coef", -0.1, 0.1),
        ("algorithm", "eps_clip", 0.0, 0.1),
        ("algorithm", "dual_clip", 1.0, None),
        ("algorithm", "off_policy_cap", 0.9, None),
        ("algorithm", "off_policy_low", 1.1, None),  # the band always holds the ratio 1
        ("algorithm", "off_policy_high", 0.9, None),
        ("algorithm", "eps_clip", 1.0, 0.9),
        ("algorithm", "eps_clip_high", -0.2, 2.0),
        ("algorithm", "value_clip", 0.0, 0.2),
        ("trainer", "adam_betas", [0.9, 1.0], [0.0, 0.999]),
        ("trainer", "adam_betas", [-0.1, 0.9], [0.9, 0.9]),
        ("trainer", "actor_learning_rate", -1e-3, 0),
        ("trainer", "zero_stage", 4, 3),
        ("trainer", "learner_timeout", 0.0, 0.1),
        ("evaluation", "eval_temperature", -0.1, 0.0),
        ("evaluation", "eval_temperature", 2.01, 2.0),
        ("evaluation", "eval_steps", -1, 0),
        ("sync", "publish_timeout", 0, 1),
        ("sync", "canary_max_abs_diff", 0.0, 0.1),
        ("placement", "placement_timeout", 0, 1),
        ("placement", "cpu_learner_ranks", 0, 1),
        ("placement", "actor_num_gpus_per_node", -1, 1),
    ],
)
def test_bounds(section: str, leaf: str, refused: object, accepted: object) -> None:
    assert f"{section}.{leaf}" in _error(**{section: {leaf: refused}})
    config = RunConfig.model_validate({section: {leaf: accepted}})
    value = getattr(getattr(config, section), leaf)
    assert value == (tuple(accepted) if isinstance(accepted, list) else accepted)


def test_every_timeout_and_count_has_a_lower_bound() -> None:
    for setting in all_settings():
        if setting.leaf.endswith(("_timeout", "_size", "_len", "_num_nodes")):
            tree = {setting.section: {setting.leaf: 0}}
            assert setting.key in _error(**tree)


def test_placement_accepts_gpu_groups() -> None:
    config = PlacementConfig(actor_num_nodes=2, actor_num_gpus_per_node=8, ref_num_gpus_per_node=1)
    assert config.cpu_learner_ranks == 1
