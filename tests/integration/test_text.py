"""The language-model path: launch/ppo_text.py as a user calls it, and what it leaves."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from lightrft_ray.data.embedded import resolve_embedded
from lightrft_ray.data.processing import PromptEncoder
from lightrft_ray.data.prompts import read_prompts
from lightrft_ray.data.task_files import TaskFiles
from lightrft_ray.models.actor_language import ActorLanguage
from tests.integration.launching import ROOT, metrics, run_program

STEPS = 60

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the embedded default."""
    folder = tmp_path_factory.mktemp("text") / "run"
    options = ["--output_dir", str(folder), "--num_steps", str(STEPS)]
    program = str(ROOT / "launch" / "ppo_text.py")
    result = run_program([sys.executable, program, *options, "--progress", "plain"])
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_it_learns(trained: Path) -> None:
    records = metrics(trained)
    first, last = records[1:6], records[-5:]
    gain = sum(r["reward/mean"] for r in last) / 5 - sum(r["reward/mean"] for r in first) / 5
    assert gain > 0.15
    assert all(record["publish/canary_max_abs_diff"] < 1e-4 for record in records)
    assert records[-1]["data/failed"] == 0


def test_actor_language_answers_as_the_run_evaluated(trained: Path) -> None:
    """The same policy in plain PyTorch is right as often, decoded greedily."""
    actor = ActorLanguage(str(trained / "hf_checkpoint"), bf16=False)
    tokenizer = AutoTokenizer.from_pretrained(trained / "hf_checkpoint")
    encoder = PromptEncoder(tokenizer, None, prompt_max_len=256)
    prompts, _ = read_prompts(TaskFiles(resolve_embedded("embedded:arithmetic")).eval_file)
    right = 0
    for prompt in prompts:
        ids = torch.tensor([encoder.token_ids(prompt)])
        sequences, _, _ = actor.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=4,
            do_sample=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        right += encoder.decode(sequences[0, ids.shape[1] :].tolist()) == prompt.reference
    accuracy = metrics(trained)[-1]["eval/accuracy"]
    assert right / len(prompts) == pytest.approx(accuracy, abs=1.5 / len(prompts))
