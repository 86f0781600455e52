"""Where bundles would lie, and what is said of one that has no place."""

import time

from lightrft_ray.driver.packing import Node, RoleDemand, Strategy, in_placing_order, pack


def _node(name: str, gpus: float, cpus: float = 64, **custom: float) -> Node:
    return Node(name, {"CPU": cpus, "GPU": gpus, **custom})


def _gpus(
    role: str, per_bundle: int, bundles: int, strategy: Strategy = "PACK", processes: int = 1
) -> RoleDemand:
    bundle = {"CPU": 1.0, "GPU": float(per_bundle)}
    return RoleDemand(role, (bundle,) * bundles, processes, strategy)


def test_a_role_is_kept_together() -> None:
    packing = pack([_gpus("learner", 1, 4)], [_node("a", 8), _node("b", 8)])
    assert packing.nodes == {"learner": ("a",) * 4}
    assert packing.misfit is None


def test_a_small_role_takes_the_rest_of_a_node_and_leaves_whole_ones() -> None:
    demands = [_gpus("reference", 1, 2), _gpus("learner", 8, 1), _gpus("generator", 4, 1)]
    packing = pack(demands, [_node("a", 8), _node("b", 8)])
    assert packing.nodes["learner"] != packing.nodes["generator"]
    assert set(packing.nodes["reference"]) == set(packing.nodes["generator"])


def test_processes_without_gpus_go_where_no_gpus_are() -> None:
    packing = pack([RoleDemand("reward", ({"CPU": 0.2},))], [_node("gpus", 8), _node("head", 0)])
    assert packing.nodes == {"reward": ("head",)}


def test_spreading() -> None:
    nodes = [_node("a", 8), _node("b", 8)]
    spread = pack([_gpus("generator", 2, 4, "SPREAD")], nodes)
    assert sorted(spread.nodes["generator"]) == ["a", "a", "b", "b"]
    apart = pack([_gpus("generator", 2, 2, "STRICT_SPREAD")], nodes)
    assert sorted(apart.nodes["generator"]) == ["a", "b"]


def test_one_bundle_too_many_to_be_apart() -> None:
    misfit = pack(
        [_gpus("generator", 1, 3, "STRICT_SPREAD")], [_node("a", 8), _node("b", 8)]
    ).misfit
    assert misfit is not None
    assert misfit.startswith(
        "the generator needs 1 GPU, 1 CPU on one node, 3 times, each on a node of its own; free"
    )


def test_all_on_one_node_or_not_at_all() -> None:
    nodes = [_node("a", 3), _node("b", 4)]
    assert pack([_gpus("critic", 1, 4, "STRICT_PACK")], nodes).nodes == {"critic": ("b",) * 4}
    misfit = pack([_gpus("critic", 1, 5, "STRICT_PACK")], nodes).misfit
    assert misfit == (
        "the critic needs 5 GPU, 5 CPU on one node; free beside the rest: "
        "b 4 GPU, 64 CPU; a 3 GPU, 64 CPU"
    )


def test_scraps_do_not_add_up() -> None:
    """Four GPUs are free, but an engine over two of them finds no node with as many."""
    misfit = pack([_gpus("generator", 4, 1)], [_node("a", 2), _node("b", 2)]).misfit
    assert misfit == (
        "the generator needs 4 GPU, 1 CPU on one node; free beside the rest: "
        "a 2 GPU, 64 CPU; b 2 GPU, 64 CPU"
    )


def test_a_custom_resource_chooses_the_node() -> None:
    demand = RoleDemand("critic", ({"CPU": 1.0, "GPU": 1.0, "big_memory": 1.0},))
    assert pack([demand], [_node("a", 8), _node("b", 8, big_memory=1)]).nodes == {"critic": ("b",)}
    misfit = pack([demand], [_node("a", 8)]).misfit
    assert misfit == (
        "the critic needs 1 GPU, 1 CPU, 1 big_memory on one node; free beside the rest: "
        "a 8 GPU, 64 CPU, 0 big_memory"
    )


def test_shares_of_a_bundle() -> None:
    demand = _gpus("learner", 4, 2, processes=4)
    assert demand.processes == 8
    assert demand.of_process(0) == (0, {"CPU": 0.25, "GPU": 1.0})
    assert demand.of_process(5) == (1, {"CPU": 0.25, "GPU": 1.0})


def test_what_needs_most_of_a_node_is_placed_first() -> None:
    demands = [_gpus("reference", 1, 8), _gpus("generator", 4, 2), _gpus("learner", 8, 1)]
    assert [d.role for d in in_placing_order(demands)] == ["learner", "generator", "reference"]


def test_64_nodes_are_packed_in_a_moment() -> None:
    """512 GPUs, all of them asked for, in bundles of three sizes."""
    nodes = [_node(f"node-{index}", 8) for index in range(64)]
    demands = [
        _gpus("learner", 8, 40, processes=8),
        _gpus("generator", 4, 46),
        _gpus("reference", 1, 8),
    ]
    start = time.monotonic()
    packing = pack(demands, nodes)
    assert time.monotonic() - start < 1
    assert packing.misfit is None
    assert len(set(packing.nodes["learner"])) == 40
    assert len(set(packing.nodes["generator"])) == 23
