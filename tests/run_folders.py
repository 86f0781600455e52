"""Folders as runs leave them, made up in a moment: metrics, samples with pictures, a timeline."""

import hashlib
import io
import json
import math
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

RULES = ("best", "worst", "random", "failed")
WORDS = re.findall(
    r"\S+", "I look at the picture : a round stroke , then a line down , so a digit ."
)
CONFIG = """\
algorithm: {{advantage_estimator: {estimator}, policy_loss: ppo, init_kl_coef: 0.01}}
trainer: {{num_steps: {steps}, seed: 1}}
rollout: {{n_samples_per_prompt: 8, temperature: 1.0}}
data: {{prompt_data: null}}
"""


def write_run(
    folder: Path,
    steps: int = 60,
    samples: int = 8,
    *,
    tokens: int = 24,
    every: int = 1,
    seed: int = 0,
    estimator: str = "group_norm",
    finished: bool = True,
    change: Callable[[dict[str, Any]], None] = lambda sample: None,
) -> Path:
    """Make a run of `steps` steps with `samples` samples at every `every`-th; returns `folder`.

    `change` may alter each sample before it is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    (folder / "config.yaml").write_text(CONFIG.format(estimator=estimator, steps=steps))
    (folder / "run.json").write_text('{"run_id": "r1", "started": "2026-03-01 09:30:00"}')
    records = [metrics_of(step, steps, draw) for step in range(steps + 1)]
    write_lines(folder / "metrics.jsonl", records)
    write_lines(folder / "timeline.jsonl", [spans_of(step, draw) for step in range(1, steps + 1)])
    images = [write_digit(folder / "trajectories" / "images", digit) for digit in range(10)]
    for step in range(every, steps + 1, every):
        rows = [
            sample_of(step, place, share=step / steps, count=tokens, images=images, draw=draw)
            for place in range(samples)
        ]
        for row in rows:
            change(row)
        write_lines(folder / "trajectories" / f"step_{step:06d}.jsonl", rows)
    if finished:
        (folder / "summary.json").write_text(json.dumps(summary_of(records)))
    return folder


def write_long_run(folder: Path, steps: int = 2000, samples: int = 20) -> int:
    """Make a run whose samples take 50 MB and more, quickly: each step has those of the first.

    Returns the bytes of the samples.
    """
    write_run(folder, steps, samples, tokens=7, every=steps)
    trajectories = folder / "trajectories"
    text = (trajectories / f"step_{steps:06d}.jsonl").read_text()
    for step in range(1, steps + 1):
        of_step = text.replace(f'"step": {steps},', f'"step": {step},')
        (trajectories / f"step_{step:06d}.jsonl").write_text(of_step)
    return sum(path.stat().st_size for path in trajectories.glob("*.jsonl"))


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_digit(folder: Path, digit: int) -> str:
    """Draw a digit as PNG; returns its path as samples name it."""
    folder.mkdir(parents=True, exist_ok=True)
    image = Image.new("L", (56, 56), 20)
    ImageDraw.Draw(image).text((17, 4), str(digit), fill=235, font_size=40)
    content = io.BytesIO()
    image.save(content, "PNG")
    name = f"{hashlib.sha256(content.getvalue()).hexdigest()}.png"
    (folder / name).write_bytes(content.getvalue())
    return f"images/{name}"


def metrics_of(step: int, steps: int, draw: random.Random) -> dict[str, float]:
    """The record of a step of a run that learns."""
    share = step / steps
    learned = 0.2 + 0.65 / (1 + math.exp(-8 * (share - 0.4)))
    record: dict[str, float] = {"step": step}
    if step % 10 == 0:
        record |= {"eval/accuracy": learned + draw.gauss(0, 0.01), "eval/samples": 400}
    record["memory/driver_mb"] = 700 + draw.random()
    if step == 0:
        return record | {"publish/version": 0, "time/eval": 1.9, "time/step": 2.2}
    times = {"generate": 0.36, "score": 0.02, "train": 0.66, "publish": 0.06}
    spent = {f"time/{phase}": time * draw.uniform(0.9, 1.2) for phase, time in times.items()}
    return (
        record
        | spent
        | {
            "samples": 512 * step,
            "tokens": 1024 + draw.randrange(60),
            "rollout/response_length_mean": 2 + 20 * share + draw.gauss(0, 0.4),
            "rollout/truncated_fraction": max(0.0, 0.1 * share - 0.02),
            "rollout/log_prob_gap_max": abs(draw.gauss(0, 1e-6)),
            "reward/mean": learned + draw.gauss(0, 0.05),
            "reward/std": 0.4 - 0.2 * share,
            "reward/failed": float(step % 40 == 7),
            "advantage/std": 0.8 + draw.gauss(0, 0.01),
            "policy/loss": draw.gauss(0, 0.01),
            "policy/entropy": 1.8 * math.exp(-2 * share) + draw.gauss(0, 0.03),
            "policy/grad_norm": 0.5 + abs(draw.gauss(0, 0.3)),
            "policy/learning_rate": 5e-4 * min(1.0, step / 10),
            "kl/reference_mean": 0.3 * share + abs(draw.gauss(0, 0.01)),
            "publish/version": step,
            "publish/canary_max_abs_diff": abs(draw.gauss(0, 3e-6)),
            "data/taken": 32 * step,
            "data/trained": 32 * step,
            "time/step": sum(spent.values()),
            "speed/samples_per_second": 440 + draw.gauss(0, 20),
            "speed/tokens_per_second": 900 + draw.gauss(0, 40),
            "memory/generator_mb": 3900 + draw.random(),
            "memory/learner_mb": 800 + draw.random(),
        }
    )


def spans_of(step: int, draw: random.Random) -> dict[str, Any]:
    """Two generators that run ahead of a learner, and the driver."""
    start = 1.2 * step
    spans = [
        {
            "who": f"generator/{each}",
            "phase": "generate",
            "start": start,
            "end": start + 0.3 + 0.2 * draw.random(),
        }
        for each in range(2)
    ]
    spans += [
        {"who": "reward/0", "phase": "score", "start": start + 0.5, "end": start + 0.56},
        {"who": "driver", "phase": "assemble", "start": start + 0.56, "end": start + 0.58},
        {"who": "learner/0", "phase": "train", "start": start + 0.58, "end": start + 1.1},
        {"who": "learner/0", "phase": "publish", "start": start + 1.1, "end": start + 1.17},
    ]
    return {"step": step, "spans": spans}


def sample_of(
    step: int, place: int, *, share: float, count: int, images: list[str], draw: random.Random
) -> dict[str, Any]:
    """One sample, of a model that is surer and more often right late in the run."""
    digit = draw.randrange(10)
    failed = RULES[place % 4] == "failed"
    right = draw.random() < 0.2 + 0.7 * share
    texts = [f" {draw.choice(WORDS)}" for _ in range(count - 1)]
    texts.append(str(digit if right else (digit + 1) % 10))
    rollout = [-abs(draw.gauss(0, 0.8)) for _ in texts]
    return {
        "step": step,
        "prompt_id": f"digits-{draw.randrange(1000):04d}",
        "epoch": step // 30,
        "sample_index": place,
        "rules": [RULES[place % 4]],
        "prompt": [
            {"type": "image", "file": images[digit]},
            {"type": "text", "text": "Which digit is this? Answer with the digit alone."},
        ],
        "response": "".join(texts),
        "tokens": token_values(texts, rollout, step, draw),
        "reward": None if failed else float(right),
        "reward_components": {} if failed else {"accuracy": float(right), "short": 0.5},
        "reference": str(digit),
        "label": None,
        "finish_reason": "length" if draw.random() < 0.15 else "stop",
    }


def token_values(
    texts: list[str], rollout: list[float], step: int, draw: random.Random
) -> Mapping[str, list[Any]]:
    """The values that each token has."""
    half = len(texts) // 2
    return {
        "text": texts,
        "id": [draw.randrange(150_000) for _ in texts],
        "rollout_log_prob": rollout,
        "learner_log_prob": [value + draw.gauss(0, 0.02) for value in rollout],
        "reference_log_prob": [value - abs(draw.gauss(0, 0.3)) for value in rollout],
        "entropy": [abs(draw.gauss(0.6, 0.5)) for _ in texts],
        "advantage": [draw.gauss(0, 1) for _ in texts],
        "weight_version": [max(step - 1, 0)] * half + [step] * (len(texts) - half),
    }


def summary_of(records: list[dict[str, float]]) -> dict[str, Any]:
    """What a run says at its end, as far as the page shows it."""
    return {
        "algorithm": "group_norm",
        "steps": len(records) - 1,
        "seconds_total": sum(record["time/step"] for record in records) + 30,
        "prompts": {"taken": 32 * (len(records) - 1), "failed": 0, "in_flight": 0},
    }
