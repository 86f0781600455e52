"""Rows in which samples share their prompt against packed rows that repeat it, on the CPU.

Groups have a prompt of 512 tokens, 256 of which are an image's, and eight responses of log-normal
lengths (mean 64, σ 1). Both layouts go forward and backward through the same small random
Qwen2.5-VL, vision tower included, in turn. The last line is a JSON object; errors are absolute,
over log-probs and gradients.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch
from row_layouts import (
    largest_difference,
    log_normal_lengths,
    random_image,
    random_model,
    random_tokens,
    timed_pass,
)

from lightrft_ray.models.rows import PromptGroup, RowLayout

_SAMPLES = 8
_IMAGE_SIDE = 16  # merged patches
_TEXT_TOKENS = 256
_LAYOUTS: tuple[RowLayout, ...] = ("packed", "shared_prefix")


def main() -> None:
    """Measure both in turn and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    groups = [_group(generator) for _ in range(options.groups)]
    policy = random_model()
    seconds: dict[str, list[float]] = {layout: [] for layout in _LAYOUTS}
    error = 0.0
    timed_pass(policy, groups[:1], "shared_prefix")  # start the threads
    for _ in range(options.repeats):
        packed, shared = (timed_pass(policy, groups, layout) for layout in _LAYOUTS)
        seconds["packed"].append(packed.seconds)
        seconds["shared_prefix"].append(shared.seconds)
        results = [[each.log_probs, *each.gradients] for each in (packed, shared)]
        error = max(error, largest_difference(*results))
    apart, together = (statistics.median(seconds[layout]) for layout in _LAYOUTS)
    figures = {
        "speed_ratio": apart / together,
        "max_abs_error": error,
        "seconds": together,
        "packed_seconds": apart,
    }
    print(json.dumps(figures))


def _group(generator: torch.Generator) -> PromptGroup:
    placeholders, media = random_image(_IMAGE_SIDE, generator)
    before, after = random_tokens(_TEXT_TOKENS, generator).split(_TEXT_TOKENS // 2)
    lengths = log_normal_lengths(_SAMPLES, 64, generator)
    responses = [random_tokens(length, generator) for length in lengths]
    return PromptGroup(torch.cat([before, placeholders, after]), responses, media)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
