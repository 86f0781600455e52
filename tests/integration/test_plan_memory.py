"""What `launch/plan.py` says a CPU run takes, against what its processes take."""

import json
import sys
from pathlib import Path

import pytest

from lightrft_ray.config.load import load_config
from lightrft_ray.driver.plan import make_plan
from tests.integration.launching import ENTRY_POINT, ROOT, run_program

STEPS = 30
WITHIN = 0.15
CONFIGS = ROOT / "launch" / "configs"

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["digits_grpo", "digits_ppo"])
def test_each_role_takes_what_was_planned(name: str, tmp_path: Path) -> None:
    """The second of them has all roles."""
    config = CONFIGS / f"{name}.yaml"
    words = ["--config", str(config), "--output_dir", str(tmp_path / "run"), "--progress", "plain"]
    result = run_program([sys.executable, str(ENTRY_POINT), *words, "--num_steps", str(STEPS)])
    assert result.returncode == 0, result.stdout + result.stderr
    measured = json.loads((tmp_path / "run" / "summary.json").read_text())["peak_rss_mb_by_role"]
    planned = {
        role.role: role.memory.total / 1e6 for role in make_plan(load_config(config, [])).roles
    }
    assert planned == pytest.approx(measured, rel=WITHIN)
