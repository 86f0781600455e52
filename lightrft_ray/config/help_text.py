"""The text of `--help`: every setting by section with its type, default and meaning."""

import textwrap

from lightrft_ray.config.settings import Setting, all_settings, sections
from lightrft_ray.config.yaml_text import format_scalar

_WIDTH = 100
_RULES = (
    "The command line overrides the file, and the file overrides the defaults. A section's name "
    "may be left out: --rollout.temperature 0.9, --temperature 0.9 and --temperature=0.9 mean the "
    "same. An option that takes true|false means true when it stands alone."
)


def format_help(prog: str, description: str) -> str:
    """Help for a program whose options are the settings of a run, at most 100 columns wide."""
    lines = [
        f"usage: {prog} [--config FILE] [--SETTING VALUE ...]",
        "",
        *textwrap.wrap(description, _WIDTH),
        "",
        *textwrap.wrap(_RULES, _WIDTH),
        "",
        "  --config FILE",
        "      YAML file with one mapping a section.",
        "  --help",
        "      Print this and exit.",
    ]
    titles = {"": "Settings of the top level"}
    titles |= {name: f"{name}: {model.__doc__}" for name, model in sections().items()}
    for section, title in titles.items():
        lines += ["", title]
        for setting in all_settings():
            if setting.section == section:
                lines += describe_setting(setting, f"--{setting.key}")
    return "\n".join(lines) + "\n"


def describe_setting(setting: Setting, name: str) -> list[str]:
    """The lines on one setting under a name: its type, its default and its meaning."""
    is_required = setting.field.is_required()
    default = "needed" if is_required else f"default: {format_scalar(setting.field.default)}"
    indent = " " * 6
    # Breaks only where spaces are: they stand behind the bars until the line is wrapped.
    choices = setting.type_label.replace("|", "| ")
    head = f"{name} {choices} ({default})"
    wrapped = textwrap.wrap(
        head, _WIDTH, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False
    )
    return [
        *(line.replace("| ", "|") for line in wrapped),
        *textwrap.wrap(
            setting.field.description or "", _WIDTH, initial_indent=indent, subsequent_indent=indent
        ),
    ]
