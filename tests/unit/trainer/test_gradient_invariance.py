"""A batch's gradients are the same however it is divided: rows, micro-batches and ranks."""

from typing import Any

import pytest
import torch
from batches import Samples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import PAD, prompt_group, vision_model
from torch import Tensor

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.trainer.aggregation import count_denominators
from lightrft_ray.trainer.batch_media import model_inputs
from lightrft_ray.trainer.experience_rows import ExperienceRow, join_rows, split_experience
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.media import Medium, SampleMedia
from lightrft_ray.trainer.microbatch import balanced_partition
from lightrft_ray.trainer.objectives import policy_objective

_ALGORITHM = AlgorithmConfig(init_kl_coef=0.1)
_GRIDS = [(2, 2), (2, 4), (4, 4)]

_GROUPS = st.lists(
    st.tuples(
        st.integers(1, 8),  # prompt
        st.lists(st.integers(1, 6), min_size=1, max_size=3),  # responses
        st.lists(st.sampled_from(_GRIDS), max_size=2),  # images
    ),
    min_size=2,
    max_size=4,
)


@pytest.fixture(scope="module")
def model() -> Any:
    return vision_model().double()


def _rows(actor: ActorVL, groups: list[Any], seed: int) -> list[ExperienceRow]:
    """Experience of random advantages, with some actions masked out."""
    made = [prompt_group(seed + i, *group) for i, group in enumerate(groups)]
    samples = Samples.of(made)
    generator = torch.Generator().manual_seed(seed)
    mask = samples.layout.action_mask
    media = [
        SampleMedia(
            Medium(
                len(group.media["image_grid_thw"]),
                group.media["pixel_values"].double(),
                group.media["image_grid_thw"],
            )
        )
        if group.media
        else SampleMedia()
        for group in made
        for _ in group.responses
    ]
    inputs = {
        name: value.double() if name == "pixel_values" else value
        for name, value in samples.media.items()
    }
    with torch.no_grad():
        log_probs = actor(samples.padded, samples.num_actions, samples.mask, **inputs)

    def noise() -> Tensor:
        return torch.randn(mask.shape, generator=generator, dtype=torch.float64)

    experience = ExperienceVL(
        samples.padded,
        attention_mask=samples.mask,
        action_mask=mask & (torch.rand(mask.shape, generator=generator) < 0.8),
        action_log_probs=log_probs + 0.1 * noise(),
        base_action_log_probs=log_probs + 0.3 * noise(),
        advantages=noise(),
    )
    return split_experience(experience, media)


def _gradients(actor: ActorVL, parts: list[list[ExperienceRow]], rows: list[ExperienceRow]) -> Any:
    """Summed over micro-batches; the denominators are those of the whole."""
    mask = join_rows(rows, PAD).action_mask
    denominators = count_denominators(mask)
    actor.zero_grad()
    for part in parts:
        batch = join_rows(part, PAD)
        width = batch.action_mask.shape[1]
        log_probs = actor(batch.sequences, width, batch.attention_mask, **model_inputs(batch))
        loss, _ = policy_objective(
            log_probs,
            torch.zeros_like(log_probs),
            batch,
            _ALGORITHM,
            denominators=denominators,
            kl_coef=0.1,
        )
        loss.backward()
    named = actor.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


@settings(deadline=None, max_examples=12)
@given(
    groups=_GROUPS,
    seed=st.integers(0, 1000),
    size=st.integers(1, 4),
    ranks=st.sampled_from([1, 2, 4]),
)
def test_gradients_do_not_depend_on_the_division(
    model: Any, groups: list[Any], seed: int, size: int, ranks: int
) -> None:
    padded, packed = ActorVL(model), ActorVL(model, packing_samples=True)
    rows = _rows(padded, groups, seed)
    expected = _gradients(padded, [rows], rows)
    shares = balanced_partition([len(row.tokens) for row in rows], ranks)
    parts = [
        [rows[index] for index in share[start : start + size]]
        for share in shares
        for start in range(0, len(share), size)
    ]
    largest = max(gradient.abs().max().item() for gradient in expected.values())
    for actor in (padded, packed):
        got = _gradients(actor, parts, rows)
        for name, gradient in expected.items():
            difference = got.get(name, torch.zeros(())) - gradient
            assert difference.abs().max() <= 1e-6 * max(largest, 1e-6), name
