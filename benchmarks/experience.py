"""Assembling a rollout into experience: time, memory, and how it grows.

512 samples of 1,024 response tokens, one 1024×1024 image for each group of 8, on one core: padded,
given KL, advantages and returns, and put into the replay buffer, sample by sample. The alternative
does the same with pixels copied for each sample, in a process of its own, as the other. Memory is a
process's peak above what it had before the rollout; `growth` has the CPU seconds of cutting,
packing and joining for 1, 2, 4 and 8 times as many tokens. The last line is a JSON object.
"""

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence

import torch

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


def main() -> None:
    """Measure both ways and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=512, help="a multiple of 8")
    samples = parser.parse_args().samples
    shared = _in_process(_assemble_shared, samples)
    copied = _in_process(_assemble_copied, samples)
    figures = {
        "seconds": shared["seconds"],
        "peak_mb": shared["peak_mb"],
        "pixel_mb": shared["pixel_mb"],
        "copied_seconds": copied["seconds"],
        "copied_peak_mb": copied["peak_mb"],
        "memory_ratio": copied["peak_mb"] / shared["peak_mb"],
        "samples": samples,
        "growth": _in_process(_growth, samples // 8),
    }
    print(json.dumps(figures))


def _in_process(measure: Callable[[int], dict[str, float]], samples: int) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (samples,))


def _assemble_shared(samples: int) -> dict[str, float]:
    return _measure(samples, shares_pixels=True)


def _assemble_copied(samples: int) -> dict[str, float]:
    return _measure(samples, shares_pixels=False)


def _measure(samples: int, *, shares_pixels: bool) -> dict[str, float]:
    torch.set_num_threads(1)
    before = _peak_mb()
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


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB


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
        attention_mask=layout.attention_mask.long(),
        action_mask=mask,
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


def _growth(samples: int) -> dict[str, float]:
    """CPU seconds of packing, cutting and joining, the best of five."""
    torch.set_num_threads(1)
    return {f"{factor}x": _best(_convert, samples * factor) for factor in (1, 2, 4, 8)}


def _best(work: Callable[[ExperienceVL, Sequence[SampleMedia]], None], samples: int) -> float:
    experience = _experience(samples)
    seconds = []
    for _ in range(5):
        start = time.thread_time()
        work(experience, [SampleMedia()] * samples)
        seconds.append(time.thread_time() - start)
    return min(seconds)


def _convert(experience: ExperienceVL, media: Sequence[SampleMedia]) -> None:
    if experience.attention_mask is None or experience.action_mask is None:
        raise ValueError("experience has no masks")
    layout = SequenceLayout.of_mask(experience.attention_mask, experience.action_mask.shape[1])
    layout.unpack(layout.pack(experience.sequences))
    join_rows(split_experience(experience, media), pad_token_id=0)


if __name__ == "__main__":
    main()
