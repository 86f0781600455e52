"""The settings of a run by name: what `--help` lists and what a mistyped name is matched with."""

import difflib
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from lightrft_ray.config.fields import Section
from lightrft_ray.config.run import RunConfig

_TYPE_LABELS: dict[object, str] = {
    bool: "true|false",
    int: "int",
    float: "float",
    str: "str",
    NoneType: "null",
}
_NO_TRUNCATION = (
    "truncated sampling is not supported: the learner could not score the distribution that was "
    "sampled; use temperature"
)
_REFUSED = {leaf: f"rollout.{leaf}: {_NO_TRUNCATION}" for leaf in ("top_p", "top_k")}
_REFUSED["use_kl_in_reward"] = (
    "algorithm.use_kl_in_reward: the KL is in the loss or in the reward and never in both: set "
    "algorithm.use_kl_loss to false for the reward, or to true for the loss"
)


@dataclass(frozen=True)
class Setting:
    """One leaf of the configuration; `section` is empty for those of the top level."""

    section: str
    leaf: str
    field: FieldInfo

    @property
    def key(self) -> str:
        """Dotted name, such as `rollout.temperature`."""
        return f"{self.section}.{self.leaf}" if self.section else self.leaf

    @property
    def type_label(self) -> str:
        """The values it takes, as `--help` shows them."""
        return "|".join(_type_label(kind) for kind in _alternatives(self.field.annotation))

    @property
    def takes_text(self) -> bool:
        """Whether its value on the command line is the text itself, to be read no further."""
        return any(
            isinstance(get_args(kind)[0], str) if get_origin(kind) is Literal else kind is str
            for kind in _alternatives(self.field.annotation)
        )

    @property
    def takes_null(self) -> bool:
        """Whether it may be null."""
        return NoneType in _alternatives(self.field.annotation)

    @property
    def is_switch(self) -> bool:
        """Whether it may stand on the command line without a value, which means true."""
        return bool in _alternatives(self.field.annotation)


def _alternatives(annotation: object) -> list[object]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _alternatives(arguments[0])
    if origin in (Union, UnionType):
        return [kind for argument in arguments for kind in _alternatives(argument)]
    return [annotation]


def _type_label(kind: object) -> str:
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        items = (
            "…" if item is ... else _type_label(_alternatives(item)[0]) for item in get_args(kind)
        )
        return f"[{', '.join(items)}]"
    if get_origin(kind) is list:
        return f"[{_type_label(_alternatives(get_args(kind)[0])[0])}, …]"
    if get_origin(kind) is dict:
        value = _alternatives(get_args(kind)[1])[0]
        return f"{{NAME: {_TYPE_LABELS[value]}}}" if value in _TYPE_LABELS else "{NAME: {...}}"
    if isinstance(kind, type) and issubclass(kind, Section):
        return "settings"
    return _TYPE_LABELS[kind]


@cache
def sections() -> dict[str, type[Section]]:
    """Section name to model, in the order of RunConfig."""
    return {
        name: field.annotation
        for name, field in RunConfig.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting, those of the top level first, then section by section."""
    top = {name: field for name, field in RunConfig.model_fields.items() if name not in sections()}
    fields = {"": top} | {name: model.model_fields for name, model in sections().items()}
    return tuple(
        Setting(section, leaf, field)
        for section, members in fields.items()
        for leaf, field in members.items()
    )


def find_setting(name: str) -> Setting | None:
    """The setting of a dotted name or of a leaf name, None where there is none."""
    return next((one for one in all_settings() if name in (one.key, one.leaf)), None)


def why_refused(name: str) -> str | None:
    """One line on a setting that users know from elsewhere and no run can honour, else None."""
    return _REFUSED.get(_leaf(name))


def nearest_setting(name: str) -> Setting | None:
    """The setting that a mistyped name most likely means, None where none is near.

    In order: the same leaf in another section or with dashes, a leaf that goes on where the name
    ends, and the leaf of the closest spelling.
    """
    leaf = _leaf(name)
    found = find_setting(leaf)
    if found is not None:
        return found
    for setting in all_settings():
        if len(leaf) > 2 and setting.leaf.startswith(leaf):
            return setting
    close = difflib.get_close_matches(leaf, [setting.leaf for setting in all_settings()], n=1)
    return find_setting(close[0]) if close else None


def _leaf(name: str) -> str:
    """The leaf of a name as it may be written elsewhere: with dashes, capitals, a section."""
    return name.replace("-", "_").lower().rpartition(".")[2]
