"""What the sections of the configuration are made of: their base class and kinds of values."""

import re
from collections.abc import Mapping, Set
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NonEmptyStr = Annotated[str, Field(min_length=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
AtLeastOne = Annotated[float, Field(ge=1)]
# vLLM raises a temperature below 0.01 to that without a word, and takes none above 2.
Temperature = Annotated[float, Field(ge=0.01, le=2)]
AdamBeta = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """Rules of every section: unknown names, conversions between types and changes are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )


def reject_unused(
    section: Section, name: str, choice: str, chosen: str, users: Mapping[str, Set[str]]
) -> None:
    """ValueError for a setting that differs from its default and would do nothing.

    `choice` is the setting that decides and `chosen` what it comes to, `users` the other settings
    with the choices that use them, `name` the section's.
    """
    for setting, choices in users.items():
        default = type(section).model_fields[setting].default
        if chosen in choices or getattr(section, setting) == default:
            continue
        neutral, remedy = "null" if default is None else default, " or ".join(sorted(choices))
        raise ValueError(
            f"{name}.{setting} does nothing with {name}.{choice} {chosen}: set {name}.{setting} to "
            f"{neutral}, or {name}.{choice} to {remedy}"
        )


def reject_changed(section: Section, name: str, reason: str, remedy: str) -> None:
    """ValueError for a setting that differs from its default and does nothing with `reason`.

    `name` is dotted; `remedy` says what to set instead of taking the setting back.
    """
    leaf = name.rpartition(".")[2]
    default = type(section).model_fields[leaf].default
    if getattr(section, leaf) != default:
        neutral = "null" if default is None else default
        raise ValueError(f"{name} does nothing with {reason}: set {name} to {neutral}, or {remedy}")


def one_process_alone_sees(url: str) -> str:
    """Refuse a url whose files no other process would find."""
    if url.startswith("memory:"):
        raise ValueError("files in memory are seen by one process alone: give a folder or a store")
    return url


def check_set_name(name: str) -> str:
    """Refuse what cannot be a part of the name of a metric, or is one already."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name in ("accuracy", "pass_at_k", "samples"):
        raise ValueError(
            f"the name {name} must be of letters, digits and _ . - and none of accuracy, "
            "pass_at_k and samples"
        )
    return name


def require_integer(value: object) -> object:
    """Refuse what only equals an integer: a Literal compares, so that true and 1.0 would be 1."""
    if type(value) is not int:
        raise ValueError("must be an integer")
    return value


def resolve_estimator_alias(value: object) -> object:
    """Give `grpo` the name that says what it does, `group_norm`; leave all else alone."""
    return "group_norm" if value == "grpo" else value
