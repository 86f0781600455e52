"""A batch's gradients are the same however it is divided: rows, micro-batches and ranks."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from batches import Samples
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import PAD, VIDEO, prompt_group, vision_model
from torch import Tensor, nn

from lightrft_ray.config import AlgorithmConfig
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.critic_vl import CriticVL
from lightrft_ray.models.rows import PromptGroup
from lightrft_ray.trainer.aggregation import Denominators, count_denominators
from lightrft_ray.trainer.batch_media import model_inputs
from lightrft_ray.trainer.experience_rows import ExperienceRow, join_rows, split_experience
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.media import Medium, SampleMedia
from lightrft_ray.trainer.microbatch import balanced_partition, token_budget_batches
from lightrft_ray.trainer.objectives import policy_objective, value_objective

_ALGORITHM = AlgorithmConfig(init_kl_coef=0.1)
_GRIDS = [(2, 2), (2, 4), (4, 4)]

_GROUPS = st.lists(
    st.tuples(
        st.integers(1, 8),  # prompt
        st.lists(st.integers(1, 6), min_size=1, max_size=3),  # responses
        st.lists(st.sampled_from(_GRIDS), max_size=3),  # images
        st.integers(0, 3),  # frames of a video, 0: no video
    ),
    min_size=2,
    max_size=4,
)
_Division = Callable[[Sequence[int]], list[list[int]]]  # of rows of these lengths


def _by_size(size: int) -> _Division:
    return lambda lengths: [
        list(range(len(lengths)))[start : start + size] for start in range(0, len(lengths), size)
    ]


def _by_tokens(budget: int) -> _Division:
    return lambda lengths: token_budget_batches(lengths, budget)


_DIVISIONS = st.one_of(
    st.builds(_by_size, st.integers(1, 4)), st.builds(_by_tokens, st.integers(8, 60))
)


@pytest.fixture(scope="module")
def model() -> Any:
    return vision_model().double()


def _with_video(group: PromptGroup, frames: int) -> PromptGroup:
    """The group with a video of 2 × 2 patches before its prompt, a second and a half a frame."""
    if frames == 0:
        return group
    generator = torch.Generator().manual_seed(frames)
    media = {
        **group.media,
        "pixel_values_videos": torch.randn(4 * frames, 96, generator=generator),
        "video_grid_thw": torch.tensor([[frames, 2, 2]]),
        "second_per_grid_ts": torch.tensor([1.5]),
    }
    video = torch.tensor([2, *[VIDEO] * frames])
    return PromptGroup(torch.cat([video, group.prompt_ids]), group.responses, media)


def _media(group: PromptGroup) -> SampleMedia:
    extras = {k: v for k, v in group.media.items() if k == "second_per_grid_ts"}
    parts = []
    for pixels, grids in (
        ("pixel_values", "image_grid_thw"),
        ("pixel_values_videos", "video_grid_thw"),
    ):
        has_any = pixels in group.media
        parts.append(
            Medium(len(group.media[grids]), group.media[pixels].double(), group.media[grids])
            if has_any
            else Medium()
        )
    return SampleMedia(*parts, extras)


def _rows(actor: ActorVL, groups: list[Any], seed: int) -> list[ExperienceRow]:
    """Experience of random advantages and returns, with some actions masked out."""
    made = [
        _with_video(prompt_group(seed + i, *group[:3]), group[3]) for i, group in enumerate(groups)
    ]
    samples = Samples.of(made)
    generator = torch.Generator().manual_seed(seed)
    mask = samples.layout.action_mask
    media = [_media(group) for group in made for _ in group.responses]
    inputs = {
        name: value.double() if name.startswith("pixel_values") else value
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
        values=noise(),
        returns=noise(),
        advantages=noise(),
    )
    return split_experience(experience, media)


def _policy_loss(log_probs: Tensor, batch: ExperienceVL, denominators: Denominators) -> Tensor:
    entropy = torch.zeros_like(log_probs)
    loss, _ = policy_objective(
        log_probs, entropy, batch, _ALGORITHM, denominators=denominators, kl_coef=0.1
    )
    return loss


def _value_loss(values: Tensor, batch: ExperienceVL, denominators: Denominators) -> Tensor:
    return value_objective(values, batch, _ALGORITHM, denominators=denominators)[0]


def _gradients(
    scorer: nn.Module, loss_of: Any, parts: list[list[ExperienceRow]], rows: list[ExperienceRow]
) -> dict[str, Tensor]:
    """Summed over micro-batches; the denominators are those of the whole."""
    denominators = count_denominators(join_rows(rows, PAD).action_mask)
    scorer.zero_grad()
    for part in parts:
        batch = join_rows(part, PAD)
        width = batch.action_mask.shape[1]
        scored = scorer(batch.sequences, width, batch.attention_mask, **model_inputs(batch))
        loss_of(scored, batch, denominators).backward()
    named = scorer.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def _divided(rows: list[ExperienceRow], divide: _Division, ranks: int) -> list[list[ExperienceRow]]:
    """The micro-batches of all ranks."""
    shares = balanced_partition([len(row.tokens) for row in rows], ranks)
    return [
        [rows[share[place]] for place in places]
        for share in shares
        if share
        for places in divide([len(rows[index].tokens) for index in share])
    ]


def _assert_equal(
    got: dict[str, Tensor], expected: dict[str, Tensor], relative: float = 1e-6
) -> None:
    largest = max(gradient.abs().max().item() for gradient in expected.values())
    for name, gradient in expected.items():
        difference = got.get(name, torch.zeros(())) - gradient
        assert difference.abs().max() <= relative * max(largest, 1e-6), name


@settings(deadline=None, max_examples=12)
@given(
    groups=_GROUPS, seed=st.integers(0, 1000), divide=_DIVISIONS, ranks=st.sampled_from([1, 2, 4])
)
def test_gradients_do_not_depend_on_the_division(
    model: Any, groups: list[Any], seed: int, divide: _Division, ranks: int
) -> None:
    padded, packed = ActorVL(model), ActorVL(model, packing_samples=True)
    rows = _rows(padded, groups, seed)
    expected = _gradients(padded, _policy_loss, [rows], rows)
    parts = _divided(rows, divide, ranks)
    for actor in (padded, packed):
        _assert_equal(_gradients(actor, _policy_loss, parts, rows), expected)


@settings(deadline=None, max_examples=6)
@given(
    groups=_GROUPS, seed=st.integers(0, 1000), divide=_DIVISIONS, ranks=st.sampled_from([1, 2, 4])
)
def test_gradients_of_values_do_not_depend_on_the_division(
    model: Any, groups: list[Any], seed: int, divide: _Division, ranks: int
) -> None:
    rows = _rows(ActorVL(model), groups, seed)
    padded, packed = CriticVL(model.model), CriticVL(model.model, packing_samples=True)
    packed.value_head.load_state_dict(padded.value_head.state_dict())
    expected = _gradients(padded, _value_loss, [rows], rows)
    parts = _divided(rows, divide, ranks)
    for critic in (padded, packed):
        got = _gradients(critic, _value_loss, parts, rows)
        _assert_equal(got, expected, relative=1e-5)  # the value head is float32 in any model
