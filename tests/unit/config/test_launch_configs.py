"""Every configuration that comes with the project is a valid one."""

from pathlib import Path

import pytest

from lightrft_ray.config.advice import warnings
from lightrft_ray.config.load import load_config

FOLDER = Path(__file__).parents[3] / "launch" / "configs"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_loads(path: Path) -> None:
    assert load_config(path, []).output_dir == f"runs/{path.stem}"


RECIPES = ("grpo", "dapo", "dr_grpo", "gspo", "rloo", "reinforce_plus_plus", "ppo_vapo", "cpgd")


@pytest.mark.parametrize(
    "name", ["digits_grpo", "digits_ppo", *(f"{recipe}_digits" for recipe in RECIPES)]
)
def test_each_recipe_is_there_for_the_digits(name: str) -> None:
    config = load_config(FOLDER / f"{name}.yaml", [])
    assert config.data.prompt_data == "embedded:digits"
    assert warnings(config) == []


@pytest.mark.parametrize("task", ["easy-vqa", "digit-comparison", "digit-video", "arithmetic"])
def test_each_embedded_task_has_a_configuration(task: str) -> None:
    config = load_config(FOLDER / f"{task.replace('-', '_')}.yaml", [])
    assert config.data.prompt_data == f"embedded:{task}"
    assert warnings(config) == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_is_there_for_gpus(recipe: str) -> None:
    """On one node or two of 8 GPUs, without a doubtful combination of settings."""
    config = load_config(FOLDER / f"{recipe}_qwen2_5_vl_7b.yaml", [])
    roles = [config.learner_ranks, config.rollout.vllm_num_engines]
    roles += [config.critic_ranks] if config.uses_critic else []
    roles += [config.placement.ref_num_gpus_per_node] if config.uses_reference else []
    assert sum(roles) in (8, 16)
    assert config.model.dtype == "bfloat16"
    assert warnings(config) == []
