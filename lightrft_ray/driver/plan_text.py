"""A plan as text for a terminal."""

from collections.abc import Mapping

from lightrft_ray.driver.layout_text import columns, count_nodes, layout_table
from lightrft_ray.driver.plan import Plan
from lightrft_ray.driver.plan_memory import GB
from lightrft_ray.driver.plan_roles import Hardware, RolePlan


def plan_text(plan: Plan, hardware: Hardware) -> str:
    """The layout, the memory by role and purpose, problems and warnings."""
    layout, memory = _indented(_layout(plan, hardware)), _indented(_memory(plan))
    lines = ["layout", *layout, "", "memory of each process, GB", *memory]
    if plan.problems or plan.warnings:
        lines.append("")
    lines += [f"problem: {text}" for text in plan.problems]
    lines += [f"warning: {text}" for text in plan.warnings]
    return "\n".join(lines) + "\n"


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _layout(plan: Plan, hardware: Hardware) -> list[str]:
    gpus = sum(demand.total("GPU") for demand in plan.demands)
    nodes = f"{gpus:g} GPUs on {count_nodes(plan.n_nodes)} of {hardware.gpus_per_node}"
    return [*layout_table(plan.demands, plan.packing), nodes if gpus else "no GPUs"]


def _memory(plan: Plan) -> list[str]:
    rows = [("role", "on", "total", "made of")]
    rows += [(r.role, r.device, f"{r.memory.total / GB:.2f}", _parts(r)) for r in plan.roles]
    return [*columns(rows), f"published weights: {plan.published_bytes / GB:.2f}"]


def _parts(role: RolePlan) -> str:
    held = " + ".join(_each(role.memory.held))
    in_turn = ", ".join(_each(role.memory.in_turn))
    parts = [held, f"the largest of ({in_turn})"] if in_turn else [held]
    host = [f"; host: {role.host / GB:.2f}"] if role.host else []
    return " + ".join(parts) + "".join(host)


def _each(parts: Mapping[str, float]) -> list[str]:
    return [f"{name} {size / GB:.2f}" for name, size in parts.items() if size > 0]
