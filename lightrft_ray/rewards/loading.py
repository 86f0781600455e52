"""Finding the reward function that a run names."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from lightrft_ray.config.errors import UserError
from lightrft_ray.rewards.functions import READY_MADE, RewardFunction
from lightrft_ray.rewards.scoring import RewardScorer

_FUNCTION_IN_FILE = "reward_func"


def load_reward(
    name: str,
    arguments: Mapping[str, object] | None = None,
    setting: str = "reward.reward_fn",
) -> RewardScorer:
    """The scorer for a ready-made name, a ``.py`` file with `reward_func`, or a dotted name.

    `arguments` are values for parameters of the function's own; `setting` is where the run names
    it. Raises UserError that says what is missing.
    """
    if name in READY_MADE:
        return RewardScorer(READY_MADE[name], name, arguments, setting)
    where = f"{setting} {name}"
    function = _from_file(Path(name), where) if name.endswith(".py") else _from_module(name, where)
    if not callable(function):
        raise UserError(f"{where}: that is no function")
    return RewardScorer(function, name, arguments, setting)


def _from_file(path: Path, where: str) -> RewardFunction:
    if not path.is_file():
        raise UserError(f"{where}: no such file")
    spec = importlib.util.spec_from_file_location(f"reward_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{where}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's file: anything may come, and is reported
        raise UserError(f"{where}: {type(error).__name__}: {error}") from error
    if not hasattr(module, _FUNCTION_IN_FILE):
        raise UserError(f"{where}: it defines no function {_FUNCTION_IN_FILE}")
    return getattr(module, _FUNCTION_IN_FILE)


def _from_module(name: str, where: str) -> RewardFunction:
    module_name, _, attribute = name.rpartition(".")
    if not module_name or name.startswith("."):
        known = ", ".join(READY_MADE)
        raise UserError(
            f"{where}: not ready-made ({known}); "
            "give one of those, a path/to/file.py, or package.module.function"
        )
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # a user's module: anything may come, and is reported
        raise UserError(f"{where}: {type(error).__name__}: {error}") from error
