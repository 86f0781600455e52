"""The model card of an exported policy."""

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import dump_config
from lightrft_ray.data.embedded import is_embedded
from lightrft_ray.observe.names import METRICS, Record, documented_as

_SHOWN = ("eval/", "reward/mean", "samples", "policy/entropy", "kl/reference_mean")


def model_card(config: RunConfig, step: int, results: Record) -> str:
    """Markdown: where the model comes from, what it reached and how it was trained.

    `results` is the record of the step that it was saved after.
    """
    rows = [
        f"| `{name}` | {value:g} | {METRICS[documented_as(name)].meaning} |"
        for name, value in results.items()
        if name.startswith(_SHOWN)
    ]
    algorithm, base = config.algorithm, config.model.pretrain
    return "\n".join(
        [
            "---",
            *([] if is_embedded(base) else [f"base_model: {base}"]),
            "library_name: transformers",
            "tags: [reinforcement-learning, lightrft-ray]",
            "---",
            f"# {base} after {step} steps",
            "",
            f"Trained by LightRFT-Ray with `{algorithm.advantage_estimator}` advantages and the "
            f"`{algorithm.policy_loss}` loss on `{config.data.prompt_data}`, rewarded by "
            f"`{config.reward.reward_fn}`.",
            "",
            "## Results",
            "",
            "| metric | value | meaning |",
            "|---|---|---|",
            *rows,
            "",
            "## Configuration",
            "",
            "```yaml",
            dump_config(config).rstrip(),
            "```",
            "",
        ]
    )
