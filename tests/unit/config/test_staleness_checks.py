"""Settings that contradict asynchronous generation: each error names them and the remedy."""

import pytest
from pydantic import ValidationError

from lightrft_ray.config import RunConfig
from lightrft_ray.config.advice import warnings

Tree = dict[str, dict[str, object]]

LEARNER: dict[str, object] = {"old_log_probs": "learner"}
GAE: dict[str, object] = {"advantage_estimator": "gae"} | LEARNER
REINFORCE: dict[str, object] = {"policy_loss": "reinforce"}
AVERAGE: Tree = {"trainer": {"enable_ema": True}, "evaluation": {"eval_ema": True}}
# Settings that contradict, what the error must hold, and settings with its remedy.
CONTRADICTIONS: dict[str, tuple[Tree, tuple[str, ...], Tree]] = {
    "over age without staleness": (
        {"rollout": {"over_age": "drop"}},
        ("rollout.over_age", "rollout.max_staleness to 1"),
        {"rollout": {"over_age": "drop", "max_staleness": 1}},
    ),
    "a critic": (
        {"rollout": {"max_staleness": 2}, "algorithm": GAE},
        ("rollout.max_staleness to 1 or less", "algorithm.advantage_estimator to group_norm"),
        {"rollout": {"max_staleness": 1}, "algorithm": GAE},
    ),
    "a loss without a ratio": (
        {"rollout": {"max_staleness": 1}, "algorithm": REINFORCE},
        ("algorithm.policy_loss reinforce", "algorithm.old_log_probs to learner"),
        {"rollout": {"max_staleness": 1}, "algorithm": REINFORCE | LEARNER},
    ),
    "dynamic sampling": (
        {"rollout": {"max_staleness": 1, "dynamic_sampling": True}},
        ("rollout.dynamic_sampling", "rollout.max_staleness to 0"),
        {"rollout": {"max_staleness": 0, "dynamic_sampling": True}},
    ),
    "cancelling what goes on": (
        {"rollout": {"max_staleness": 1, "over_sample_rate": 0.25}},
        ("rollout.over_sample_rate to 0", "rollout.max_staleness to 0"),
        {"rollout": {"max_staleness": 0, "over_sample_rate": 0.25}},
    ),
    "other weights for evaluation": (
        {"rollout": {"max_staleness": 1}, **AVERAGE},
        ("evaluation.eval_ema to false", "rollout.max_staleness to 0"),
        AVERAGE,
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_names_its_settings_and_a_remedy_that_works(name: str) -> None:
    wrong, named, right = CONTRADICTIONS[name]
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate(wrong)
    (error,) = caught.value.errors()
    assert all(part in error["msg"] for part in named), error["msg"]
    RunConfig.model_validate(right)


def test_samples_of_older_policies_are_better_weighed_against_the_learners() -> None:
    tree: Tree = {"rollout": {"max_staleness": 2}}
    (line,) = warnings(RunConfig.model_validate(tree))
    assert "algorithm.old_log_probs rollout" in line and "rollout.max_staleness 2" in line
    assert warnings(RunConfig.model_validate(tree | {"algorithm": LEARNER})) == []
