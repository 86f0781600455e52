"""Actors give the same in every layout, and the same as plain transformers."""

from typing import Any

import pytest
import torch
from batches import MIXED_GROUPS, TEXT_GROUPS, Samples
from tiny_models import IMAGE, PAD, VIDEO, text_model, vision_model
from torch import Tensor

from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.log_probs import sampled_distribution, token_entropy, token_log_probs
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, build_rows
from lightrft_ray.models.token_models import TokenPolicy

Actor = ActorLanguage | ActorVL


def _one_by_one(actor: Actor, samples: Samples, groups: list[Any]) -> list[tuple[Tensor, Tensor]]:
    """Log-probs and entropies of each sample's tokens but the first, by transformers alone."""
    results = []
    for group in groups:
        for response in group.responses:
            ids = torch.cat([group.prompt_ids, response])[None]
            media: dict[str, Tensor] = dict(group.media)
            if media:
                media["mm_token_type_ids"] = (ids == IMAGE).long()
            logits = actor.model(input_ids=ids, **media).logits[0, :-1]
            distribution = sampled_distribution(
                logits,
                temperature=actor.sampling.temperature,
                forbidden=actor.sampling.forbidden_token_ids,
            )
            log_probs = token_log_probs(distribution, ids[0, 1:])
            results.append((log_probs, token_entropy(distribution)))
    return results


def _actions(values: list[Tensor], samples: Samples) -> list[Tensor]:
    lengths = samples.layout.response_lengths.tolist()
    return [row[len(row) - length :] for row, length in zip(values, lengths, strict=True)]


def _gradients(actor: Actor, values: Tensor) -> dict[str, Tensor]:
    actor.zero_grad()
    (values * torch.linspace(-1, 2, len(values))).sum().backward()
    named = actor.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


_CASES = {
    "text": (ActorLanguage, text_model, TEXT_GROUPS),
    "vision": (ActorVL, vision_model, MIXED_GROUPS),
    "vision-text-only": (ActorVL, vision_model, TEXT_GROUPS),
}


@pytest.mark.parametrize("packs", [False, True], ids=["padded", "packs"])
@pytest.mark.parametrize("name", _CASES)
def test_log_probs_equal_those_one_by_one(name: str, packs: bool) -> None:
    kind, build, groups = _CASES[name]
    samples = Samples.of(groups)
    actor = kind(build(), packing_samples=packs, temperature=0.8, high_entropy_token_ratio=0.2)
    solo = _one_by_one(actor, samples, groups)
    expected = torch.cat(_actions([row for row, _ in solo], samples))
    entropies = torch.cat(_actions([row for _, row in solo], samples))
    mask = samples.layout.action_mask
    expected_gradients = _gradients(actor, expected)

    log_probs = actor(samples.padded, samples.num_actions, samples.mask, **samples.media)
    assert log_probs.dtype == torch.float32
    assert log_probs.shape == mask.shape
    assert (log_probs[~mask] == 0).all()
    torch.testing.assert_close(log_probs[mask], expected, rtol=0, atol=1e-5)
    _assert_close(_gradients(actor, log_probs[mask]), expected_gradients)

    again, output = actor(
        samples.padded, samples.num_actions, samples.mask, return_output=True, **samples.media
    )
    torch.testing.assert_close(again, log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(output["action_entropy"][mask], entropies, rtol=0, atol=1e-5)


def _assert_close(gradients: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        scale = expected[name].abs().max().item()
        assert (gradient - expected[name]).abs().max().item() <= 1e-4 * scale, name


@pytest.mark.parametrize("name", _CASES)
def test_a_packed_row_equals_its_samples(name: str) -> None:
    kind, build, groups = _CASES[name]
    samples, actor = Samples.of(groups), kind(build())
    solo = [row for row, _ in _one_by_one(actor, samples, groups)]
    lengths, counts = samples.layout.total_lengths, samples.layout.response_lengths
    for given in ((counts, lengths), (counts.tolist(), lengths.tolist())):
        log_probs = actor(samples.packed[None], given[0], packed_seq_lens=given[1], **samples.media)
        expected = torch.cat(_actions(solo, samples))[None]
        torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-5)
    everything = actor(samples.packed[None], packed_seq_lens=lengths, **samples.media)
    expected = torch.cat([part for row in solo for part in (torch.zeros(1), row)])[None, 1:]
    torch.testing.assert_close(everything, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("packs", [False, True])
def test_without_a_number_of_actions_all_next_tokens_are_scored(packs: bool) -> None:
    samples = Samples.of(TEXT_GROUPS)
    actor = ActorLanguage(text_model(), packing_samples=packs)
    log_probs = actor(samples.padded, attention_mask=samples.mask)
    assert log_probs.shape == (5, samples.padded.shape[1] - 1)
    for row, mask, expected in zip(
        log_probs, samples.mask.bool(), _one_by_one(actor, samples, TEXT_GROUPS), strict=True
    ):
        scored = mask[1:] & mask[:-1]
        torch.testing.assert_close(row[scored], expected[0], rtol=0, atol=1e-5)
        assert (row[~scored] == 0).all()


def test_a_batch_without_a_mask_has_no_padding() -> None:
    actor, tokens = ActorLanguage(text_model()), torch.randint(2, 60, (2, 6))
    expected = actor(tokens, 3, torch.ones(2, 6))
    assert torch.equal(actor(tokens, 3), expected)
    assert actor(tokens, 0).shape == (2, 0)


@pytest.mark.parametrize("packs", [False, True])
def test_videos_and_images_of_one_batch(packs: bool) -> None:
    """As the rows of prompt groups compute them, whose positions are those of vLLM."""
    video = torch.tensor([[3, 2, 4]])  # 3 · 1 · 2 tokens
    prompt = torch.tensor([5, *[VIDEO] * 6, 9])
    media = {"video_grid_thw": video, "pixel_values_videos": torch.randn(24, 96)}
    groups = [PromptGroup(prompt, [torch.tensor([7, 8]), torch.tensor([9])], media), *MIXED_GROUPS]
    samples, actor = Samples.of(groups), ActorVL(vision_model(), packing_samples=packs)
    rows = build_rows(groups, "padded", position_rule(actor.model.config), PAD)
    expected, _ = TokenPolicy(actor.model)(rows, actor.sampling)
    log_probs = actor(samples.padded, samples.num_actions, samples.mask, **samples.media)
    torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-5)


def test_a_bfloat16_model_gives_float32_log_probs_of_its_logits() -> None:
    actor = ActorLanguage(text_model().to(torch.bfloat16))
    tokens = torch.randint(2, 60, (1, 6))
    logits = actor.model(tokens).logits.float()
    expected = logits[:, 2:-1].log_softmax(-1).gather(-1, tokens[:, 3:, None])[..., 0]
    log_probs = actor(tokens, 3)
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-5)


def test_gradient_checkpointing_changes_nothing_but_memory() -> None:
    actor, tokens = ActorLanguage(text_model()).train(), torch.randint(2, 60, (2, 6))
    plain = _gradients(actor, actor(tokens, 3).flatten())
    actor.gradient_checkpointing_enable()
    assert actor.model.is_gradient_checkpointing
    _assert_close(_gradients(actor, actor(tokens, 3).flatten()), plain)
    actor.gradient_checkpointing_disable()
    assert not actor.model.is_gradient_checkpointing
