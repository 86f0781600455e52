"""A tiny checkpoint through vLLM and through our models: in one process, engine after engine.

Each function runs in a process of its own that holds vLLM; what it returns is plain numbers.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.processing import PromptEncoder, load_processor
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.models.checkpoint_names import checkpoint_names
from lightrft_ray.models.families import PACKABLE, forbidden_token_ids
from lightrft_ray.models.freezing import Freezing, freeze
from lightrft_ray.models.loading import ModelSource, load_policy, sees_images
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, build_rows
from lightrft_ray.models.token_models import Sampling, TokenPolicy
from lightrft_ray.sync.buckets import pack_buckets, write_bucket
from lightrft_ray.sync.shared_buffer import SharedBuffer
from lightrft_ray.sync.weight_source import published_weights, unpublished_names

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from vllm import LLM
    from vllm.outputs import RequestOutput

    from lightrft_ray.workers.rendering import RenderedPrompt

LONGEST = 256
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCHDYNAMO_DISABLE": "1",
}


@dataclass(frozen=True)
class Gaps:
    """Largest log-prob differences of vLLM and ours on vLLM's samples, in nats.

    `fresh` before any publication, `published` after all weights changed, `partly` after only what
    is not frozen did; `moved` is by how much the publications changed log-probs at all.
    """

    fresh: float
    published: float
    partly: float
    moved: float
    left_out: int


def set_environment() -> None:
    """For the process that is to hold the engines, before it imports vLLM."""
    os.environ.update(_ENVIRONMENT)
    torch.set_num_threads(1)


def compare(folder: str, freezing: Freezing, shows_images: bool) -> Gaps:
    """Start an engine, sample, publish twice, and compare after each."""
    model = load_policy(ModelSource(folder)).eval()
    engine = _engine(folder, sees_images(model.config))
    prompts = _render(engine, folder, shows_images)
    fresh, before = _gap(engine, prompts, model)
    _shake(model)
    _publish(engine, model, [])
    published, after = _gap(engine, prompts, model)
    freeze(model, freezing)
    left_out = unpublished_names(model)
    _shake(model)
    _publish(engine, model, checkpoint_names(model, left_out))
    partly, last = _gap(engine, prompts, model)
    engine.llm_engine.engine_core.shutdown()
    del engine
    gc.collect()
    moved = min(abs(before - after), abs(after - last))
    return Gaps(fresh, published, partly, moved, len(left_out))


def _engine(folder: str, sees: bool) -> LLM:
    from vllm import LLM
    from vllm.config import WeightTransferConfig
    from vllm.model_executor.models.registry import ModelRegistry

    # Named by its class: vLLM would start a process and import itself again to look at it.
    (architecture,) = json.loads((Path(folder) / "config.json").read_text())["architectures"]
    known = ModelRegistry.models[architecture]
    kind = getattr(importlib.import_module(known.module_name), known.class_name)
    ModelRegistry.register_model(architecture, kind)
    media = {"limit_mm_per_prompt": {"image": 2}, "mm_device_do_normalize": False} if sees else {}
    return LLM(
        folder,
        dtype="float32",
        enforce_eager=True,
        max_model_len=LONGEST,
        max_num_batched_tokens=4 * LONGEST,
        block_size=32,
        enable_chunked_prefill=False,
        logprobs_mode="processed_logprobs",
        weight_transfer_config=WeightTransferConfig(backend="lightrft_object_store"),
        mm_processor_cache_gb=0,
        **media,
    )


def _render(engine: LLM, folder: str, shows_images: bool) -> list[RenderedPrompt]:
    """As a generator does: the processor runs once, in vLLM's renderer."""
    from lightrft_ray.workers.rendering import PromptRenderer

    prompts = [_prompt(Path(folder), ["tell me a story, a long one"], [])]
    if shows_images:
        prompts += [
            _prompt(Path(folder), ["what", None, "is it?"], [(84, 56)]),
            _prompt(Path(folder), [None, "and", None, "differ how?"], [(56, 84), (56, 56)]),
        ]
    encoder = PromptEncoder(load_processor(folder), None, LONGEST)
    renderer = PromptRenderer(encoder, engine.llm_engine.renderer, MediaConfig())

    async def render() -> list[RenderedPrompt]:
        return [await renderer.render(prompt) for prompt in prompts]

    return asyncio.run(render())


def _prompt(folder: Path, parts: Sequence[str | None], sizes: Sequence[tuple[int, int]]) -> Prompt:
    """A prompt of texts and images (None) of these (width, height), different in each place."""
    names = [f"image-{len(parts)}-{index}.png" for index in range(len(sizes))]
    for index, (name, size) in enumerate(zip(names, sizes, strict=True)):
        gradient = Image.radial_gradient("L").rotate(90 * index).crop((0, 0, 200, 256))
        gradient.convert("RGB").resize(size).save(folder / name)
    content = [
        {"type": "image"} if part is None else {"type": "text", "text": part} for part in parts
    ]
    messages = ({"role": "user", "content": content},)
    return Prompt("p", messages, tuple(names), folder, "", "")  # type: ignore[arg-type]


def _gap(
    engine: LLM, prompts: Sequence[RenderedPrompt], model: PreTrainedModel
) -> tuple[float, float]:
    """The largest difference of log-probs, and our log-prob of one fixed response."""
    sampling = Sampling(0.9, forbidden_token_ids(model.config))
    outputs = _sample(engine, prompts, sampling)
    groups, theirs = [], []
    for prompt, output in zip(prompts, outputs, strict=True):
        responses = [torch.tensor(list(each.token_ids)) for each in output.outputs]
        media = {name: torch.from_numpy(value) for name, value in (prompt.media() or {}).items()}
        groups.append(PromptGroup(torch.from_numpy(prompt.token_ids), responses, media))
        theirs += [
            step[token].logprob
            for each in output.outputs
            for token, step in zip(each.token_ids, each.logprobs or [], strict=True)
        ]
    ours = _our_log_probs(model, groups, sampling)
    fixed = [PromptGroup(groups[-1].prompt_ids, [torch.tensor([65, 66])], groups[-1].media)]
    gap = float(np.abs(ours - np.asarray(theirs)).max())
    return gap, float(_our_log_probs(model, fixed, sampling).sum())


@torch.no_grad()
def _our_log_probs(
    model: PreTrainedModel, groups: Sequence[PromptGroup], sampling: Sampling
) -> np.ndarray:
    layout = "shared_prefix" if model.config.model_type in PACKABLE else "padded"
    rows = build_rows(groups, layout, position_rule(model.config), pad_token_id=0)
    log_probs, _ = TokenPolicy(model)(rows, sampling)
    return log_probs[rows.action_mask].numpy()


def _sample(
    engine: LLM, prompts: Sequence[RenderedPrompt], sampling: Sampling
) -> list[RequestOutput]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        n=2,
        max_tokens=12,
        temperature=sampling.temperature,
        seed=1,
        logprobs=0,
        logit_bias={token: float("-inf") for token in sampling.forbidden_token_ids},
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    core, finished = engine.llm_engine, {}
    for index, prompt in enumerate(prompts):
        core.add_request(str(index), prompt.engine_input, params)
    while core.has_unfinished_requests():
        finished |= {output.request_id: output for output in core.step() if output.finished}
    return [finished[str(index)] for index in range(len(prompts))]


def _shake(model: PreTrainedModel) -> None:
    """Change everything that trains."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.03 * torch.randn_like(weight))


def _publish(engine: LLM, model: PreTrainedModel, left_out: list[str]) -> None:
    engine.init_weight_transfer_engine({"init_info": {"left_out": left_out}})
    buckets = list(pack_buckets(published_weights(model, 10**6), 10**5))
    with SharedBuffer("family") as buffer:
        located, end = [], 0
        block = buffer.reserve(sum(spec.nbytes for spec, _ in buckets))
        for spec, parts in buckets:
            write_bucket(spec, parts, block[end : end + spec.nbytes])
            located.append((end, spec.to_dict()))
            end += spec.nbytes
        engine.start_weight_update()
        engine.update_weights({"update_info": {"path": buffer.path, "buckets": located}})
        engine.finish_weight_update("1")
    engine.llm_engine.reset_prefix_cache()
    engine.llm_engine.reset_mm_cache()
    engine.llm_engine.reset_encoder_cache()
