"""Reading a run's configuration from a YAML file and the command line, and writing it back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.run import RunConfig
from lightrft_ray.config.secrets import SecretGivenError
from lightrft_ray.config.settings import (
    Setting,
    find_setting,
    nearest_setting,
    sections,
    why_refused,
)
from lightrft_ray.config.yaml_text import format_scalar, format_yaml, parse_yaml

_LONGEST_SHOWN_VALUE = 100
_WRONG_SHAPE = ("missing", "too_long", "tuple_type")  # pydantic's names for a list that is no pair


@dataclass(frozen=True)
class _Given:
    """A value and the place it comes from, as an error message says it."""

    value: object
    place: str


def load_config(path: Path | None, overrides: Sequence[tuple[str, str]]) -> RunConfig:
    """Configuration of a YAML file (None: the defaults) with settings of the command line over it.

    Args:
        path: File with one mapping a section.
        overrides: Pairs of a dotted or leaf name and the text of its value; the last one of a
            setting counts. Text settings take it as it is (or null), others as a YAML scalar.

    Raises:
        UserError: Names the setting, its place, what is wrong with it and the remedy.
    """
    given = {} if path is None else _read_file(path)
    for name, text in overrides:
        setting = find_setting(name)
        if setting is None:
            raise _unknown_option(name)
        given[setting.key] = _Given(_parse_value(setting, text), "on the command line")
    try:
        return RunConfig.model_validate(_nest(given))
    except ValidationError as error:
        raise UserError(_describe(error.errors()[0], given)) from error


def dump_config(config: RunConfig) -> str:
    """The whole configuration as YAML that `load_config` reads back to an equal one."""
    return format_yaml(config.model_dump(mode="json"))


def read_tree(path: Path) -> dict[object, object]:
    """The mapping that a YAML file holds. Raises UserError that names the file and the problem."""
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"the configuration file {path} is not UTF-8 text") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML{_yaml_problem(error)}") from error
    if not isinstance(tree, dict):
        raise UserError(f"{path} must be a mapping of sections to settings, got {_show(tree)}")
    return tree


def _read_file(path: Path) -> dict[str, _Given]:
    """The settings of a file by dotted name."""
    return {key: _Given(value, f"in {path}") for key, value in _flatten(read_tree(path), path)}


def _flatten(tree: Mapping[object, object], path: Path) -> Iterable[tuple[str, object]]:
    for name, members in tree.items():
        if name not in sections():
            yield _known_key("", name, path), members
        elif isinstance(members, dict):
            for leaf, value in members.items():
                yield _known_key(str(name), leaf, path), value
        else:
            raise UserError(
                f"{name} in {path} must be a mapping of settings, got {_show(members)}: "
                "give it settings or remove it"
            )


def _known_key(section: str, leaf: object, path: Path) -> str:
    key = f"{section}.{leaf}" if section else str(leaf)
    found = find_setting(key)
    # A leaf's bare name and a dotted key are for the command line; a file has sections.
    if found is not None and (found.section, found.leaf) == (section, leaf):
        return key
    refusal = why_refused(key)
    if refusal is not None:
        raise UserError(refusal)
    near = nearest_setting(key)
    if near is None:
        hint = "--help lists all settings"
    else:
        place = f"in the section {near.section}" if near.section else "at the top level"
        hint = f"did you mean {near.leaf} {place}?"
    raise UserError(f"unknown setting {key} in {path}: {hint}")


def _unknown_option(name: str) -> UserError:
    refusal = why_refused(name)
    if refusal is not None:
        return UserError(refusal)
    near = nearest_setting(name)
    if name in sections():
        hint = f"it is a section, set one of its settings as --{name}.SETTING"
    elif near is not None:
        hint = f"did you mean --{near.key}?"
    else:
        hint = "--help lists all options"
    return UserError(f"unknown option --{name} on the command line: {hint}")


def _parse_value(setting: Setting, text: str) -> object:
    if setting.takes_null and text in ("null", "~"):
        return None
    if setting.takes_text:
        return text
    try:
        return parse_yaml(text)
    except yaml.YAMLError:
        return text  # no value of any setting that is not text: its type check names it


def _nest(given: Mapping[str, _Given]) -> dict[str, object]:
    tree: dict[str, object] = {}
    members: dict[str, dict[str, object]] = {"": tree}
    for key, one in given.items():
        section, _, leaf = key.rpartition(".")
        if section not in members:
            members[section] = {}
            tree[section] = members[section]
        members[section][leaf] = one.value
    return tree


def _describe(details: ErrorDetails, given: Mapping[str, _Given]) -> str:
    location = details["loc"]
    depth = 2 if location and location[0] in sections() else 1
    setting = find_setting(".".join(map(str, location[:depth])))
    if setting is None:  # a contradiction, whose text names the settings itself
        return str(details["ctx"]["error"])
    inner = " ".join(map(str, location[depth:]))
    if details["type"] == "missing" and isinstance(location[-1], str):
        problem = f"{inner} is missing"
    elif details["type"] == "extra_forbidden":
        problem = f"{inner} is no setting"
    elif details["type"] in _WRONG_SHAPE:
        problem = f"must be {setting.type_label}"
    elif details["type"] == "value_error":
        problem = str(details["ctx"]["error"])
    else:
        item = "".join(_place(part) for part in location[depth:])
        problem = f"{item}must {details['msg'].partition(' should ')[2]}"
    one = given[setting.key]
    if isinstance(details.get("ctx", {}).get("error"), SecretGivenError):
        return f"{setting.key} {one.place}: {problem}"
    return f"{setting.key} {one.place}: {problem}, got {_show(one.value)}"


def _place(part: int | str) -> str:
    """Where in a setting's value something is: an item of a list, or a name."""
    return f"item {part + 1} " if isinstance(part, int) else f"{part} "


def _yaml_problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f": {' '.join(str(error).split())}"
    return f", line {error.problem_mark.line + 1}: {error.problem}"


def _show(value: object) -> str:
    text = format_scalar(value)
    return text if len(text) <= _LONGEST_SHOWN_VALUE else text[:_LONGEST_SHOWN_VALUE] + "..."
