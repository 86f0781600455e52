"""Every configuration that comes with the project is a valid one."""

from pathlib import Path

import pytest

from lightrft_ray.config.load import load_config

FOLDER = Path(__file__).parents[3] / "launch" / "configs"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_loads(path: Path) -> None:
    assert load_config(path, []).output_dir == f"runs/{path.stem}"


def test_there_are_some() -> None:
    assert {"grpo_digits", "ppo_digits"} <= {path.stem for path in FOLDER.glob("*.yaml")}
