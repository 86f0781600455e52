"""Feeding: images a second of the way that prompts take, and its memory over many rows.

Rows of 64×64 PNG files and a question go, on one core, the way they go in a generator: from the
shuffled source through chat template, tokenizer, decoding and vLLM's renderer, 32 at a time. They
are compared with Pillow's decoding and the Hugging Face processor alone, on the same files.
Seconds are of the processor and the two ways take turns at every batch, so that neighbours on the
machine cancel out: `speed_fraction` is the median over the pairs of turns. `rss_growth_mb` is
what the process grows by over all rows behind the first tenth, in which caches fill; no row
repeats. MB are 10⁶ bytes. The last line is a JSON object.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}

import numpy as np
import psutil
import torch
from PIL import Image
from vllm.renderers import renderer_from_config

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.data.processing import Processor, PromptEncoder, load_processor
from lightrft_ray.data.prompt_source import PromptSource
from lightrft_ray.data.prompts import Prompt, read_prompts
from lightrft_ray.driver.preflight import resolve_checkpoints
from lightrft_ray.workers.engine_arguments import engine_arguments
from lightrft_ray.workers.rendering import PromptRenderer

_SIDE = 64
_FILES = 1000
_TOGETHER = 32
_TURNS = 60  # of a batch each way


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    config = resolve_checkpoints(load_config(None, [("media_cache_mb", "64")]))
    processor = load_processor(config.model.pretrain)
    with tempfile.TemporaryDirectory() as folder:
        prompts = _write_rows(Path(folder), rows + _TOGETHER * (_TURNS + 1))
        source = PromptSource(prompts, seed=1)
        with asyncio.Runner() as loop:
            renderer = _renderer(config, processor)
            ours, plain, fraction = _speeds(loop, renderer, processor, source)
            growth = _growth(loop, renderer, source, rows)
    figures = {
        "speed_fraction": fraction,
        "images_per_second": ours,
        "plain_images_per_second": plain,
        "rss_growth_mb": growth,
        "rows": rows,
    }
    print(json.dumps(figures))


def _write_rows(folder: Path, count: int) -> list[Prompt]:
    rng = np.random.default_rng(0)
    for number in range(_FILES):
        pixels = rng.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    file = folder / "rows.jsonl"
    with file.open("w", encoding="utf-8") as target:
        for number in range(count):
            row = {"prompt": f"What is in picture {number}?", "images": f"{number % _FILES}.png"}
            target.write(json.dumps(row) + "\n")
    return read_prompts(file)[0]


def _renderer(config: RunConfig, processor: Processor) -> PromptRenderer:
    """A generator's, without its engine."""
    arguments = engine_arguments(config, {"image": 1}, {})
    encoder = PromptEncoder(processor, None, config.data.prompt_max_len)
    renderer = renderer_from_config(arguments.create_engine_config())
    return PromptRenderer(encoder, renderer, config.media)


def _speeds(
    loop: asyncio.Runner, renderer: PromptRenderer, processor: Processor, source: PromptSource
) -> tuple[float, float, float]:
    """Images a second of our way and of the plain one, and the fraction; medians over the turns."""
    ours, plain = [], []
    _render(loop, renderer, _take(source, _TOGETHER))
    for _ in range(_TURNS):
        batch = _take(source, _TOGETHER)
        start = time.process_time()
        _render(loop, renderer, batch)
        between = time.process_time()
        _process(processor, batch)
        ours.append(_TOGETHER / (between - start))
        plain.append(_TOGETHER / (time.process_time() - between))
    fraction = statistics.median(np.divide(ours, plain).tolist())
    return statistics.median(ours), statistics.median(plain), fraction


def _take(source: PromptSource, count: int) -> list[Prompt]:
    return [prompt for prompt, _ in source.take(count)]


def _render(loop: asyncio.Runner, renderer: PromptRenderer, prompts: Sequence[Prompt]) -> None:
    async def render() -> None:
        for start in range(0, len(prompts), _TOGETHER):
            together = prompts[start : start + _TOGETHER]
            await asyncio.gather(*(renderer.render(prompt) for prompt in together))

    loop.run(render())


def _process(processor: Processor, prompts: Sequence[Prompt]) -> None:
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    for prompt in prompts:
        image = Image.open(prompt.image_root / prompt.images[0]).convert("RGB")
        processor(text=[text], images=[image], return_tensors="pt")


def _growth(
    loop: asyncio.Runner, renderer: PromptRenderer, source: PromptSource, rows: int
) -> float:
    """MB that the process grows by over the last nine tenths of the rows."""
    process = psutil.Process()
    _render(loop, renderer, _take(source, rows // 10))
    before = process.memory_info().rss
    for _ in range(9):
        _render(loop, renderer, _take(source, rows // 10))
    return (process.memory_info().rss - before) / 1e6


if __name__ == "__main__":
    main()
