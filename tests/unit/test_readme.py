"""What the README says of the code is so."""

import re
from pathlib import Path

import pytest
from readme import README, ROOT

from lightrft_ray.config.load import load_config
from lightrft_ray.config.load_serve_reward import load_serve_config
from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.config.settings import find_setting
from lightrft_ray.observe.names import glossary
from lightrft_ray.rewards.functions import READY_MADE
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.recipes import check_names
from lightrft_ray.rewards.scoring import RewardInputs


def test_the_glossary_of_metrics_is_the_one_in_the_code() -> None:
    """To renew it, put `lightrft_ray.observe.names.glossary()` in its place."""
    assert glossary() in README


def test_the_reward_of_the_readme_scores(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```python\n(# my_reward\.py.*?)```", README, re.DOTALL)
    (tmp_path / "my_reward.py").write_text(snippet)
    scorer = load_reward(str(tmp_path / "my_reward.py"))
    inputs = RewardInputs(["a", "b"], ["it is 3", "none"], ["3", "4"], ["", ""])
    assert scorer.score(inputs).values == [1.0, 0.0]


def test_named_files_exist() -> None:
    for path in re.findall(
        r"(?:launch|lightrft_ray|benchmarks|tests)/[\w/.-]+\.(?:py|yaml|png)", README
    ):
        assert (ROOT / path).is_file(), path


def test_the_recipes_of_the_readme_are_a_configuration(tmp_path: Path) -> None:
    (recipes,) = re.findall(r"```yaml\n(reward:\n  recipes:.*?)```", README, re.DOTALL)
    (tmp_path / "run.yaml").write_text(recipes)
    config = load_config(tmp_path / "run.yaml", [])
    check_names(config.reward)


def test_all_ready_made_rewards_are_named() -> None:
    for name in READY_MADE:
        assert f"`{name}`" in README, name


def test_the_reward_server_of_the_readme_is_a_configuration(tmp_path: Path) -> None:
    (server,) = re.findall(r"```yaml\n(# reward_server\.yaml.*?)```", README, re.DOTALL)
    (tmp_path / "server.yaml").write_text(server)
    assert load_serve_config(tmp_path / "server.yaml").reward.processes == 4


def test_settings_of_reward_services_exist() -> None:
    named = set(re.findall(r"\bremote_[a-z_]+", README))
    assert named and named <= RemoteRewardConfig.model_fields.keys()


def _algorithm_settings() -> list[tuple[str, str]]:
    """Settings in the table from paper to setting, each with its value or an empty string.

    A name alone that is no setting is one more value of the setting before it.
    """
    _, _, section = README.partition("| paper | settings")
    pairs: list[tuple[str, str]] = []
    for row in section.partition("\n\n")[0].splitlines()[2:]:
        for name, value in re.findall(r"`([\w.]+)(?:: ([\w-]+))?`", row):
            is_value = find_setting(name) is None and not value
            pairs.append((pairs[-1][0], name) if is_value else (name, value))
    return pairs


def test_the_table_of_papers_names_settings_that_exist() -> None:
    for name, value in _algorithm_settings():
        setting = find_setting(name)
        assert setting is not None, name
        in_section = "." in name or setting.section == "algorithm"
        assert in_section, f"{name} is no setting of algorithm"
        assert not value or value in setting.type_label.split("|"), f"{name}: {value}"


@pytest.mark.parametrize(
    "name",
    [
        "advantage_estimator",
        "policy_loss",
        "loss_aggregation",
        "off_policy_correction",
        "reward.length_shaping",
        "data.prompt_sampling",
    ],
)
def test_the_table_of_papers_leaves_no_choice_out(name: str) -> None:
    setting = find_setting(name)
    assert setting is not None
    named = {value for each, value in _algorithm_settings() if each == name}
    assert named == set(setting.type_label.split("|")) - {"none", "null", "uniform"}


def test_the_data_of_the_readme_are_a_configuration(tmp_path: Path) -> None:
    (settings,) = re.findall(r"```yaml\n(data:\n.*?)```", README, re.DOTALL)
    (tmp_path / "run.yaml").write_text(settings)
    config = load_config(tmp_path / "run.yaml", [])
    assert config.data.prompt_weights == [0.3, 0.7]
