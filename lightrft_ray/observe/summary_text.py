"""The summary of a run as the lines that end its output."""

from lightrft_ray.observe.formatting import duration, number
from lightrft_ray.observe.summary import Summary

_LABEL_WIDTH = 20


def render_summary(summary: Summary) -> str:
    """Return `summary` as aligned lines: a headline, then one fact a line."""
    headline = (
        f"{summary['algorithm']}: {summary['steps']} steps in "
        f"{duration(summary['seconds_total'])} (set-up {duration(summary['seconds_setup'])})"
    )
    facts = {
        "held-out accuracy": _change(
            summary["eval_accuracy_before"], summary["eval_accuracy_after"]
        ),
        "reward": _change(summary["reward_first"], summary["reward_last"]),
        "throughput": _throughput(summary),
        "seconds by phase": _amounts(summary["seconds_by_phase"], ".1f"),
        "weights": _weights(summary),
        "prompts": _amounts(summary["prompts"], "d"),
        "peak memory, MB": _amounts(summary["peak_rss_mb_by_role"], ".0f"),
        "observation": f"{number(summary['observe_fraction'], '.2%')} of the steps",
        "driver growth": _growth(summary["driver_rss_growth_mb_per_50_steps"]),
    }
    lines = [f"  {label:<{_LABEL_WIDTH}}{fact}" for label, fact in facts.items()]
    return "\n".join([headline, *lines])


def _growth(per_50_steps: float | None) -> str:
    return "-" if per_50_steps is None else f"{number(per_50_steps, '+.1f')} MB in 50 steps"


def _change(before: float | None, after: float | None) -> str:
    return f"{number(before, '.3f')} → {number(after, '.3f')}"


def _amounts(amounts: dict[str, float] | dict[str, int], spec: str) -> str:
    return ", ".join(f"{name} {amount:{spec}}" for name, amount in amounts.items()) or "-"


def _throughput(summary: Summary) -> str:
    return (
        f"{summary['samples']} samples, {number(summary['samples_per_second'], '.1f')} samples/s, "
        f"{number(summary['tokens_per_second'], '.0f')} tokens/s"
    )


def _weights(summary: Summary) -> str:
    return (
        f"version {number(summary['weight_version'], 'd')}, "
        f"publishing took {number(summary['publish_fraction_of_step'], '.1%')} of the steps, "
        f"canary gap {number(summary['canary_max_abs_logprob_diff'], '.1e')} nats"
    )
