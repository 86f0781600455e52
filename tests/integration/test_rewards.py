"""Rewards of a run from several places: a user's function, a service, a reward model."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lightrft_ray.data.embedded import resolve_embedded
from tests.integration.launching import ROOT, environment, launch, metrics

# A score with a part, and a small reward for each token, which grows along the response.
_FUNCTION = """
def reward_func(responses, references, response_token_ids):
    print("scoring", len(responses))
    return [
        {
            "score": float(response.strip() == reference.strip()),
            "components": {"tokens": len(ids)},
            "token_scores": [0.01 * index for index in range(len(ids))],
        }
        for response, reference, ids in zip(responses, references, response_token_ids)
    ]
"""
_SHORT = {"num_steps": 2, "eval_max_samples": 8, "recipes": "{default: {mine: 1, quality: 0.5}}"}


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a reward function."""
    path = tmp_path_factory.mktemp("function") / "mine.py"
    path.write_text(_FUNCTION)
    return path


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded vision-language model with a scalar head."""
    folder = tmp_path_factory.mktemp("model") / "reward_model"
    shutil.copytree(resolve_embedded("embedded:tiny-qwen2.5-vl"), folder)
    weights = folder / "model.safetensors"
    config = json.loads((folder / "config.json").read_text())
    width = config.get("text_config", config)["hidden_size"]
    head = torch.randn(1, width, generator=torch.Generator().manual_seed(0))
    tensors = load_file(weights) | {"value_head.weight": head}
    save_file(tensors, weights, metadata={"format": "pt"})
    return folder


@contextmanager
def _served(function: Path, folder: Path) -> Iterator[str]:
    """The address of a server of a reward function in a process of its own."""
    config = folder / "serve.yaml"
    config.write_text(f"reward: {{reward_fn: {function}}}\nserver: {{port: 0}}\n")
    command = [sys.executable, str(ROOT / "launch" / "serve_reward.py"), "--config", str(config)]
    variables = environment(PYTHONPATH=str(ROOT))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            yield next(line for line in lines if line.startswith("serving")).split()[-1]
        finally:
            process.terminate()


@pytest.mark.long
def test_a_served_reward_gives_the_run_that_the_same_function_gives_in_process(
    function: Path, reward_model: Path, tmp_path: Path
) -> None:
    models = f"{{quality: {{pretrain: {reward_model}}}}}"
    local = tmp_path / "local"
    functions = f"{{mine: {{function: {function}}}}}"
    result = launch(local, **_SHORT, models=models, functions=functions)
    assert result.returncode == 0, result.stdout + result.stderr
    with _served(function, tmp_path) as address:
        remote = tmp_path / "remote"
        remotes = f"{{mine: {{remote_rm_url: {address}}}}}"
        result = launch(remote, **_SHORT, models=models, remotes=remotes)
    assert result.returncode == 0, result.stdout + result.stderr
    assert metrics(remote) == metrics(local)
    last = metrics(local)[-1]
    parts = {name: last[f"reward/component/{name}"] for name in ("mine", "quality")}
    assert last["reward/mean"] == pytest.approx(parts["mine"] + 0.5 * parts["quality"], abs=1e-5)
    assert last["reward/component/mine/tokens"] > 1
    assert last["reward/failed_fraction/mine"] == last["reward/failed_fraction/quality"] == 0
    # The rewards of tokens reach the advantages, which are the same for all tokens without them.
    assert last["advantage/std"] > 0
