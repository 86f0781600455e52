"""The plan of a run: its layout, what does not fit, and every configuration of the project."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.load import load_config
from lightrft_ray.driver.plan import Plan, make_plan
from lightrft_ray.driver.plan_memory import GB
from lightrft_ray.driver.plan_roles import Hardware, Lengths
from lightrft_ray.driver.plan_text import plan_text

CONFIGS = Path(__file__).parents[3] / "launch" / "configs"
GPU = {
    "model": {"pretrain": "Qwen/Qwen2.5-VL-7B-Instruct", "dtype": "bfloat16"},
    "trainer": {"micro_train_batch_size": 8, "zero_stage": 3},
    "placement": {"actor_num_gpus_per_node": 4, "vllm_use_gpu": True},
}


def _plan(hardware: Hardware | None = None, **sections: dict[str, object]) -> Plan:
    merged = {name: {**GPU.get(name, {}), **sections.get(name, {})} for name in {*GPU, *sections}}
    return make_plan(RunConfig.model_validate(merged), hardware)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_fits(path: Path) -> None:
    """On GPUs of 80 GB, as many as its name says."""
    plan = make_plan(load_config(path, []))
    assert plan.problems == ()
    named = re.search(r"_(\d+)gpu(_lora)?(_colocated)?$", path.stem)
    if named is not None:
        assert sum(demand.total("GPU") for demand in plan.demands) == int(named[1])
        assert plan.n_nodes == -(-int(named[1]) // 8)


# Resident memory in MB on two cores, largest over the demo's 200 steps, as its summary shows them.
MEASURED_DEMO = {"driver": 786, "generator": 4446, "reward": 682, "learner": 926}


def test_the_demo_takes_what_was_measured() -> None:
    plan = make_plan(load_config(CONFIGS / "digits_grpo.yaml", []))
    estimated = {role.role: role.memory.total / 1e6 for role in plan.roles}
    assert estimated == pytest.approx(MEASURED_DEMO, rel=0.15)


def test_weights_in_every_place_they_take() -> None:
    plan = _plan()
    roles = {role.role: role for role in plan.roles}
    weights = 8_292_166_656 * 2
    assert roles["learner"].memory.held["weights"] == weights / 4
    assert roles["generator"].memory.held["weights"] == weights
    assert plan.published_bytes == roles["learner"].host == weights


def test_the_cache_takes_what_is_left_of_its_share() -> None:
    (generator,) = (role for role in _plan().roles if role.role == "generator")
    assert generator.memory.total == pytest.approx(0.85 * 80 * GB)


def test_frozen_parts_are_neither_optimized_nor_published() -> None:
    whole, part = _plan(), _plan(model={"freeze_vision_tower": True})
    tower = whole.published_bytes - part.published_bytes
    assert 1.0 * GB < tower < 1.5 * GB  # 0.6B parameters in bfloat16
    saved = [plan.roles[1].memory.held["optimizer"] for plan in (whole, part)]
    assert saved[0] - saved[1] == tower / 2 * 12 / 4


def test_a_critic_and_a_reference() -> None:
    plan = _plan(
        algorithm={"advantage_estimator": "gae", "init_kl_coef": 0.1},
        placement={"critic_num_gpus_per_node": 4, "ref_num_gpus_per_node": 1},
    )
    roles = {role.role: role for role in plan.roles}
    assert plan.n_nodes == 2
    assert roles["reference"].memory.held["weights"] == 8_292_166_656 * 2
    head = 152_064 * 3584 * 2 / 4
    learner, critic = (roles[role].memory.held["weights"] for role in ("learner", "critic"))
    assert learner - critic == head


def test_reward_models() -> None:
    plan = _plan(
        model={"freeze_vision_tower": True},  # of the policy: the judge has none
        reward={
            "recipes": {"default": {"quality": 1, "judge": 1}},
            "models": {
                "quality": {"pretrain": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bfloat16"},
                "judge": {
                    "pretrain": "Qwen/Qwen2.5-7B-Instruct",
                    "dtype": "bfloat16",
                    "kind": "judge",
                    "template": "{response}",
                    "gpus_per_worker": 1,
                },
            },
        },
    )
    roles = {role.role: role for role in plan.roles}
    judge, quality = roles["reward_model.judge"], roles["reward_model.quality"]
    assert (judge.device, quality.device) == ("GPU", "CPU")
    assert judge.memory.held["weights"] == 7_615_616_512 * 2
    assert judge.memory.total == pytest.approx(0.85 * 80 * GB)
    assert judge.memory.held["publication"] == 0
    assert quality.memory.held["weights"] == (7_615_616_512 - 152_064 * 3584) * 2


def test_what_does_not_fit_is_a_problem_with_a_remedy() -> None:
    plan = _plan(trainer={"zero_stage": 0, "micro_train_batch_size": 8})
    (problem,) = plan.problems
    assert problem.startswith("the learner needs ")
    assert "zero_stage 3" in problem


def test_a_cache_too_small_for_one_sequence() -> None:
    plan = _plan(rollout={"generate_max_len": 900_000, "vllm_max_num_seqs": 1})
    assert any("key-value cache holds" in problem for problem in plan.problems)


def test_more_gpus_a_node_than_there_are() -> None:
    (problem,) = _plan(Hardware(gpus_per_node=2)).problems
    assert problem.startswith("the learner needs 4 GPU, 4 CPU on one node; free beside the rest: ")


def test_nodes_of_other_sizes() -> None:
    assert _plan(Hardware(gpus_per_node=4)).n_nodes == 2
    assert _plan(Hardware(gpus_per_node=8)).n_nodes == 1


def test_shorter_texts_take_less() -> None:
    config = RunConfig.model_validate(GPU)
    long, short = make_plan(config), make_plan(config, lengths=Lengths(64, 4, 16))
    assert (
        short.roles[1].memory.in_turn["activations"] < long.roles[1].memory.in_turn["activations"]
    )
    assert short.roles[1].memory.held == long.roles[1].memory.held


@pytest.mark.parametrize(
    ("size", "fits"), [(1, True), (2, True), (3, False), (4, True), (8, False)]
)
def test_tensor_parallel_sizes_divide_the_heads(size: int, fits: bool) -> None:
    """Qwen2.5-VL-7B has 28 attention and 4 key-value heads."""
    if fits:
        _plan(rollout={"vllm_tensor_parallel_size": size})
        return
    with pytest.raises(UserError) as error:
        _plan(rollout={"vllm_tensor_parallel_size": size})
    assert str(error.value) == (
        f"rollout.vllm_tensor_parallel_size {size} does not divide the 28 attention heads and 4 "
        "key-value heads of model.pretrain Qwen/Qwen2.5-VL-7B-Instruct: set it to one of "
        "1, 2, 4, 28"
    )


def test_both_weights_must_fit_on_a_shared_gpu() -> None:
    config = load_config(CONFIGS / "grpo_qwen2_5_vl_3b_1gpu_lora_colocated.yaml", [])
    assert make_plan(config).problems == ()
    (problem,) = make_plan(config, Hardware(gpu_gb=15), Lengths(64, 8, 16)).problems[-1:]
    assert "while weights are published, learner and generator hold" in problem


def test_large_weights_need_a_larger_object_store() -> None:
    plan = make_plan(load_config(CONFIGS / "grpo_qwen2_5_vl_72b_64gpu.yaml", []))
    assert any("147 GB of the object store" in text for text in plan.warnings)


def test_the_text_of_a_plan() -> None:
    config = load_config(CONFIGS / "grpo_qwen2_5_vl_32b_16gpu.yaml", [])
    text = plan_text(make_plan(config), Hardware())
    assert "learner    12         1 GPU, 1 CPU  node 1 ×6, node 2 ×6\n" in text
    assert "generator  2          2 GPU, 1 CPU  node 1 ×1, node 2 ×1\n" in text
    assert "16 GPUs on 2 nodes of 8\n" in text
    assert "published weights: 66.91\n" in text


def test_a_role_that_the_run_does_not_have_is_not_placed() -> None:
    with pytest.raises(ValidationError, match="which the run does not have"):
        _plan(placement={"strategies": {"critic": "SPREAD"}})
