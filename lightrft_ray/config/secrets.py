"""Secrets have no place in a configuration, which a run writes down, nor in any log."""

import os
import re
from collections.abc import Mapping

_MASK = "***"
_SHORTEST_SECRET = 8  # characters: shorter values of variables are words that stand anywhere
_SECRET_VARIABLE = re.compile(r"(?i)(key|token|secret|password|passwd|credentials?)$")
_PASSWORD_IN_ADDRESS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s:@]*:[^/\s@]+@")
_PATTERNS = (
    (_PASSWORD_IN_ADDRESS, rf"\1{_MASK}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {_MASK}"),
    (re.compile(r"\b(?:hf|sk|ghp|gho|glpat|xox[bap])[_-][\w-]{16,}"), _MASK),
    (
        re.compile(
            r"(?i)((?:api[_-]?key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"',&]{4,}"
        ),
        rf"\1{_MASK}",
    ),
)


def redact(text: str, variables: Mapping[str, str] = os.environ) -> str:
    """`text` with *** in the place of secrets.

    Those are the values of environment variables whose names end like that of a secret, passwords
    in addresses, and what looks like a key, token or password.
    """
    for name, value in variables.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_VARIABLE.search(name):
            text = text.replace(value, _MASK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def refuse_key(value: object) -> object:
    """Refuse a text where true or false belongs: in other programs it is the API key itself."""
    if isinstance(value, str):
        raise SecretGivenError(
            "it is true or false, and the API key belongs into the environment variable "
            "WANDB_API_KEY"
        )
    return value


def refuse_password(value: object) -> object:
    """Refuse an address with a password."""
    if isinstance(value, str) and redact(value, {}) != value:
        raise SecretGivenError(
            "a password or token belongs into MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD "
            "or MLFLOW_TRACKING_TOKEN"
        )
    return value


def refuse_passwords(settings: object, name: str = "") -> None:
    """ValueError, which names the setting, for an address with a password in a tree of settings."""
    if isinstance(settings, Mapping):
        for leaf, value in settings.items():
            refuse_passwords(value, f"{name}.{leaf}" if name else str(leaf))
    elif isinstance(settings, list | tuple):
        for item in settings:
            refuse_passwords(item, name)
    elif isinstance(settings, str) and _PASSWORD_IN_ADDRESS.search(settings):
        raise ValueError(
            f"{name} holds a password, and a run writes its settings down: give an address without "
            "one, and the password where the service looks for it, in a variable or file of its own"
        )


class SecretGivenError(ValueError):
    """A setting was given a secret, which the message must not repeat."""
