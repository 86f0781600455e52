"""Training on packed rows against padded ones, on the CPU.

Samples have log-normal lengths (mean 200, σ 1), the first half of each is its prompt. Both layouts
go forward and backward through the same small random Qwen2.5-VL in the same micro-batches, in turn.
The last line is a JSON object; tokens are real ones, and errors of gradients are absolute.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
from row_layouts import (
    Pass,
    largest_difference,
    log_normal_lengths,
    random_model,
    random_tokens,
    timed_pass,
)

from lightrft_ray.models.rows import PromptGroup, RowLayout

_LAYOUTS: tuple[RowLayout, ...] = ("padded", "packed")


def main() -> None:
    """Measure both in turn and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    samples = _samples(options.samples)
    batches = [
        samples[start : start + options.micro_batch]
        for start in range(0, len(samples), options.micro_batch)
    ]
    policy = random_model()
    seconds: dict[str, list[float]] = {layout: [] for layout in _LAYOUTS}
    error = 0.0
    timed_pass(policy, batches[0], "padded")  # start the threads
    for _ in range(options.repeats):
        passes: dict[str, list[Pass]] = {layout: [] for layout in _LAYOUTS}
        for batch in batches:
            for layout in _LAYOUTS:
                passes[layout].append(timed_pass(policy, batch, layout))
        for layout in _LAYOUTS:
            seconds[layout].append(sum(each.seconds for each in passes[layout]))
        pairs = zip(passes["padded"], passes["packed"], strict=True)
        error = max(error, *(largest_difference(a.gradients, b.gradients) for a, b in pairs))
    tokens = sum(len(each.prompt_ids) + len(each.responses[0]) for each in samples)
    padded, packed = (tokens / statistics.median(seconds[layout]) for layout in _LAYOUTS)
    figures = {
        "speed_ratio": packed / padded,
        "max_abs_grad_error": error,
        "tokens_per_second": packed,
        "padded_tokens_per_second": padded,
    }
    print(json.dumps(figures))


def _samples(count: int) -> list[PromptGroup]:
    generator = torch.Generator().manual_seed(0)
    samples = []
    for length in log_normal_lengths(count, 200, generator):
        tokens = random_tokens(max(length, 2), generator)
        samples.append(PromptGroup(tokens[: len(tokens) // 2], [tokens[len(tokens) // 2 :]], {}))
    return samples


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
