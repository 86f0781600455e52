"""What is wrong with rewards is said before a run."""

from pathlib import Path

import pytest

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.driver.reward_checks import check_rewards


def _config(**reward: object) -> RunConfig:
    return RunConfig.model_validate({"reward": reward})


def _judge(**settings: object) -> dict[str, object]:
    return {
        "recipes": {"default": {"judge": 1}},
        "models": {"judge": {"kind": "judge", "template": "{response}", **settings}},
    }


def test_functions_are_loaded_with_their_arguments(tmp_path: Path) -> None:
    functions = {"short": {"function": "response_length", "arguments": {"limit": 4}}}
    check_rewards(_config(recipes={"default": {"short": 1}}, functions=functions))
    functions["short"]["arguments"] = {"limt": 4}
    with pytest.raises(UserError, match=r"reward\.functions\.short .* no argument limt to set"):
        check_rewards(_config(recipes={"default": {"short": 1}}, functions=functions))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"pretrain": "./nowhere"}, r"reward\.models\.judge\.pretrain ./nowhere: no checkpoint"),
        ({"template": "{respons}{response}"}, r"no such field as \{respons\}"),
        ({"verdict_pattern": "no group"}, "has 0 groups: one is the verdict"),
    ],
)
def test_models_are_looked_for_and_judges_questions_read(
    tmp_path: Path, settings: dict[str, object], reason: str
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(UserError, match=reason):
        check_rewards(_config(**_judge(**{"pretrain": str(tmp_path)} | settings)))
    check_rewards(_config(**_judge(pretrain=str(tmp_path))))
