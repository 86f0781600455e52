"""A plan as text for a terminal."""

from collections import Counter
from collections.abc import Mapping, Sequence

from lightrft_ray.driver.packing import RoleDemand, show_resources
from lightrft_ray.driver.plan import Hardware, Plan, RolePlan
from lightrft_ray.driver.plan_memory import GB


def plan_text(plan: Plan, hardware: Hardware) -> str:
    """The layout, the memory by role and purpose, problems and warnings."""
    lines = ["layout", *_layout(plan, hardware), "", "memory of each process, GB", *_memory(plan)]
    if plan.problems or plan.warnings:
        lines.append("")
    lines += [f"problem: {text}" for text in plan.problems]
    lines += [f"warning: {text}" for text in plan.warnings]
    return "\n".join(lines) + "\n"


def _layout(plan: Plan, hardware: Hardware) -> list[str]:
    rows = [("role", "processes", "each", "where")]
    rows += [
        (d.role, str(d.processes), show_resources(d.of_process(0)[1]), _where(d, plan))
        for d in plan.demands
    ]
    gpus = sum(demand.total("GPU") for demand in plan.demands)
    nodes = "1 node" if plan.n_nodes == 1 else f"{plan.n_nodes} nodes"
    total = f"{gpus:g} GPUs on {nodes} of {hardware.gpus_per_node}"
    return [*_columns(rows), f"  {total}" if gpus else "  no GPUs"]


def _where(demand: RoleDemand, plan: Plan) -> str:
    places = Counter(plan.packing.nodes.get(demand.role, ()))
    shown = [f"{name} ×{bundles * demand.processes_per_bundle}" for name, bundles in places.items()]
    few = shown if len(shown) <= 4 else [*shown[:2], "…", shown[-1]]
    return ", ".join(few) or "no place"


def _memory(plan: Plan) -> list[str]:
    rows = [("role", "on", "total", "made of")]
    rows += [(r.role, r.device, f"{r.memory.total / GB:.2f}", _parts(r)) for r in plan.roles]
    return [
        *_columns(rows),
        f"  published weights: {plan.published_bytes / GB:.2f}",
    ]


def _parts(role: RolePlan) -> str:
    held = " + ".join(_each(role.memory.held))
    in_turn = ", ".join(_each(role.memory.in_turn))
    parts = [held, f"the largest of ({in_turn})"] if in_turn else [held]
    host = [f"; host: {role.host / GB:.2f}"] if role.host else []
    return " + ".join(parts) + "".join(host)


def _each(parts: Mapping[str, float]) -> list[str]:
    return [f"{name} {size / GB:.2f}" for name, size in parts.items() if size > 0]


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
