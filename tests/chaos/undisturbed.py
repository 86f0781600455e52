"""The run that all others are held against, and how often these are disturbed."""

import os
from pathlib import Path

from tests.integration.launching import launch, metrics

STEPS = int(os.environ.get("LIGHTRFT_CHAOS_STEPS", "60"))
KILLS = int(os.environ.get("LIGHTRFT_CHAOS_KILLS", "30"))
"""Workers killed or stopped in one run."""
ROUNDS = int(os.environ.get("LIGHTRFT_CHAOS_ROUNDS", "20"))
"""How often the driver is killed, and its run resumed."""
SEED = int(os.environ.get("LIGHTRFT_CHAOS_SEED", "0"))

HEARTBEAT_TIMEOUT = 10.0  # s

# Every kind of worker and of state; steps of half a second on two cores.
OPTIONS = {
    "num_steps": STEPS,
    "save_steps": 2,
    "advantage_estimator": "gae",
    "init_kl_coef": 0.05,
    "kl_estimator": "k1",
    "use_kl_loss": "false",
    "reward_running_norm": "standardize",
    "lr_scheduler": "cosine",
    "train_batch_size": 16,
    "restart_delay": 0.1,
    "heartbeat_timeout": HEARTBEAT_TIMEOUT,
}


def undisturbed(folder: Path) -> Path:
    """A run to its end that nothing happens to."""
    result = launch(folder, **OPTIONS)
    assert result.returncode == 0, result.stdout + result.stderr
    last = metrics(folder)[-1]
    parts = ("trained", "filtered", "failed", "in_flight")
    assert last["data/taken"] == sum(last[f"data/{part}"] for part in parts)
    assert last["data/in_flight"] == 0
    return folder
