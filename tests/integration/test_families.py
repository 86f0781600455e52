"""The matrix of families: vLLM's log-probs are ours, before and after weights are published."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path

import pytest
from families.text import TEXT_FAMILIES, build_text
from families.vision import VISION_FAMILIES, build_vision

from lightrft_ray.models.freezing import Freezing
from tests.integration import family_engine

TIMEOUT = 300
# vLLM's attention on CPU is causal, and Gemma 3's sees the whole image: its images are compared
# with transformers alone.
_BLIND_ON_CPU = ("gemma3",)
_QUICK = ("qwen2_5_vl", "idefics3", "qwen3_moe")  # plain images, grids of patches, and experts


@pytest.fixture(scope="module")
def engine_process() -> Iterator[Pool]:
    """vLLM takes over a process: it gets its own, and importing it is paid for once."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, initializer=family_engine.set_environment) as pool:
        yield pool


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[] if family in _QUICK else pytest.mark.long)
        for family in (*VISION_FAMILIES, *TEXT_FAMILIES)
    ],
)
def test_the_generator_agrees_with_the_policy(
    family: str, engine_process: Pool, tmp_path: Path
) -> None:
    """To 1e-4 nats in float32, in the text and behind one image or two."""
    if family in TEXT_FAMILIES:
        build_text(family, tmp_path)
        freezing = Freezing(embeddings=True, patterns=["*.layers.0.*"])
    else:
        build_vision(family, tmp_path)
        freezing = Freezing(vision_tower=True, projector=True, embeddings=True)
    shows_images = family in VISION_FAMILIES and family not in _BLIND_ON_CPU
    arguments = (str(tmp_path), freezing, shows_images)
    gaps = engine_process.apply_async(family_engine.compare, arguments).get(timeout=TIMEOUT)
    assert max(gaps.fresh, gaps.published, gaps.partly) < 1e-4, gaps
    assert gaps.moved > 1e-3, gaps
    assert gaps.left_out > 0
