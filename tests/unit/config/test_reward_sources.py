"""What the settings of several rewards refuse, and what they say of it."""

from pathlib import Path

import pytest

from lightrft_ray.config import RunConfig
from lightrft_ray.config.errors import UserError
from lightrft_ray.config.load import dump_config, load_config

_RECIPES = """
reward:
  recipes:
    default: {exact_match: 1, short: -0.5}
    maths: {boxed_math: 1, prm: 0.25, style: 2}
  functions:
    short: {function: response_length, arguments: {limit: 64}}
  remotes:
    prm: {remote_rm_url: "grpc://a:1,grpc://b:1", remote_deadline: 5}
  models:
    style: {pretrain: some/model, gpus_per_worker: 0.5}
"""


def _load(folder: Path, text: str) -> RunConfig:
    path = folder / "config.yaml"
    path.write_text(text)
    return load_config(path, [])


def test_recipes_are_read_and_written_back(tmp_path: Path) -> None:
    reward = _load(tmp_path, _RECIPES).reward
    assert reward.recipes["maths"] == {"boxed_math": 1, "prm": 0.25, "style": 2}
    assert reward.functions["short"].arguments == {"limit": 64}
    assert reward.remotes["prm"].addresses == ("grpc://a:1", "grpc://b:1")
    config = _load(tmp_path, _RECIPES)
    assert _load(tmp_path, dump_config(config)) == config


def test_a_recipe_on_the_command_line() -> None:
    config = load_config(None, [("recipes", "{default: {exact_match: 1, response_format: 0.1}}")])
    assert config.reward.recipes == {"default": {"exact_match": 1, "response_format": 0.1}}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("recipes: {default: {a: x}}", "default a must be a valid number"),
        ("recipes: {default: [a]}", "default must be a valid dictionary"),
        ("recipes: {default: {}}", "reward.recipes default is empty"),
        ("recipes: {default: {a: 0}}", "the weight 0 of a is of no use"),
        ("recipes: {default: {a: .inf}}", "default a must be a finite number"),
        ("functions: {a: {function: f}}", "reward.functions.a does nothing: give a a weight"),
        ("functions: {a: {functon: f}}", "a function is missing"),
        ("functions: {a: {function: f, x: 1}}", "a x is no setting"),
        ("recipes: {default: {a-b: 1}}", "default a-b"),
        ("recipes: {default: {a: 1}}\n  remotes: {a: {}}", "reward.remotes.a has no address"),
        (
            "recipes: {default: {a: 1}}\n  functions: {a: {function: f}}\n"
            "  models: {a: {pretrain: m}}",
            "reward.models and reward.functions both name a",
        ),
        (
            "recipes: {default: {a: 1}}\n"
            "  remotes: {a: {remote_rm_url: 'grpc://a:1', remote_deadline: 61}}",
            "reward.remotes.a: remote_deadline 61 is beyond reward.reward_timeout 60",
        ),
        ("reward_fn: f.py\n  recipes: {default: {a: 1}}", "f.py does nothing with reward.recipes"),
        (
            "recipes: {default: {a: 1}}\n  models: {a: {pretrain: m, max_images: 1}}",
            "reward.models.max_images does nothing with reward.models.kind scalar_model",
        ),
        (
            "recipes: {default: {a: 1}}\n  models: {a: {pretrain: m, kind: judge}}",
            "a judge needs its question: set template",
        ),
        (
            "recipes: {default: {a: 1}}\n"
            "  models: {a: {pretrain: m, kind: judge, template: x, max_new_tokens: 4096}}",
            "max_new_tokens 4096 leaves the question none of max_model_len 4096",
        ),
        (
            "recipes: {default: {a: 1}}\n  models: {a: {pretrain: m, gpus_per_worker: 1.5}}",
            "gpus_per_worker 1.5: set a whole number",
        ),
    ],
)
def test_contradictions_name_the_settings(tmp_path: Path, settings: str, reason: str) -> None:
    with pytest.raises(UserError, match=r"reward\.") as caught:
        _load(tmp_path, f"reward:\n  {settings}\n")
    assert reason in str(caught.value)
