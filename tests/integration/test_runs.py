"""Whole runs from the command line, on the real vLLM, DeepSpeed and Ray."""

import json
import math
import signal
import time
from pathlib import Path

import pytest
import yaml
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from lightrft_ray.config.load import load_config
from lightrft_ray.data.embedded import resolve_embedded
from tests.integration.launching import (
    assert_all_gone,
    called,
    descendants,
    interrupt,
    launch,
    left_behind,
    metrics,
    read_until,
    start,
)
from tests.readme import demo, documented

SUMMARY_KEYS = {
    "algorithm",
    "steps",
    "samples",
    "eval_accuracy_before",
    "eval_accuracy_after",
    "reward_first",
    "reward_last",
    "seconds_total",
    "seconds_by_phase",
    "samples_per_second",
    "tokens_per_second",
    "weight_version",
    "canary_max_abs_logprob_diff",
    "peak_rss_mb_by_role",
    "observe_fraction",
}


@pytest.fixture(scope="module")
def grpo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the demo, with trackers."""
    folder = tmp_path_factory.mktemp("grpo") / "run"
    before = left_behind()
    tracked = documented(
        "launch/ppo_vl.py --use_wandb true --wandb_project digits --wandb_mode offline "
        "--use_mlflow true --mlflow_experiment digits --use_prometheus true"
    )
    result = launch(folder, *demo(), *tracked[1:], max_epochs=1)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "goes on without" not in result.stdout  # as it would of a tracker that failed
    assert "held-out accuracy" in result.stdout
    assert left_behind() <= before
    return folder


def test_a_run_leaves_what_it_promises(grpo: Path) -> None:
    assert {path.name for path in grpo.iterdir()} == {
        "config.yaml",
        "metrics.jsonl",
        "summary.json",
        "curves.png",
        "report.html",
        "tensorboard",
        "hf_checkpoint",
        "checkpoints",
        "run.json",
        "log.jsonl",
        "timeline.jsonl",
        "trajectories",
        "wandb",
        "mlflow",
    }
    assert load_config(grpo / "config.yaml", []).trainer.num_steps == 3
    summary = json.loads((grpo / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["steps"] == 3
    assert summary["weight_version"] == 3
    assert summary["samples"] == 3 * 32
    assert summary["peak_rss_mb_by_role"].keys() == {"driver", "generator", "learner", "reward"}
    assert list((grpo / "tensorboard").iterdir())


def test_samples_of_steps_are_kept_token_by_token_with_their_images(grpo: Path) -> None:
    folder = grpo / "trajectories"
    assert sorted(path.name for path in folder.glob("*.jsonl")) == [
        "step_000001.jsonl",
        "step_000003.jsonl",
    ]
    lines = (folder / "step_000001.jsonl").read_text(encoding="utf-8").split("\n")
    samples = [json.loads(line) for line in lines if line]
    assert {rule for sample in samples for rule in sample["rules"]} == {"best", "worst", "random"}
    assert len(samples) <= 6
    for sample in samples:
        tokens = sample["tokens"]
        length = len(tokens["id"])
        assert {len(tokens[name]) for name in ("text", "entropy", "advantage")} == {length}
        assert tokens["weight_version"] == [0] * length
        # The learner, asked before its updates, is the policy that was sampled from.
        assert tokens["learner_log_prob"] == pytest.approx(tokens["rollout_log_prob"], abs=1e-4)
        assert min(tokens["entropy"]) > 0
        assert tokens["reference_log_prob"] is None
        (image,) = [part for part in sample["prompt"] if part["type"] == "image"]
        with Image.open(folder / image["file"]) as picture:
            assert picture.format == "PNG"


def test_the_timeline_tells_who_was_busy(grpo: Path) -> None:
    steps = [json.loads(line) for line in (grpo / "timeline.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [0, 1, 2, 3]
    seen = {(span["who"], span["phase"]) for span in steps[2]["spans"]}
    assert seen >= {
        ("driver", "generate"),
        ("driver", "train"),
        ("generator/0", "generate"),
        ("generator/0", "publish"),
        ("learner/0", "train"),
        ("reward/0", "score"),
    }
    last = json.loads((grpo / "metrics.jsonl").read_text().splitlines()[-1])
    for role in ("generator", "learner", "reward"):
        assert 0 < last[f"busy/{role}"] < 1
    assert last["busy/generator"] + last["busy/learner"] > 0.5


def test_driver_and_trackers_know_the_run_by_one_id(grpo: Path) -> None:
    run_id = json.loads((grpo / "run.json").read_text())["run_id"]
    entries = [json.loads(line) for line in (grpo / "log.jsonl").read_text().splitlines()]
    assert {entry["run_id"] for entry in entries} == {run_id}
    assert [entry["step"] for entry in entries if entry["message"] == "step"] == [0, 1, 2, 3]
    assert list(grpo.glob(f"wandb/offline-run-*/run-{run_id}.wandb"))
    (tag,) = grpo.glob("mlflow/*/*/tags/lightrft.run_id")
    assert tag.read_text() == run_id


def test_every_publish_passes_the_canary(grpo: Path) -> None:
    differences = [record["publish/canary_max_abs_diff"] for record in metrics(grpo)]
    assert len(differences) == 4
    assert max(differences) <= 1e-4


def test_prompts_are_accounted_for(grpo: Path) -> None:
    for record in metrics(grpo):
        parts = ("trained", "filtered", "in_flight", "failed")
        assert record["data/taken"] == sum(record[f"data/{part}"] for part in parts)
    assert metrics(grpo)[-1]["data/trained"] == 24


def test_rollout_and_learner_agree_on_what_was_sampled(grpo: Path) -> None:
    gaps = [record["rollout/log_prob_gap_max"] for record in metrics(grpo)[1:]]
    assert max(gaps) < 1e-4


def test_the_checkpoint_is_the_trained_policy_with_processor(grpo: Path) -> None:
    checkpoint = grpo / "hf_checkpoint"
    trained = AutoModelForImageTextToText.from_pretrained(checkpoint).state_dict()
    first = load_config(grpo / "config.yaml", []).model.pretrain
    assert first == "embedded:tiny-qwen2.5-vl"
    processor = AutoProcessor.from_pretrained(checkpoint)
    assert processor.chat_template
    assert processor.tokenizer("7")["input_ids"]
    assert all(tensor.isfinite().all() for tensor in trained.values())


def test_the_same_seed_gives_the_same_metrics(grpo: Path, tmp_path: Path) -> None:
    settings = (grpo / "config.yaml").read_text()
    (tmp_path / "my.yaml").write_text(settings.replace("overwrite_output: true\n", ""))
    words = documented("launch/ppo_vl.py --config my.yaml --resume auto")
    result = launch(tmp_path / "again", *words, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert metrics(tmp_path / "again") == metrics(grpo)


def test_a_checkpoint_is_evaluated_as_the_run_did(grpo: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(grpo)
    words = documented("launch/ppo_vl.py --resume runs/demo --eval_only true")
    result = launch(tmp_path / "evaluated", *words, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    evaluated = json.loads((tmp_path / "evaluated" / "evaluation.json").read_text())
    last = metrics(grpo)[-1]
    assert evaluated.keys() == {"step", "eval/accuracy", "eval/samples"}
    assert evaluated == {name: last[name] for name in evaluated}


def test_ppo_trains_a_critic_and_pays_for_kl(tmp_path: Path) -> None:
    """With demonstrations, one of them unusable, and an average of the weights."""
    digits = resolve_embedded("embedded:digits")
    taught = [json.loads(row) for row in (digits / "train.jsonl").read_text().splitlines()[:36]]
    taught[7] |= {"id": "bad", "images": ["none.png"]}
    (tmp_path / "taught.jsonl").write_text("".join(json.dumps(row) + "\n" for row in taught))
    result = launch(
        tmp_path / "ppo",
        *documented("launch/ppo_vl.py --config launch/configs/digits_ppo.yaml"),
        pretrain_data=tmp_path / "taught.jsonl",
        image_root=digits,
        output_key="reference",
        ptx_coef=1.0,
        ptx_batch_size=6,
        enable_ema="true",
        ema_beta=0.5,
        eval_ema="true",
        max_bad_fraction=0.2,
        advantage_estimator="gae",
        init_kl_coef=0.05,
        kl_estimator="k1",
        use_kl_loss="false",
        old_log_probs="learner",
        max_epochs=2,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    records = metrics(tmp_path / "ppo")[1:]
    assert records[0]["kl/reference_mean"] == pytest.approx(0, abs=1e-5)
    assert records[-1]["kl/reference_mean"] != pytest.approx(0, abs=1e-7)
    for record in records:
        assert all(math.isfinite(value) for value in record.values())
        assert record["value/loss"] > 0
        assert record["policy/ptx_loss"] > 0
        assert record["policy/loss"] > record["policy/ptx_loss"] / 2
        assert record["advantage/std"] == pytest.approx(1, abs=1e-3)
        assert record["rollout/log_prob_gap_max"] < 1e-4
    # The average and what it was swapped with, before and after the run.
    assert records[-1]["publish/version"] == 3 + 2 * 2
    averaged = AutoModelForImageTextToText.from_pretrained(tmp_path / "ppo" / "hf_checkpoint")
    assert all(tensor.isfinite().all() for tensor in averaged.state_dict().values())
    summary = json.loads((tmp_path / "ppo" / "summary.json").read_text())
    assert summary["algorithm"] == "gae"
    assert summary["peak_rss_mb_by_role"].keys() >= {"critic", "reference"}


@pytest.mark.slow
def test_selection_and_correction_work_together(tmp_path: Path) -> None:
    """Dynamic sampling, best-of-n, high-entropy tokens, shaping and an off-policy correction."""
    result = launch(
        tmp_path / "run",
        policy_loss="cispo",
        loss_aggregation="seq-mean-token-sum-norm",
        old_log_probs="learner",
        off_policy_correction="token_mask",
        entropy_coef=0.01,
        high_entropy_token_ratio=0.5,
        best_of_n=6,
        dynamic_sampling="true",
        dynamic_sampling_max_batches=2,
        overlong_buffer_len=4,
        reward_clip_range="[-1, 1]",
        mask_truncated="true",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for record in metrics(tmp_path / "run")[1:]:
        assert all(math.isfinite(value) for value in record.values())
        assert 1 <= record["rollout/batches_drawn"] <= 2
        assert record["rollout/log_prob_gap_max"] < 1e-4
        assert record["rollout/corrected_fraction"] == 0
        assert record["reward/clipped_fraction"] == 0
        assert record["data/in_flight"] == 0
    assert record["data/taken"] == record["data/trained"] + record["data/filtered"]


@pytest.mark.long
def test_a_critic_is_warmed_up_alone(tmp_path: Path) -> None:
    result = launch(
        tmp_path / "run",
        advantage_estimator="gae",
        lambd_value=0.9,
        length_adaptive_alpha=5.0,
        critic_warmup_steps=2,
        init_kl_coef=0.05,
        kl_target=0.001,
        kl_horizon=100,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "warning: algorithm.kl_estimator k3 in the loss" in result.stdout
    first, second, third = metrics(tmp_path / "run")[1:]
    assert "policy/loss" not in first and "policy/loss" not in second
    assert math.isfinite(third["policy/loss"])
    assert all("value/loss" in record for record in (first, second, third))
    assert first["kl/coef"] == 0.05 and third["kl/coef"] < 0.05  # the KL is 0, below its target


def test_a_run_can_be_interrupted_and_leaves_no_process(tmp_path: Path) -> None:
    """By Ctrl-C, while generation runs ahead; a stopped job shows the same for SIGTERM."""
    words = documented("launch/ppo_vl.py --max_staleness 2 --old_log_probs learner")
    process = start(tmp_path / "run", *words, num_steps=500, progress="plain")
    read_until(process, "step 1/500")
    family = descendants(process)
    assert len(family) > 5
    status, output = interrupt(process)
    assert status == 130, output
    assert "Traceback" not in output
    assert_all_gone(family)
    last = metrics(tmp_path / "run")[-1]["step"]
    assert f"saved after step {last}" in output
    assert (tmp_path / "run" / "checkpoints" / f"step_{last}" / "manifest.json").exists()


def test_a_worker_that_dies_ends_the_run_with_its_name_and_no_process(tmp_path: Path) -> None:
    process = start(tmp_path / "run", num_steps=500, progress="plain", max_restarts=0)
    read_until(process, "step 1/500")
    family = descendants(process)
    (learner,) = called(family, "PolicyLearner")
    learner.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    assert "error: the learner worker" in output
    assert "Traceback" not in output
    assert_all_gone(family)


REWARD_THAT_FAILS_ON_SOME = """
def reward_func(responses, references):
    pairs = zip(responses, references)
    return [None if answer in "4567" else float(answer == right) for answer, right in pairs]
"""
UNUSABLE = """
data:
  prompt_data: {folder}/train.jsonl
  image_root: {digits}
  max_bad_fraction: 0.2
  prompt_sampling: difficulty
rollout: {{use_fire: true}}
algorithm: {{old_log_probs: learner}}
reward: {{reward_fn: {folder}/reward.py, max_failed_fraction: 1.0, length_shaping: kimi}}
"""


def test_unusable_prompts_and_failed_rewards_are_counted_and_never_made_up(
    tmp_path: Path,
) -> None:
    """Also where prompts are taken by difficulty, first tokens are hot and lengths count."""
    digits = resolve_embedded("embedded:digits")
    rows = (digits / "train.jsonl").read_text().splitlines()[:20]
    bad = json.loads(rows[0]) | {"id": "bad", "images": ["images/none.png"]}
    (tmp_path / "train.jsonl").write_text("\n".join([*rows, json.dumps(bad)]) + "\n")
    (tmp_path / "reward.py").write_text(REWARD_THAT_FAILS_ON_SOME)
    (tmp_path / "my.yaml").write_text(UNUSABLE.format(folder=tmp_path, digits=digits))
    words = documented(
        "launch/ppo_vl.py --config my.yaml --trainer.num_steps 200 --n_samples_per_prompt 8"
    )
    result = launch(tmp_path / "run", *words, cwd=tmp_path, n_samples_per_prompt=8)
    assert result.returncode == 0, result.stdout + result.stderr
    records = metrics(tmp_path / "run")[1:]
    last = records[-1]
    assert last["data/failed"] >= 1
    assert last["data/taken"] == last["data/trained"] + last["data/filtered"] + last["data/failed"]
    failed = sum(record["reward/failed"] for record in records)
    assert failed > 0
    assert last["samples"] == 3 * 64 - failed
    kept = (tmp_path / "run" / "trajectories" / "step_000001.jsonl").read_text().splitlines()
    by_rule = [sample for sample in map(json.loads, kept) if "failed" in sample["rules"]]
    assert by_rule and all(sample["reward"] is None for sample in by_rule)
    assert "eval/accuracy" not in last
    assert all(0 <= record["data/pass_rate_mean"] <= 1 for record in records)
    assert all(record["rollout/log_prob_gap_max"] > 0.1 for record in records)
    assert all(record["rollout/correction_weight_mean"] < 2 for record in records)
    assert any(record["reward/length_shaping_mean"] != 0 for record in records)


HANGING_REWARD = "import time\n\ndef reward_func(responses):\n    time.sleep(3600)\n"
FAILING_REWARD = "def reward_func(responses):\n    raise RuntimeError('no such judge')\n"


@pytest.mark.parametrize(
    ("reward", "options", "named"),
    [
        pytest.param(
            HANGING_REWARD,
            {"reward_timeout": 3},
            "not scored within 3 s",
            id="hanging reward",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            FAILING_REWARD,
            {},
            "reward.max_failed_fraction allows (RuntimeError: no such judge",
            id="failing reward",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_stops_a_run_is_said_in_one_error(
    tmp_path: Path, reward: str, options: dict[str, object], named: str
) -> None:
    (tmp_path / "reward.py").write_text(reward)
    options = options | {"reward_fn": tmp_path / "reward.py"}
    start = time.monotonic()
    result = launch(tmp_path / "run", eval_max_samples=1, **options)
    assert result.returncode == 2, result.stdout + result.stderr
    assert named in result.stderr
    assert result.stderr.count("error:") == 1
    assert "Traceback" not in result.stderr
    assert time.monotonic() - start < 150


def test_more_gpus_than_there_are_is_said_within_a_minute(tmp_path: Path) -> None:
    result = launch(tmp_path / "run", actor_num_gpus_per_node=8, micro_train_batch_size=4)
    assert result.returncode == 2, result.stdout + result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    assert "8 GPUs" in line
    assert "the cluster has 0" in line


def test_the_resolved_configuration_runs_again(grpo: Path) -> None:
    text = yaml.safe_load((grpo / "config.yaml").read_text())
    assert text["rollout"]["n_samples_per_prompt"] == 4
