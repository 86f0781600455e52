"""Assembling a rollout into experience: time, memory, and how it grows.

512 samples of 1,024 response tokens, one 1024×1024 image for each group of 8, on one core: padded,
given KL, advantages and returns, and put into the replay buffer, sample by sample. The alternative
does the same with pixels copied for each sample, in a process of its own, as the other; it needs
13 GB of memory. `peak_mb` is a process's peak above what it had before the rollout; `growth` has
for 1, 2, 4 and 8 times as many tokens the CPU seconds of packing and unpacking, of splitting and of
joining, and `growth_per_token` what they are by token, of the time at 1x. MB are 2²⁰ bytes. The
last line is a JSON object.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import torch
from torch import BoolTensor, LongTensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.models.sequences import SequenceLayout
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_rows import join_rows, split_experience
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL
from lightrft_ray.trainer.media import Medium, SampleMedia, held_bytes
from lightrft_ray.trainer.replay_buffer import ReplayBuffer

_GROUP = 8
_RESPONSE = 1024
_GRID = (1, 74, 74)  # 1024 / 14 pixels, rounded to whole merged patches
_PATCH = 3 * 2 * 14 * 14
_PROMPT = 74 * 74 // 4 + 64  # image tokens and text
_MB = 2**20
_FACTORS = (1, 2, 4, 8)
_LARGEST = _FACTORS[-1]
_ATTEMPTS = 7

Result = TypeVar("Result")


def main() -> None:
    """Measure both ways and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=512, help="a multiple of 8")
    samples = parser.parse_args().samples
    if samples < _GROUP or samples % _GROUP:
        parser.error(f"--samples {samples}: it must be a multiple of {_GROUP}")
    shared = _in_process(_assemble_shared, samples)
    copied = _in_process(_assemble_copied, samples)
    growth = _in_process(_growth, samples // _LARGEST)
    figures = {
        "seconds": shared["seconds"],
        "peak_mb": shared["peak_mb"],
        "pixel_mb": shared["pixel_mb"],
        "copied_seconds": copied["seconds"],
        "copied_peak_mb": copied["peak_mb"],
        "memory_ratio": copied["peak_mb"] / shared["peak_mb"],
        "samples": samples,
        "growth": growth,
        "growth_per_token": {name: _per_token(each) for name, each in growth.items()},
    }
    print(json.dumps(figures))


def _in_process(measure: Callable[[int], Result], samples: int) -> Result:
    """In a new process, whose memory holds nothing of another measurement."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (samples,))


def _assemble_shared(samples: int) -> dict[str, float]:
    return _measure(samples, shares_pixels=True)


def _assemble_copied(samples: int) -> dict[str, float]:
    return _measure(samples, shares_pixels=False)


def _measure(samples: int, *, shares_pixels: bool) -> dict[str, float]:
    torch.set_num_threads(1)
    before = _start_peak()
    prompts = [_image(seed) for seed in range(samples // _GROUP)]
    start = time.perf_counter()
    media = _repeated(prompts) if shares_pixels else _copied(prompts)
    buffer = ReplayBuffer(1)
    buffer.append(_experience(samples), media)
    seconds = time.perf_counter() - start
    pixels = held_bytes([buffer[index].media for index in range(len(buffer))])
    return {
        "seconds": seconds,
        "peak_mb": _peak_mb() - before,
        "pixel_mb": pixels / _MB,
    }


def _repeated(prompts: list[SampleMedia]) -> list[SampleMedia]:
    return [prompt for prompt in prompts for _ in range(_GROUP)]


def _copied(prompts: list[SampleMedia]) -> list[SampleMedia]:
    """Copies for each sample; lets go of a prompt's own pixels as soon as they are made."""
    copies = []
    while prompts:
        images = prompts.pop(0).images
        if images.pixels is None:
            raise ValueError("the prompt has no pixels")
        for _ in range(_GROUP):
            copies.append(SampleMedia(Medium(1, images.pixels.clone(), images.grids)))
    return copies


def _start_peak() -> float:
    """Forget the peak of this process's resident memory until now; what it holds, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_mb()


def _peak_mb() -> float:
    # Not ru_maxrss, which knows the parent's memory, too, and cannot start anew.
    status = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line for line in status if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def _image(seed: int) -> SampleMedia:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(_GRID[1] * _GRID[2], _PATCH, generator=generator)
    return SampleMedia(images=Medium(1, pixels, torch.tensor([_GRID])))


def _experience(samples: int) -> ExperienceVL:
    """Padded, with KL and advantages; lengths differ."""
    generator = torch.Generator().manual_seed(0)
    layout = SequenceLayout.of_lengths(
        torch.full((samples,), _PROMPT),
        torch.randint(_RESPONSE // 2, _RESPONSE + 1, (samples,), generator=generator),
    )
    tokens = torch.randint(1, 1000, (int(layout.total_lengths.sum()),), generator=generator)
    mask = layout.action_mask
    log_probs, base = (-torch.rand(mask.shape, generator=generator) for _ in range(2))
    batch = SamplesVL(
        sequences=layout.unpack(tokens),
        attention_mask=cast(LongTensor, layout.attention_mask.long()),
        action_mask=cast(BoolTensor, mask),
        num_actions=layout.response_width,
        response_length=layout.response_lengths,
        total_length=layout.total_lengths,
    )
    scores = Scores(
        rewards=torch.rand(samples, generator=generator),
        group_ids=torch.arange(samples) // _GROUP,
        action_log_probs=log_probs,
        base_action_log_probs=base,
    )
    experience = assemble_experience(batch, scores, AlgorithmConfig(), kl_coef=0.1)
    experience.info = {**(experience.info or {}), "image_num": [1] * samples}
    return experience


def _growth(samples: int) -> dict[str, dict[str, float]]:
    """CPU seconds of each conversion by the number of tokens, the best of several."""
    torch.set_num_threads(1)
    conversions = {"packing": _packing, "splitting": _splitting, "joining": _joining}
    return {
        name: {f"{factor}x": _best(prepare(samples * factor)) for factor in _FACTORS}
        for name, prepare in conversions.items()
    }


def _per_token(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds by token, of those at 1x: 1 where time is linear."""
    return {f"{n}x": round(seconds[f"{n}x"] / n / seconds["1x"], 3) for n in _FACTORS}


def _best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_ATTEMPTS):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def _packing(samples: int) -> Callable[[], object]:
    experience = _experience(samples)
    mask, tokens = experience.attention_mask, experience.sequences
    if mask is None:
        raise ValueError("experience has no attention_mask")

    def pack() -> torch.Tensor:
        layout = SequenceLayout.of_mask(mask, _RESPONSE)
        return layout.unpack(layout.pack(tokens))

    return pack


def _splitting(samples: int) -> Callable[[], object]:
    experience, media = _experience(samples), [SampleMedia()] * samples
    return lambda: split_experience(experience, media)


def _joining(samples: int) -> Callable[[], object]:
    rows = split_experience(_experience(samples), [SampleMedia()] * samples)
    return lambda: join_rows(rows, pad_token_id=0)


if __name__ == "__main__":
    main()
