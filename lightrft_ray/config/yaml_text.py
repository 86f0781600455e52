"""YAML with the plain scalars of YAML 1.2's core schema.

PyYAML follows YAML 1.1, in which `1e-5` is a string, `off` is false and `1:30` is 90; a
configuration means none of these. Duplicate keys, which PyYAML drops, are errors here.
"""

import math
import re
from collections.abc import Mapping

import yaml

_PLAIN_SCALARS = (
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+.0123456789"),
    ),
)


class _Loader(yaml.SafeLoader):
    """SafeLoader whose plain scalars are those of the core schema and whose keys are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        mapping: dict[object, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no name", problem_mark=node.start_mark)
            key = self.construct_object(key_node)
            if key in mapping:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} comes twice", problem_mark=key_node.start_mark
                )
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes what either version of YAML would take for more than a string."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Unicode's line breaks survive between double quotes alone, where they are escaped.
    style = '"' if any(mark in text for mark in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)

_Loader.yaml_implicit_resolvers = {}  # none of YAML 1.1's
for _tag, _pattern, _first in _PLAIN_SCALARS:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def parse_yaml(text: str) -> object:
    """Parse one YAML document; yaml.YAMLError for what is not YAML and for duplicate keys."""
    try:
        return yaml.load(text, Loader=_Loader)
    except ValueError as error:  # a scalar that its tag's constructor cannot read
        raise yaml.YAMLError(str(error)) from error


def format_yaml(values: Mapping[str, object]) -> str:
    """Write a mapping in its own order, so that `parse_yaml` gives it back."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def format_scalar(value: object) -> str:
    """Write one value, for a person to read, on one line."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=math.inf
    )
    return " ".join(text.removesuffix("\n...\n").split())
