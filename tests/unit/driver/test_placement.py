"""What each role asks for, and how a shortage is told."""

import pytest
from pydantic import ValidationError

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.packing import Node, RoleDemand, pack
from lightrft_ray.driver.placement import demand_table, describe_shortage, role_demands


def _demands(**sections: dict[str, object]) -> dict[str, RoleDemand]:
    return {demand.role: demand for demand in role_demands(RunConfig.model_validate(sections))}


def test_a_run_on_cpu_fits_on_two_cores() -> None:
    demands = _demands(
        algorithm={"advantage_estimator": "gae", "init_kl_coef": 0.1},
        placement={"cpu_learner_ranks": 2},
        trainer={"micro_train_batch_size": 64},
    )
    assert {role: len(demand.bundles) for role, demand in demands.items()} == {
        "learner": 2,
        "generator": 1,
        "reward": 1,
        "reference": 1,
        "critic": 2,
    }
    assert sum(demand.total("CPU") for demand in demands.values()) <= 2
    assert not any(demand.total("GPU") for demand in demands.values())


def test_roles_that_a_run_does_not_use_ask_for_nothing() -> None:
    assert set(_demands()) == {"learner", "generator", "reward"}
    assert "reference" in _demands(algorithm={"init_kl_coef": 0.1})
    assert "critic" in _demands(algorithm={"advantage_estimator": "gae"})


def test_gpus_of_all_roles() -> None:
    demands = _demands(
        algorithm={"advantage_estimator": "gae", "init_kl_coef": 0.1},
        placement={
            "actor_num_nodes": 2,
            "actor_num_gpus_per_node": 4,
            "critic_num_gpus_per_node": 2,
            "ref_num_gpus_per_node": 1,
            "vllm_use_gpu": True,
        },
        rollout={"vllm_num_engines": 3, "vllm_tensor_parallel_size": 2},
        trainer={"micro_train_batch_size": 32},
    )
    assert {role: demand.total("GPU") for role, demand in demands.items()} == {
        "learner": 8,
        "generator": 6,
        "reward": 0,
        "reference": 1,
        "critic": 2,
    }
    assert all(bundle["GPU"] == 2 for bundle in demands["generator"].bundles)


_DEMANDS = [
    RoleDemand("learner", ({"CPU": 1.0, "GPU": 1.0},) * 4),
    RoleDemand("reward", ({"CPU": 0.2},)),
]


def test_what_fits_is_no_shortage() -> None:
    assert describe_shortage(_DEMANDS, {"CPU": 5.0, "GPU": 4.0}) is None


def test_a_shortage_names_what_each_role_asks_for() -> None:
    assert describe_shortage(_DEMANDS, {"CPU": 16.0, "GPU": 2.0}) == (
        "4 GPUs (learner 4) and the cluster has 2"
    )
    assert describe_shortage(_DEMANDS, {"CPU": 4.0}) == (
        "4 GPUs (learner 4) and the cluster has 0; "
        "4.2 CPUs (learner 4, reward 0.2) and the cluster has 4"
    )


def test_sums_of_fractions_are_no_shortage() -> None:
    """15 · 0.2 is a little over 3 in floating point."""
    assert describe_shortage([RoleDemand("reward", ({"CPU": 0.2},) * 15)], {"CPU": 3.0}) is None


def test_reward_models_have_groups_of_their_own() -> None:
    demands = _demands(
        reward={
            "recipes": {"default": {"quality": 1, "judge": 1, "small": 1}},
            "models": {
                "quality": {"pretrain": "a", "num_workers": 2, "gpus_per_worker": 1},
                "judge": {
                    "pretrain": "b",
                    "kind": "judge",
                    "template": "{response}",
                    "gpus_per_worker": 2,
                },
                "small": {"pretrain": "c"},
            },
        }
    )
    assert {role: demand.total("GPU") for role, demand in demands.items() if "model" in role} == {
        "reward_model.quality": 2,
        "reward_model.judge": 2,
        "reward_model.small": 0,
    }
    assert len(demands["reward_model.quality"].bundles) == 2


def test_a_node_has_the_learners_that_were_asked_for() -> None:
    learner = _demands(
        placement={"actor_num_nodes": 2, "actor_num_gpus_per_node": 4},
        trainer={"micro_train_batch_size": 32},
    )["learner"]
    assert learner.bundles == ({"CPU": 4.0, "GPU": 4.0},) * 2
    assert [learner.of_process(rank)[0] for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_resources_and_strategies_of_roles() -> None:
    demands = _demands(
        placement={
            "actor_num_gpus_per_node": 2,
            "resources": {"learner": {"fast_links": 0.5}, "generator": {"spot": 1}},
            "strategies": {"generator": "SPREAD"},
        },
        trainer={"micro_train_batch_size": 128},
    )
    assert demands["learner"].bundles == ({"CPU": 2.0, "GPU": 2.0, "fast_links": 1.0},)
    assert demands["generator"].bundles[0]["spot"] == 1
    assert demands["generator"].strategy == "SPREAD"
    assert demands["learner"].strategy == "PACK"


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        ({"resources": {"critic": {"x": 1}}}, "placement.resources names the critic, which the"),
        ({"strategies": {"critic": "PACK"}}, "placement.strategies names the critic, which the"),
        ({"resources": {"learner": {"GPU": 1}}}, "of the learner cannot set GPU"),
    ],
)
def test_what_no_process_could_take_is_refused(placement: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        _demands(placement=placement)


def test_a_missing_custom_resource_is_a_shortage() -> None:
    demands = [RoleDemand("critic", ({"CPU": 1.0, "big_memory": 1.0},) * 2)]
    assert describe_shortage(demands, {"CPU": 8.0}) == (
        "2 big_memory (critic 2) and the cluster has 0"
    )


def test_the_table_of_demand_and_supply() -> None:
    nodes = [Node("10.0.0.1", {"CPU": 8.0, "GPU": 4.0}), Node("10.0.0.2", {"CPU": 8.0})]
    assert demand_table(_DEMANDS, nodes, pack(_DEMANDS, nodes)) == [
        "role     processes  each          fits on",
        "learner  4          1 GPU, 1 CPU  10.0.0.1 ×4",
        "reward   1          0.2 CPU       10.0.0.1 ×1",
        "needed: 4 GPU, 4.2 CPU; free: 4 GPU, 16 CPU on 2 nodes",
    ]


def test_the_table_shows_what_has_no_place() -> None:
    nodes = [Node("10.0.0.1", {"CPU": 8.0, "GPU": 2.0})]
    assert demand_table(_DEMANDS, nodes, pack(_DEMANDS, nodes))[1].endswith("no place")


def test_the_table_of_many_nodes_stays_short() -> None:
    demand = RoleDemand("learner", ({"CPU": 8.0, "GPU": 8.0},) * 40, 8)
    nodes = [Node(f"n{index}", {"CPU": 8.0, "GPU": 8.0}) for index in range(64)]
    row = demand_table([demand], nodes, pack([demand], nodes))[1]
    assert row == "learner  320        1 GPU, 1 CPU  n0 ×8, n1 ×8, …, n39 ×8"
