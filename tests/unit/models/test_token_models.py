"""Policy and critic give the same for every layout of rows, and the same as plain transformers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
import torch
from tiny_models import IMAGE, PAD, VIDEO, prompt_group, text_model, vision_model
from torch import Tensor, nn
from transformers import PreTrainedModel

from lightrft_ray.models.log_probs import sampled_distribution, token_entropy, token_log_probs
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, RowLayout, Rows, build_rows
from lightrft_ray.models.token_models import Sampling, TokenCritic, TokenPolicy

_SAMPLING = Sampling(temperature=0.8, forbidden_token_ids=(IMAGE, VIDEO))
_LAYOUTS: tuple[RowLayout, ...] = get_args(RowLayout)
_IMAGE_GROUPS = {
    "images": [
        prompt_group(1, 6, [3, 1, 5, 2], [(4, 6)]),
        prompt_group(2, 11, [2, 4], [(2, 2), (6, 4)]),
    ],
    "images-and-text": [
        prompt_group(3, 5, [4, 4, 1]),
        prompt_group(4, 7, [2, 6], [(4, 4), (2, 4), (2, 2)]),
        prompt_group(5, 12, [1]),
    ],
    "groups-of-one": [prompt_group(6, 4, [5], [(4, 4)]), prompt_group(7, 9, [2], [(2, 6)])],
    "text": [prompt_group(8, 3, [2, 3]), prompt_group(9, 6, [1, 4, 2])],
}
_TEXT_GROUPS = _IMAGE_GROUPS["text"]


def _rows(model: PreTrainedModel, groups: Sequence[PromptGroup], layout: RowLayout) -> Rows:
    return build_rows(groups, layout, position_rule(model.config), PAD)


def _plain_logits(model: PreTrainedModel, group: PromptGroup, response: Tensor) -> Tensor:
    """One unpadded sequence through the model's own forward: logits (L, V) of the response."""
    ids = torch.cat([group.prompt_ids, response])[None]
    media = dict(group.media)
    if media:  # transformers' own M-RoPE ids depend on it
        media["mm_token_type_ids"] = (ids == IMAGE).long()
    return model(input_ids=ids, **media).logits[0, len(group.prompt_ids) - 1 : -1]


def _one_by_one(model: PreTrainedModel, groups: Sequence[PromptGroup]) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of all response tokens, sample after sample."""
    log_probs, entropies = [], []
    for group in groups:
        for response in group.responses:
            distribution = sampled_distribution(
                _plain_logits(model, group, response),
                temperature=_SAMPLING.temperature,
                forbidden=_SAMPLING.forbidden_token_ids,
            )
            log_probs.append(token_log_probs(distribution, response))
            entropies.append(token_entropy(distribution))
    return torch.cat(log_probs), torch.cat(entropies)


def _gradients(model: nn.Module, log_probs: Tensor) -> dict[str, Tensor]:
    """Of a sum in which every token has a weight of its own."""
    model.zero_grad()
    (log_probs * torch.linspace(-1, 2, len(log_probs))).sum().backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def _assert_all_agree(model: PreTrainedModel, groups: Sequence[PromptGroup]) -> None:
    expected, entropy = _one_by_one(model, groups)
    expected_gradients = _gradients(model, expected)
    for layout in _LAYOUTS:
        rows = _rows(model, groups, layout)
        log_probs, entropies = TokenPolicy(model)(rows, _SAMPLING)
        own = log_probs[rows.action_mask]
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(entropies[rows.action_mask], entropy, rtol=0, atol=1e-5)
        gradients = _gradients(model, own)
        assert gradients.keys() == expected_gradients.keys()
        for name, gradient in gradients.items():
            scale = expected_gradients[name].abs().max().item()
            error = (gradient - expected_gradients[name]).abs().max().item()
            assert error <= 1e-4 * scale, f"{layout}: {name}: {error} of {scale}"


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", _IMAGE_GROUPS)
def test_layouts_agree_with_one_by_one_for_images(name: str, attention: str) -> None:
    _assert_all_agree(vision_model(attention), _IMAGE_GROUPS[name])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_layouts_agree_with_one_by_one_for_text_models(attention: str) -> None:
    _assert_all_agree(text_model(attention), _TEXT_GROUPS)


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_padding_is_invisible(layout: RowLayout) -> None:
    """Neither the pad id nor a longer row beside it changes a group's log-probs."""
    model, groups = vision_model(), _IMAGE_GROUPS["images-and-text"]
    policy = TokenPolicy(model)
    alone = [policy(_rows(model, [group], layout), _SAMPLING)[0] for group in groups]
    for pad in (PAD, 5):
        rows = build_rows(groups, layout, position_rule(model.config), pad)
        together, _ = policy(rows, _SAMPLING)
        start = 0
        for own in alone:
            part = together[start : start + len(own), : own.shape[1]]
            torch.testing.assert_close(part, own, rtol=0, atol=1e-5)
            start += len(own)


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_results_are_zero_behind_a_responses_end(layout: RowLayout) -> None:
    model = vision_model()
    rows = _rows(model, _IMAGE_GROUPS["images"], layout)
    for result in TokenPolicy(model)(rows, _SAMPLING):
        assert result.dtype == torch.float32
        assert (result[~rows.action_mask] == 0).all()
        assert (result[rows.action_mask] != 0).all()


def test_entropy_has_no_gradient() -> None:
    model = text_model()
    log_probs, entropy = TokenPolicy(model)(_rows(model, _TEXT_GROUPS, "padded"), _SAMPLING)
    assert log_probs.requires_grad
    assert not entropy.requires_grad


def test_a_bfloat16_model_gives_float32_results() -> None:
    model = text_model().to(torch.bfloat16)
    rows = _rows(model, _TEXT_GROUPS, "shared_prefix")
    assert TokenPolicy(model)(rows, _SAMPLING)[0].dtype == torch.float32
    values = TokenCritic(model.base_model, seed=0)(rows)
    assert values.dtype == torch.float32


@pytest.mark.parametrize("name", _IMAGE_GROUPS)
def test_values_do_not_depend_on_the_layout(name: str) -> None:
    model = vision_model()
    critic = TokenCritic(model.base_model, seed=3)
    shared, *others = (_rows(model, _IMAGE_GROUPS[name], layout) for layout in _LAYOUTS)
    values = critic(shared)
    assert values.shape == shared.action_mask.shape
    assert (values[shared.action_mask] != 0).all()
    assert (values[~shared.action_mask] == 0).all()
    for rows in others:
        torch.testing.assert_close(values, critic(rows), rtol=0, atol=1e-5)


def test_the_value_of_an_action_is_that_of_the_state_before_it() -> None:
    """The first value depends on the prompt alone, the second also on the first action."""
    model = text_model()
    critic = TokenCritic(model.base_model, seed=3)
    group = PromptGroup(torch.tensor([3, 4]), [torch.tensor([5, 6]), torch.tensor([7, 6])], {})
    values = critic(_rows(model, [group], "shared_prefix"))
    hidden = model.base_model(input_ids=torch.tensor([[3, 4, 5]])).last_hidden_state[0, 1:]
    expected = critic.value_head(hidden)[:, 0]
    torch.testing.assert_close(values[0], expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(values[0, 0], values[1, 0])
    assert (values[0, 1] - values[1, 1]).abs() > 1e-3


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_policy_and_critic_see_the_pixels(layout: RowLayout) -> None:
    model = vision_model()
    first, second = _IMAGE_GROUPS["images"]
    pixels = first.media["pixel_values"].flip(0)
    changed = replace(first, media={**first.media, "pixel_values": pixels})
    before = _rows(model, [first, second], layout)
    after = _rows(model, [changed, second], layout)
    count = len(first.responses)
    for module in (TokenCritic(model.base_model, seed=3), TokenPolicy(model)):
        arguments = (_SAMPLING,) if isinstance(module, TokenPolicy) else ()
        old, new = module(before, *arguments), module(after, *arguments)
        if isinstance(module, TokenPolicy):
            old, new = old[0], new[0]
        own = before.action_mask[:count]
        assert ((old - new)[:count][own].abs() > 1e-4).all()
        torch.testing.assert_close(old[count:], new[count:], rtol=0, atol=1e-5)


def test_the_value_head_is_drawn_from_the_seed_alone() -> None:
    backbone = text_model().base_model
    heads = [TokenCritic(backbone, seed).value_head.weight for seed in (1, 1, 2)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert heads[0].dtype == torch.float32


def test_entropies_have_a_gradient_where_they_are_trained() -> None:
    """Forbidden tokens have a probability of 0, whose logarithm must not spoil the gradient."""
    model = text_model()
    rows = _rows(model, _TEXT_GROUPS, "padded")
    log_probs, entropy = TokenPolicy(model)(rows, _SAMPLING)
    assert log_probs.requires_grad and not entropy.requires_grad
    _, trained = TokenPolicy(model)(rows, _SAMPLING, trains_entropy=True)
    torch.testing.assert_close(trained, entropy)
    own = _gradients(model, trained[rows.action_mask])
    expected = _gradients(model, _one_by_one_entropy(model, _TEXT_GROUPS))
    assert all(gradient.isfinite().all() for gradient in own.values())
    assert any((gradient != 0).any() for gradient in own.values())
    for name, gradient in own.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-6)


def _one_by_one_entropy(model: PreTrainedModel, groups: Sequence[PromptGroup]) -> Tensor:
    """Of the softmax over the allowed tokens alone, by its formula."""
    entropies = []
    for group in groups:
        for response in group.responses:
            logits = _plain_logits(model, group, response) / _SAMPLING.temperature
            allowed = [i for i in range(logits.shape[1]) if i not in (IMAGE, VIDEO)]
            probabilities = logits[:, allowed].softmax(dim=-1)
            entropies.append(-(probabilities * probabilities.log()).sum(dim=-1))
    return torch.cat(entropies)
