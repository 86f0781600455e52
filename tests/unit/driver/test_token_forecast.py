"""How many tokens a group is expected to have."""

import pytest
from rollouts import rollout_group, sample

from lightrft_ray.driver import token_forecast
from lightrft_ray.driver.token_forecast import TokenForecast


def test_a_prompt_is_expected_to_be_as_long_as_the_last_time_and_a_new_one_as_the_mean() -> None:
    forecast = TokenForecast(longest=80)
    assert forecast.expected("a") == 80
    forecast.note(rollout_group("a", [1, 2], [sample([1, 2, 3]), sample([1])]))
    assert forecast.expected("a") == forecast.expected("new") == 6
    forecast.note(rollout_group("b", [1] * 30, [sample([1] * 40)]))
    assert (forecast.expected("a"), forecast.expected("b")) == (6, 70)
    assert forecast.expected("new") == 8  # 6 + (70 - 6) / 32


def test_of_many_prompts_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_forecast, "_PROMPTS_KEPT", 2)
    forecast = TokenForecast(longest=80)
    for name, length in (("a", 1), ("b", 99), ("a", 1), ("c", 1)):
        forecast.note(rollout_group(name, [1], [sample([1] * length)]))
    assert (forecast.expected("a"), forecast.expected("c")) == (2, 2)
    assert forecast.expected("b") == forecast.expected("new") < 50
