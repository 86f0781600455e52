"""A GRPO step of the whole system against one process with transformers alone.

Both do 32 prompts × 8 samples of up to 8 tokens of the embedded digits task on the same machine:
sample, reward, one forward and backward pass, one AdamW step. The alternative is what a trainer in
one process does: `generate` of transformers, a padded row for each sample. It keeps no second copy
of the weights, so it has none to publish. The last line is a JSON object.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.data.media import load_images
from lightrft_ray.data.processing import Processor, load_processor
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.run import run
from lightrft_ray.models.loading import ModelSource, load_policy
from lightrft_ray.observe.metrics_log import read_metrics
from lightrft_ray.rewards.ready_made.exact_match import exact_match
from lightrft_ray.trainer.advantages import group_normalized

_WARM_UP = 3  # steps left out: threads, allocators and caches settle


def main() -> None:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(
            None,
            [
                ("num_steps", str(steps)),
                ("output_dir", f"{folder}/run"),
                ("eval_steps", "0"),
                ("eval_max_samples", "1"),
                ("progress", "off"),
            ],
        )
        own = _own_seconds(config)
        plain = _plain_seconds(config, steps)
    figures = {
        "seconds_per_step": statistics.median(own),
        "plain_seconds_per_step": statistics.median(plain),
        "speed_ratio": statistics.median(plain) / statistics.median(own),
        "samples_per_step": config.samples_per_step,
    }
    print(json.dumps(figures))


def _own_seconds(config: RunConfig) -> list[float]:
    """Seconds of the steps after the warm-up, evaluation left out."""
    folder, _ = run(config)
    records = read_metrics(folder.metrics)[1 + _WARM_UP :]
    return [record["time/step"] - record.get("time/eval", 0.0) for record in records]


def _plain_seconds(config: RunConfig, steps: int) -> list[float]:
    resolved = resolve_checkpoints(config)
    inputs = check_inputs(resolved)
    torch.set_num_threads(config.placement.cpu_threads_per_worker)
    trainer = _PlainTrainer(resolved, inputs)
    seconds = []
    for step in range(steps):
        start = time.perf_counter()
        trainer.step(step)
        seconds.append(time.perf_counter() - start)
    return seconds[_WARM_UP:]


class _PlainTrainer:
    """GRPO by transformers in one process."""

    def __init__(self, config: RunConfig, inputs: RunInputs) -> None:
        self._config = config
        self._inputs = inputs
        self._processor: Processor = load_processor(config.model.pretrain)
        self._model = load_policy(ModelSource(config.model.pretrain))
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-6)
        torch.manual_seed(config.seed)

    def step(self, number: int) -> None:
        """One step on the next prompts."""
        rollout = self._config.rollout
        start = number * rollout.rollout_batch_size
        prompts = self._inputs.train_prompts[start : start + rollout.rollout_batch_size]
        repeated = [p for p in prompts for _ in range(rollout.n_samples_per_prompt)]
        inputs = self._encode(repeated)
        with torch.no_grad():
            sequences = self._model.generate(  # type: ignore[operator]
                **inputs, max_new_tokens=rollout.generate_max_len, do_sample=True, top_k=0
            )
        self._learn(inputs, sequences, self._advantages(repeated, inputs, sequences))

    def _encode(self, prompts: list[Prompt]) -> dict[str, Tensor]:
        texts = [
            self._processor.apply_chat_template(
                cast(list[dict[str, str]], list(prompt.messages)),
                add_generation_prompt=True,
                tokenize=False,
            )
            for prompt in prompts
        ]
        images = [image for prompt in prompts for image in load_images(prompt)]
        return dict(self._processor(text=texts, images=images, padding=True, return_tensors="pt"))

    def _advantages(
        self, prompts: list[Prompt], inputs: dict[str, Tensor], sequences: Tensor
    ) -> Tensor:
        texts = self._processor.batch_decode(
            sequences[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        rewards = torch.tensor(exact_match(texts, [prompt.reference for prompt in prompts]))
        size = self._config.rollout.n_samples_per_prompt
        return group_normalized(rewards, torch.arange(len(prompts)) // size)

    def _learn(self, inputs: dict[str, Tensor], sequences: Tensor, advantages: Tensor) -> None:
        start = inputs["input_ids"].shape[1]
        padding = torch.zeros_like(sequences[:, start:])
        logits = self._model(
            input_ids=sequences,
            attention_mask=torch.cat([inputs["attention_mask"], padding + 1], dim=1),
            mm_token_type_ids=torch.cat([inputs["mm_token_type_ids"], padding], dim=1),
            pixel_values=inputs["pixel_values"],
            image_grid_thw=inputs["image_grid_thw"],
            logits_to_keep=sequences.shape[1] - start + 1,
        ).logits[:, :-1]
        log_probs = log_softmax(logits, -1).gather(-1, sequences[:, start:, None])[..., 0]
        loss = -(advantages[:, None] * log_probs).mean()
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
