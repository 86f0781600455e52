"""Where processes would lie on a cluster's nodes, found without asking Ray.

Ray places one group after the other and says nothing of one that it cannot place. This tells, in
milliseconds, whether everything fits together, where, and if not, what is missing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Resources = dict[str, float]
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


@dataclass(frozen=True)
class RoleDemand:
    """Processes of one role, which share `bundles` of resources equally among them.

    A bundle lies on one node, whole. `strategy` is how Ray spreads bundles over nodes.
    """

    role: str
    bundles: tuple[Resources, ...]
    processes_per_bundle: int = 1
    strategy: Strategy = "PACK"

    @property
    def processes(self) -> int:
        """Processes of the role."""
        return len(self.bundles) * self.processes_per_bundle

    def total(self, resource: str) -> float:
        """Sum over the role's processes."""
        return exact_sum(bundle.get(resource, 0.0) for bundle in self.bundles)

    def of_process(self, index: int) -> tuple[int, Resources]:
        """The bundle of a process, and its share of it."""
        place = index // self.processes_per_bundle
        shares = self.bundles[place].items()
        return place, {name: amount / self.processes_per_bundle for name, amount in shares}


@dataclass(frozen=True)
class Node:
    """A node of the cluster and what is free there."""

    name: str
    free: Mapping[str, float]


@dataclass(frozen=True)
class Packing:
    """By role, the names of the nodes that its bundles lie on; and what does not fit, if any."""

    nodes: Mapping[str, tuple[str, ...]]
    misfit: str | None = None


def exact_sum(amounts: Iterable[float]) -> float:
    """Exact to the ten-thousandths that Ray counts in: 15 · 0.2 CPUs must fit on 3."""
    return round(sum(amounts), 4)


def in_placing_order(demands: Sequence[RoleDemand]) -> list[RoleDemand]:
    """Largest bundles first: what needs much of one node must not find only scraps."""
    return sorted(demands, key=_size_of_bundles, reverse=True)


def _size_of_bundles(demand: RoleDemand) -> tuple[bool, float, float]:
    largest = max(demand.bundles, key=lambda bundle: bundle.get("GPU", 0.0))
    is_strict = demand.strategy.startswith("STRICT")
    gpus = demand.total("GPU") if demand.strategy == "STRICT_PACK" else largest.get("GPU", 0.0)
    return is_strict, gpus, largest.get("CPU", 0.0)


def pack(demands: Sequence[RoleDemand], nodes: Sequence[Node]) -> Packing:
    """Place all bundles, greedily: each where its role already lies, or on the fullest that fits.

    Stops at the first bundle without a place and says what it lacks, and where.
    """
    free = [dict(node.free) for node in nodes]
    placed: dict[str, tuple[str, ...]] = {}
    for demand in in_placing_order(demands):
        found = _place_role(demand, free)
        if found is None:
            return Packing(placed, _misfit(demand, nodes, free))
        placed[demand.role] = tuple(nodes[index].name for index in found)
    return Packing(placed)


def _place_role(demand: RoleDemand, free: list[Resources]) -> list[int] | None:
    """Indices of nodes, one a bundle, whose `free` is taken; None where one has no place."""
    if demand.strategy == "STRICT_PACK":
        whole = _together(demand.bundles)
        index = _best(whole, free, used=Counter(), spread=False)
        if index is None:
            return None
        _take(free[index], whole)
        return [index] * len(demand.bundles)
    used: Counter[int] = Counter()
    chosen = []
    for bundle in demand.bundles:
        left_out = used if demand.strategy == "STRICT_SPREAD" else ()
        index = _best(bundle, free, used, spread="SPREAD" in demand.strategy, left_out=left_out)
        if index is None:
            return None
        _take(free[index], bundle)
        used[index] += 1
        chosen.append(index)
    return chosen


def _best(
    bundle: Resources,
    free: Sequence[Resources],
    used: Counter[int],
    *,
    spread: bool,
    left_out: Iterable[int] = (),
) -> int | None:
    excluded = set(left_out)
    fitting = [
        index for index, own in enumerate(free) if index not in excluded and _fits(bundle, own)
    ]
    if spread:
        return min(fitting, key=lambda index: (used[index], _gpus(free[index])), default=None)
    # A bundle without GPUs must not crowd a node of those that need them.
    return min(fitting, key=lambda index: (-used[index], _gpus(free[index])), default=None)


def _gpus(resources: Resources) -> float:
    return resources.get("GPU", 0.0)


def _fits(bundle: Resources, free: Resources) -> bool:
    return all(amount <= free.get(name, 0.0) for name, amount in bundle.items())


def _take(free: Resources, bundle: Resources) -> None:
    for name, amount in bundle.items():
        free[name] = exact_sum((free[name], -amount))


def _together(bundles: Sequence[Resources]) -> Resources:
    names = {name for bundle in bundles for name in bundle}
    return {name: exact_sum(bundle.get(name, 0.0) for bundle in bundles) for name in names}


def _misfit(demand: RoleDemand, nodes: Sequence[Node], free: Sequence[Resources]) -> str:
    """What the role asks for on one node, and what the nodes have left of it."""
    is_together = demand.strategy == "STRICT_PACK"
    bundle = _together(demand.bundles) if is_together else demand.bundles[0]
    count = 1 if is_together else len(demand.bundles)
    where = "on one node" if count == 1 else f"on one node, {count} times"
    if demand.strategy == "STRICT_SPREAD":
        where += ", each on a node of its own"
    left = "; ".join(
        f"{node.name} {show_resources({name: own.get(name, 0.0) for name in bundle})}"
        for node, own in _closest(bundle, nodes, free)
    )
    return f"the {demand.role} needs {show_resources(bundle)} {where}; free beside the rest: {left}"


def _closest(
    bundle: Resources, nodes: Sequence[Node], free: Sequence[Resources], shown: int = 8
) -> list[tuple[Node, Resources]]:
    """The nodes that have most of what the bundle lacks; a list of all would hide them."""
    pairs = list(zip(nodes, free, strict=True))
    return sorted(pairs, key=lambda pair: _share(bundle, pair[1]), reverse=True)[:shown]


def _share(bundle: Resources, free: Resources) -> float:
    return sum(
        min(free.get(name, 0.0) / amount, 1.0) for name, amount in bundle.items() if amount > 0
    )


def show_resources(resources: Mapping[str, float]) -> str:
    """For a table: `2 GPU, 1 CPU, 0.5 big_memory`."""
    first = [name for name in ("GPU", "CPU") if name in resources]
    names = first + sorted(resources.keys() - set(first))
    return ", ".join(f"{resources[name]:g} {name}" for name in names)
