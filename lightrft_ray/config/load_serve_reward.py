"""Reading the YAML file of a reward server; every mistake is one line."""

import difflib
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.fields import Section
from lightrft_ray.config.help_text import describe_setting
from lightrft_ray.config.load import read_tree
from lightrft_ray.config.serve_reward import ServeRewardConfig
from lightrft_ray.config.settings import Setting
from lightrft_ray.config.yaml_text import format_scalar


def load_serve_config(path: Path) -> ServeRewardConfig:
    """The settings of a file. Raises UserError that names the file, the setting and the remedy."""
    try:
        return ServeRewardConfig.model_validate(read_tree(path))
    except ValidationError as error:
        raise UserError(f"{path}: {_describe(error.errors()[0])}") from error


def describe_settings() -> str:
    """All settings of a file, by section, as `--help` shows them."""
    lines: list[str] = []
    for section, field in ServeRewardConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            lines += ["", f"{section}: {field.annotation.__doc__}"]
            for leaf, member in field.annotation.model_fields.items():
                lines += describe_setting(Setting(section, leaf, member), leaf)
    return "\n".join(lines).strip("\n") + "\n"


def _describe(details: ErrorDetails) -> str:
    name = ".".join(map(str, details["loc"]))
    kind = details["type"]
    if kind == "value_error":  # a contradiction, whose text names the settings itself
        return str(details["ctx"]["error"])
    if kind == "extra_forbidden":
        return f"unknown setting {name}{_nearest(details['loc'])}"
    if kind == "missing":
        return f"{name} is missing"
    problem = details["msg"].partition(" should ")[2] or details["msg"]
    return f"{name} must {problem}, got {format_scalar(details['input'])}"


def _nearest(location: tuple[int | str, ...]) -> str:
    """What the setting may have been meant to be."""
    model: type[Section] = ServeRewardConfig
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            model = annotation
    names = list(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), names, n=1)
    return f": did you mean {close[0]}?" if close else f": there are {', '.join(names)}"
