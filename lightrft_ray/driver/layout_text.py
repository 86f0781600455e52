"""The layout of a run's processes as a table for a terminal."""

from collections import Counter
from collections.abc import Sequence

from lightrft_ray.driver.packing import Packing, RoleDemand, show_resources

_NODES_SHOWN = 4


def layout_table(demands: Sequence[RoleDemand], packing: Packing) -> list[str]:
    """Lines for what each role asks for and where it fits."""
    rows = [("role", "processes", "each", "fits on")]
    for demand in demands:
        each = show_resources(demand.of_process(0)[1])
        rows.append((demand.role, str(demand.processes), each, _where(demand, packing)))
    return columns(rows)


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows whose cells stand below each other; the last column is as wide as it likes."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def count_nodes(count: int) -> str:
    """`1 node`, `2 nodes`."""
    return "1 node" if count == 1 else f"{count} nodes"


def _where(demand: RoleDemand, packing: Packing) -> str:
    bundles = Counter(packing.nodes.get(demand.role, ()))
    shown = [f"{node} ×{count * demand.processes_per_bundle}" for node, count in bundles.items()]
    if len(shown) > _NODES_SHOWN:
        shown = [*shown[: _NODES_SHOWN - 2], "…", shown[-1]]
    return ", ".join(shown) or "no place"
