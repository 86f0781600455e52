"""YAML scalars of the core schema, duplicate keys, and text that reads back as it was."""

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrft_ray.config.yaml_text import format_scalar, format_yaml, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("5E3", 5000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", math.inf),
        ("-7", -7),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("[0.9, 0.95]", [0.9, 0.95]),
        ("{a: 1}", {"a": 1}),
        ("'1'", "1"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("text", ["off", "yes", "1:30", "1_000", "0123", "0x1f", "2024-01-01", "="])
def test_yaml_1_1_specials_are_text(text: str) -> None:
    assert parse_yaml(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2",
        "{a: {b: 1, b: 2}}",
        "? [1]\n: 2",
        "[0.9",
        "a: b: c",
        "!!int yes",
        "--- 1\n--- 2",
        "a: !!python/object:os.system 1",
        "9" * 5000,
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        parse_yaml(text)


def test_a_duplicate_key_is_named_with_its_line() -> None:
    with pytest.raises(yaml.MarkedYAMLError, match=r"(?s)'a' comes twice.*line 3"):
        parse_yaml("a: 1\nb: 2\na: 3")


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.sampled_from(["1e5", "off", "null", "~", "0123", "1:30", "", " ", "#", "- a", "a: b"])
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.from_regex("[a-z_]{1,8}", fullmatch=True), _LEAVES | st.lists(_LEAVES)))
def test_text_reads_back_here_and_by_yaml_1_1(values: dict[str, object]) -> None:
    text = format_yaml(values)
    assert parse_yaml(text) == values
    assert yaml.safe_load(text) == values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (5e-4, "0.0005"),
        ("four", "four"),
        ("4", "'4'"),
        ([0.9, 0.95], "[0.9, 0.95]"),
        ({"a": [1, None]}, "{a: [1, null]}"),
        ("word " * 40, "'" + "word " * 40 + "'"),
    ],
)
def test_format_scalar_is_one_line(value: object, text: str) -> None:
    assert format_scalar(value) == text
