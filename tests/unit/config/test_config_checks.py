"""Contradictory settings: each error names the settings and a remedy that works."""

import pytest
from pydantic import ValidationError

from lightrft_ray.config import RunConfig

Values = dict[str, object]
Tree = dict[str, Values]

GPUS: Values = {"actor_num_gpus_per_node": 1}
FLASH: Values = {"attn_implementation": "flash_attention_2", "dtype": "bfloat16"}
PADDED: Values = {"row_layout": "padded"}
KL: Values = {"init_kl_coef": 0.1}
GAE: Values = {"advantage_estimator": "gae"}
DEMONSTRATIONS: Values = {"pretrain_data": "taught.jsonl"}
SINGLES: Values = {"n_samples_per_prompt": 1, "rollout_batch_size": 256}
LEARNER: Values = {"old_log_probs": "learner"}
# Settings that contradict, the names the error must hold, and the same settings with its remedy.
CONTRADICTIONS: dict[str, tuple[Tree, tuple[str, ...], Tree]] = {
    "group of one": (
        {"rollout": {"n_samples_per_prompt": 1, "rollout_batch_size": 256}},
        ("rollout.n_samples_per_prompt to 2", "algorithm.advantage_estimator to gae"),
        {"rollout": {"n_samples_per_prompt": 1, "rollout_batch_size": 256}, "algorithm": GAE},
    ),
    "reference without KL": (
        {"model": {"ref_pretrain": "a/b"}},
        ("model.ref_pretrain", "algorithm.init_kl_coef above 0"),
        {"model": {"ref_pretrain": "a/b"}, "algorithm": KL},
    ),
    "critic without gae": (
        {"model": {"critic_pretrain": "a/b"}},
        ("model.critic_pretrain", "algorithm.advantage_estimator to gae"),
        {"model": {"critic_pretrain": "a/b"}, "algorithm": GAE},
    ),
    "gamma without discounts": (
        {"algorithm": {"gamma": 0.9}},
        ("algorithm.gamma to 1.0", "estimator to gae or reinforce or reinforce_plus_plus"),
        {"algorithm": {"gamma": 0.9, "advantage_estimator": "reinforce"}},
    ),
    "lambd without gae": (
        {"algorithm": {"lambd": 0.9, "advantage_estimator": "reinforce"}},
        ("algorithm.lambd to 1.0", "algorithm.advantage_estimator to gae"),
        {"algorithm": {"lambd": 0.9, **GAE}},
    ),
    "lambda of the values without gae": (
        {"algorithm": {"lambd_value": 0.9}},
        ("algorithm.lambd_value to null", "algorithm.advantage_estimator to gae"),
        {"algorithm": {"lambd_value": 0.9, **GAE}},
    ),
    "length-adaptive lambda without gae": (
        {"algorithm": {"length_adaptive_alpha": 0.05}},
        ("algorithm.length_adaptive_alpha to null", "algorithm.advantage_estimator to gae"),
        {"algorithm": {"length_adaptive_alpha": 0.05, **GAE}},
    ),
    "two lambdas of the advantages": (
        {"algorithm": {"length_adaptive_alpha": 0.05, "lambd": 0.9, **GAE}},
        ("algorithm.lambd to 1.0", "algorithm.length_adaptive_alpha to null"),
        {"algorithm": {"lambd": 0.9, **GAE}},
    ),
    "value clip without a critic": (
        {"algorithm": {"value_clip": 0.5}},
        ("algorithm.value_clip to 0.2", "algorithm.advantage_estimator to gae"),
        {"algorithm": {"value_clip": 0.5, **GAE}},
    ),
    "whitening of what is whitened": (
        {"algorithm": {"advantage_estimator": "reinforce_plus_plus", "whiten_advantages": False}},
        ("algorithm.whiten_advantages to null", "algorithm.advantage_estimator to"),
        {"algorithm": {"advantage_estimator": "reinforce", "whiten_advantages": False}},
    ),
    "a clip without clipping": (
        {"algorithm": {"policy_loss": "sapo", "eps_clip": 0.2}},
        ("algorithm.eps_clip to null", "algorithm.policy_loss to cispo or cpgd"),
        {"algorithm": {"policy_loss": "ppo", "eps_clip": 0.2}},
    ),
    "a dual clip in the single clip": (
        {"algorithm": {"dual_clip": 3.0}},
        ("algorithm.dual_clip to null", "algorithm.policy_loss to ppo_dual_clip"),
        {"algorithm": {"dual_clip": 3.0, "policy_loss": "ppo_dual_clip"}},
    ),
    "a drift in another loss": (
        {"algorithm": {"cpgd_drift_coef": 0.1}},
        ("algorithm.cpgd_drift_coef to null", "algorithm.policy_loss to cpgd"),
        {"algorithm": {"cpgd_drift_coef": 0.1, "policy_loss": "cpgd"}},
    ),
    "a cap of no drift": (
        {"algorithm": {"cpgd_drift_cap": 1.0, "policy_loss": "cpgd"}},
        ("algorithm.cpgd_drift_coef above 0", "algorithm.cpgd_drift_cap to null"),
        {"algorithm": {"cpgd_drift_cap": 1.0, "cpgd_drift_coef": 0.1, "policy_loss": "cpgd"}},
    ),
    "a temperature without a gate": (
        {"algorithm": {"sapo_tau_neg": 1.1, "policy_loss": "gspo"}},
        ("algorithm.sapo_tau_neg to null", "algorithm.policy_loss to sapo"),
        {"algorithm": {"sapo_tau_neg": 1.1, "policy_loss": "sapo"}},
    ),
    "one ratio a response, one advantage a token": (
        {"algorithm": {"policy_loss": "gspo", **GAE}},
        ("algorithm.policy_loss to gspo_token", "algorithm.advantage_estimator to group_norm"),
        {"algorithm": {"policy_loss": "gspo_token", **GAE}},
    ),
    "a correction of what the ratio corrects": (
        {"algorithm": {"off_policy_correction": "token_mask"}},
        ("algorithm.old_log_probs to learner", "algorithm.off_policy_correction to none"),
        {"algorithm": {"off_policy_correction": "token_mask", **LEARNER}},
    ),
    "a cap of nothing": (
        {"algorithm": {"off_policy_cap": 3.0}},
        ("algorithm.off_policy_cap to null", "off_policy_correction to sequence_truncate"),
        {"algorithm": {"off_policy_cap": 3.0, **LEARNER}},
    ),
    "a band for what is truncated": (
        {"algorithm": {"off_policy_low": 0.5, **LEARNER}},
        ("algorithm.off_policy_low to null", "algorithm.off_policy_correction to geometric_mask"),
        {
            "algorithm": {
                "off_policy_low": 0.5,
                "off_policy_correction": "geometric_mask",
                **LEARNER,
            }
        },
    ),
    "a mask without bounds": (
        {"algorithm": {"off_policy_correction": "sequence_mask", **LEARNER}},
        ("algorithm.off_policy_correction", "algorithm.off_policy_high"),
        {
            "algorithm": {
                "off_policy_correction": "sequence_mask",
                "off_policy_high": 2.0,
                **LEARNER,
            }
        },
    ),
    "an estimator of no KL": (
        {"algorithm": {"kl_estimator": "k1"}},
        ("algorithm.kl_estimator", "algorithm.init_kl_coef above 0"),
        {"algorithm": {"kl_estimator": "k1", **KL}},
    ),
    "a place for no KL": (
        {"algorithm": {"use_kl_loss": False}},
        ("algorithm.use_kl_loss", "algorithm.init_kl_coef above 0"),
        {"algorithm": {"use_kl_loss": False, **KL}},
    ),
    "a target without a KL": (
        {"algorithm": {"kl_target": 0.1}},
        ("algorithm.kl_target", "algorithm.init_kl_coef above 0"),
        {"algorithm": {"kl_target": 0.1, **KL}},
    ),
    "a horizon without a target": (
        {"algorithm": {"kl_horizon": 100.0, **KL}},
        ("algorithm.kl_horizon to null", "algorithm.kl_target"),
        {"algorithm": {"kl_horizon": 100.0, "kl_target": 0.1, **KL}},
    ),
    "a reversed range of rewards": (
        {"reward": {"reward_clip_range": [1.0, -1.0]}},
        ("reward.reward_clip_range [1, -1]", "to null"),
        {"reward": {"reward_clip_range": [-1.0, 1.0]}},
    ),
    "a penalty without a buffer": (
        {"reward": {"overlong_penalty_factor": 0.5}},
        ("reward.overlong_penalty_factor to null", "reward.overlong_buffer_len"),
        {"reward": {"overlong_penalty_factor": 0.5, "overlong_buffer_len": 4}},
    ),
    "a buffer longer than responses": (
        {"reward": {"overlong_buffer_len": 9}},
        ("reward.overlong_buffer_len 9", "rollout.generate_max_len 8"),
        {"reward": {"overlong_buffer_len": 8}},
    ),
    "a running norm below a norm in the group": (
        {"reward": {"reward_running_norm": "scale"}},
        ("reward.reward_running_norm to none", "algorithm.advantage_estimator group_norm"),
        {
            "reward": {"reward_running_norm": "scale"},
            "algorithm": {"advantage_estimator": "dr_grpo"},
        },
    ),
    "a factor of no shaping": (
        {"reward": {"length_shaping_factor": 0.5}},
        ("reward.length_shaping_factor to null", "reward.length_shaping to kimi or linear"),
        {"reward": {"length_shaping_factor": 0.5, "length_shaping": "linear"}},
    ),
    "a cosine in another shaping": (
        {"reward": {"length_shaping": "linear", "cosine_wrong": [-1.0, 0.0]}},
        ("reward.cosine_wrong to null", "reward.length_shaping to cosine"),
        {"reward": {"length_shaping": "cosine", "cosine_wrong": [-1.0, 0.0]}},
    ),
    "lengths of one sample compared": (
        {"reward": {"length_shaping": "kimi"}, "rollout": SINGLES, "algorithm": GAE},
        ("rollout.n_samples_per_prompt to 2", "reward.length_shaping to linear"),
        {"reward": {"length_shaping": "kimi"}, "algorithm": GAE},
    ),
    "a threshold that nobody asks for": (
        {"reward": {"correct_threshold": 1.0}},
        ("reward.correct_threshold to null", "data.prompt_sampling to difficulty"),
        {"reward": {"correct_threshold": 1.0}, "data": {"prompt_sampling": "difficulty"}},
    ),
    "difficulty of prompts taken alike": (
        {"data": {"difficulty_floor": 0.5}},
        ("data.difficulty_floor to null", "data.prompt_sampling to difficulty"),
        {"data": {"difficulty_floor": 0.5, "prompt_sampling": "difficulty"}},
    ),
    "a hot token without fire": (
        {"rollout": {"first_token_top_k": 4}},
        ("rollout.use_fire to true", "rollout.first_token_top_k to null"),
        {"rollout": {"first_token_top_k": 4, "use_fire": True}, "algorithm": LEARNER},
    ),
    "a hot token that is not hot": (
        {"rollout": {"use_fire": True, "first_token_temperature": 1.0}, "algorithm": LEARNER},
        ("rollout.first_token_temperature 1", "rollout.temperature 1", "use_fire to false"),
        {"rollout": {"use_fire": True, "first_token_temperature": 1.5}, "algorithm": LEARNER},
    ),
    "a hot token that nobody can weigh": (
        {"rollout": {"use_fire": True}},
        ("algorithm.old_log_probs to learner", "rollout.use_fire to false"),
        {"rollout": {"use_fire": True}, "algorithm": LEARNER},
    ),
    "dynamic sampling with one sample": (
        {"rollout": {"dynamic_sampling": True, **SINGLES}, "algorithm": GAE},
        ("rollout.n_samples_per_prompt to 2", "rollout.dynamic_sampling to false"),
        {"rollout": {"dynamic_sampling": True}, "algorithm": GAE},
    ),
    "a limit of nothing": (
        {"rollout": {"dynamic_sampling_max_batches": 3}},
        ("rollout.dynamic_sampling to true", "rollout.dynamic_sampling_max_batches to null"),
        {"rollout": {"dynamic_sampling_max_batches": 3, "dynamic_sampling": True}},
    ),
    "the best of as many": (
        {"rollout": {"best_of_n": 8}},
        ("rollout.best_of_n 8", "rollout.n_samples_per_prompt 8"),
        {"rollout": {"best_of_n": 9}},
    ),
    "tokens by an entropy that nobody knows": (
        {"algorithm": {"high_entropy_token_ratio": 0.2}},
        ("algorithm.old_log_probs to learner", "algorithm.high_entropy_token_ratio to 1.0"),
        {"algorithm": {"high_entropy_token_ratio": 0.2, **LEARNER}},
    ),
    "flash attention in float32": (
        {"trainer": PADDED, "model": {**FLASH, "dtype": "float32"}, "placement": GPUS},
        ("model.attn_implementation", "model.dtype to bfloat16"),
        {"trainer": PADDED, "model": FLASH, "placement": GPUS},
    ),
    "flash attention on CPU learners": (
        {"trainer": PADDED, "model": FLASH},
        ("model.attn_implementation", "placement.actor_num_gpus_per_node to 1"),
        {"trainer": PADDED, "model": FLASH, "placement": GPUS},
    ),
    "flash attention on a CPU reference": (
        {"trainer": PADDED, "model": FLASH, "placement": GPUS, "algorithm": KL},
        ("model.attn_implementation", "placement.ref_num_gpus_per_node to 1"),
        {
            "trainer": PADDED,
            "model": FLASH,
            "placement": {**GPUS, "ref_num_gpus_per_node": 1},
            "algorithm": KL,
        },
    ),
    "flash attention on a CPU critic": (
        {"trainer": PADDED, "model": FLASH, "placement": GPUS, "algorithm": GAE},
        ("model.attn_implementation", "placement.critic_num_gpus_per_node to 1"),
        {
            "trainer": PADDED,
            "model": FLASH,
            "placement": {**GPUS, "critic_num_gpus_per_node": 1},
            "algorithm": GAE,
        },
    ),
    "flash attention with shared prompts": (
        {"model": FLASH, "placement": GPUS},
        ("model.attn_implementation", "trainer.row_layout to packed"),
        {"trainer": {"row_layout": "packed"}, "model": FLASH, "placement": GPUS},
    ),
    "flex attention on CPU learners": (
        {"model": {"attn_implementation": "flex_attention"}},
        ("model.attn_implementation", "placement.actor_num_gpus_per_node to 1"),
        {"model": {"attn_implementation": "flex_attention"}, "placement": GPUS},
    ),
    "step no multiple of the batch": (
        {"rollout": {"rollout_batch_size": 31}},
        ("rollout.rollout_batch_size", "rollout.n_samples_per_prompt", "trainer.train_batch_size"),
        {
            "rollout": {"rollout_batch_size": 31},
            "trainer": {"train_batch_size": 248, "micro_train_batch_size": 8},
        },
    ),
    "batch larger than the step": (
        {"trainer": {"train_batch_size": 512}},
        ("256 samples a step", "trainer.train_batch_size 512"),
        {"trainer": {"train_batch_size": 256}},
    ),
    "batch no multiple of the ranks": (
        {"placement": {"cpu_learner_ranks": 3}, "trainer": {"micro_train_batch_size": 1}},
        ("trainer.train_batch_size 256", "3 learner ranks"),
        {
            "placement": {"cpu_learner_ranks": 3},
            "rollout": {"rollout_batch_size": 33},
            "trainer": {"micro_train_batch_size": 8, "train_batch_size": 264},
        },
    ),
    "batch no multiple of the critic's ranks": (
        {"placement": {"cpu_learner_ranks": 2, "critic_num_gpus_per_node": 3}, "algorithm": GAE},
        ("trainer.train_batch_size 256", "3 critic ranks", "a multiple of 6"),
        {
            "placement": {"cpu_learner_ranks": 2, "critic_num_gpus_per_node": 3},
            "algorithm": GAE,
            "rollout": {"rollout_batch_size": 36},
            "trainer": {"micro_train_batch_size": 48, "train_batch_size": 288},
        },
    ),
    "micro-batch larger than a critic rank's share": (
        {"placement": {"critic_num_gpus_per_node": 2}, "algorithm": GAE},
        ("trainer.micro_train_batch_size to 128", "2 critic ranks"),
        {
            "placement": {"critic_num_gpus_per_node": 2},
            "algorithm": GAE,
            "trainer": {"micro_train_batch_size": 128},
        },
    ),
    "micro-batch no divisor of both shares": (
        {
            "placement": {"cpu_learner_ranks": 3, "critic_num_gpus_per_node": 5},
            "algorithm": GAE,
            "rollout": {"rollout_batch_size": 30},
            "trainer": {"micro_train_batch_size": 80, "train_batch_size": 240},
        },
        ("trainer.micro_train_batch_size to 16", "48 samples", "5 critic ranks"),
        {
            "placement": {"cpu_learner_ranks": 3, "critic_num_gpus_per_node": 5},
            "algorithm": GAE,
            "rollout": {"rollout_batch_size": 30},
            "trainer": {"micro_train_batch_size": 16, "train_batch_size": 240},
        },
    ),
    "micro-batch larger than a rank's share": (
        {"placement": {"cpu_learner_ranks": 2}},
        ("trainer.micro_train_batch_size to 128", "2 learner ranks"),
        {"placement": {"cpu_learner_ranks": 2}, "trainer": {"micro_train_batch_size": 128}},
    ),
    "micro-batch no divisor of a rank's share": (
        {"trainer": {"micro_train_batch_size": 100}},
        ("trainer.micro_train_batch_size to 64", "trainer.train_batch_size 256"),
        {"trainer": {"micro_train_batch_size": 64}},
    ),
    "warm-up as long as the run": (
        {"trainer": {"num_steps": 5, "lr_warmup_steps": 5}},
        ("trainer.lr_warmup_steps below 5", "trainer.num_steps 5"),
        {"trainer": {"num_steps": 5, "lr_warmup_steps": 4}},
    ),
    "a warm-up of no critic": (
        {"trainer": {"critic_warmup_steps": 2}},
        ("trainer.critic_warmup_steps to 0", "algorithm.advantage_estimator to gae"),
        {"trainer": {"critic_warmup_steps": 2}, "algorithm": GAE},
    ),
    "a critic's warm-up as long as the run": (
        {"trainer": {"critic_warmup_steps": 5, "num_steps": 5}, "algorithm": GAE},
        ("trainer.critic_warmup_steps below 5", "trainer.num_steps 5"),
        {"trainer": {"critic_warmup_steps": 4, "num_steps": 5}, "algorithm": GAE},
    ),
    "clip bounds the wrong way round": (
        {"algorithm": {"eps_clip": 0.28, "eps_clip_high": 0.2}},
        ("algorithm.eps_clip_high 0.2", "algorithm.eps_clip 0.28"),
        {"algorithm": {"eps_clip": 0.2, "eps_clip_high": 0.28}},
    ),
    "GPUs for no critic": (
        {"placement": {"critic_num_gpus_per_node": 1}},
        ("placement.critic_num_gpus_per_node to 0", "algorithm.advantage_estimator to gae"),
        {"placement": {"critic_num_gpus_per_node": 1}, "algorithm": GAE},
    ),
    "a learning rate for no critic": (
        {"trainer": {"critic_learning_rate": 0.1}},
        ("trainer.critic_learning_rate to 0.001", "algorithm.advantage_estimator to gae"),
        {"trainer": {"critic_learning_rate": 0.1}, "algorithm": GAE},
    ),
    "a weight of no demonstrations": (
        {"algorithm": {"ptx_coef": 0.1}},
        ("algorithm.ptx_coef to null", "data.pretrain_data"),
        {"algorithm": {"ptx_coef": 0.1}, "data": DEMONSTRATIONS},
    ),
    "a batch of no demonstrations": (
        {"trainer": {"ptx_batch_size": 4}},
        ("trainer.ptx_batch_size to null", "data.pretrain_data"),
        {"trainer": {"ptx_batch_size": 4}, "data": DEMONSTRATIONS},
    ),
    "a column of no demonstrations": (
        {"data": {"output_key": "answer"}},
        ("data.output_key to response", "data.pretrain_data"),
        {"data": {"output_key": "answer", **DEMONSTRATIONS}},
    ),
    "demonstrations that do not divide over the ranks": (
        {
            "data": DEMONSTRATIONS,
            "placement": {"cpu_learner_ranks": 2},
            "trainer": {"micro_train_batch_size": 128, "ptx_batch_size": 5},
        },
        ("trainer.ptx_batch_size 5", "2 learner ranks", "a multiple of 2"),
        {
            "data": DEMONSTRATIONS,
            "placement": {"cpu_learner_ranks": 2},
            "trainer": {"micro_train_batch_size": 128, "ptx_batch_size": 6},
        },
    ),
    "a decay of no average": (
        {"trainer": {"ema_beta": 0.9}},
        ("trainer.enable_ema to true", "trainer.ema_beta to null"),
        {"trainer": {"ema_beta": 0.9, "enable_ema": True}},
    ),
    "an evaluation of no average": (
        {"evaluation": {"eval_ema": True}},
        ("trainer.enable_ema to true", "evaluation.eval_ema to false"),
        {"evaluation": {"eval_ema": True}, "trainer": {"enable_ema": True}},
    ),
    "nodes without GPUs": (
        {"placement": {"ref_num_nodes": 2}},
        ("placement.ref_num_nodes to 1", "placement.ref_num_gpus_per_node to 1"),
        {"placement": {"ref_num_nodes": 2, "ref_num_gpus_per_node": 1}},
    ),
    "CPU processes beside GPUs": (
        {"placement": {"cpu_learner_ranks": 2, **GPUS}},
        ("placement.cpu_learner_ranks to 1", "placement.actor_num_gpus_per_node to 0"),
        {"placement": {"cpu_learner_ranks": 1, **GPUS}},
    ),
    "CPU processes where learner and critic have GPUs": (
        {
            "placement": {"cpu_learner_ranks": 2, "critic_num_gpus_per_node": 1, **GPUS},
            "algorithm": GAE,
        },
        ("placement.cpu_learner_ranks to 1", "placement.actor_num_gpus_per_node to 0"),
        {
            "placement": {"cpu_learner_ranks": 1, "critic_num_gpus_per_node": 1, **GPUS},
            "algorithm": GAE,
        },
    ),
    "CPU references beside GPUs": (
        {"placement": {"cpu_ref_workers": 2, "ref_num_gpus_per_node": 1}},
        ("placement.cpu_ref_workers to 1", "placement.ref_num_gpus_per_node to 0"),
        {"placement": {"cpu_ref_workers": 2, "ref_num_gpus_per_node": 0}},
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradiction(name: str) -> None:
    tree, words, remedied = CONTRADICTIONS[name]
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(tree)
    (details,) = caught.value.errors()
    message = details["msg"]
    assert "\n" not in message
    for word in words:
        assert word in message
    RunConfig.model_validate(remedied)


@pytest.mark.parametrize(
    "estimator", ["reinforce_baseline", "rloo", "group_norm", "grpo", "dr_grpo", "cpgd"]
)
def test_a_group_of_one_has_nothing_to_be_compared_with(estimator: str) -> None:
    tree: Tree = {
        "rollout": {"n_samples_per_prompt": 1, "rollout_batch_size": 256},
        "algorithm": {"advantage_estimator": estimator},
    }
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(tree)
    assert "rollout.n_samples_per_prompt to 2" in str(caught.value)
    assert "algorithm.advantage_estimator" in str(caught.value)


@pytest.mark.parametrize("estimator", ["gae", "reinforce", "reinforce_plus_plus"])
def test_other_estimators_take_single_samples(estimator: str) -> None:
    tree: Tree = {
        "rollout": {"n_samples_per_prompt": 1, "rollout_batch_size": 256},
        "algorithm": {"advantage_estimator": estimator},
    }
    assert RunConfig.model_validate(tree).uses_critic == (estimator == "gae")


def test_a_critic_without_gpus_may_have_ranks_beside_a_learner_with_gpus() -> None:
    tree = {"placement": {"cpu_learner_ranks": 2, **GPUS}, "algorithm": GAE}
    config = RunConfig.model_validate(tree | {"trainer": {"micro_train_batch_size": 128}})
    assert (config.learner_ranks, config.critic_ranks) == (1, 2)


def test_warmup_counts_optimizer_steps_not_rollouts() -> None:
    trainer: Values = {"num_steps": 5, "max_epochs": 2, "train_batch_size": 128}
    trainer |= {"micro_train_batch_size": 128, "lr_warmup_steps": 19}
    assert RunConfig.model_validate({"trainer": trainer}).optimizer_steps == 20
