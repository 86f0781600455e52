"""The load-balancing loss counts every sample whole, however rows are laid out."""

import pytest
import torch
from tiny_models import PAD, expert_model, prompt_group, text_model, vision_model
from torch import Tensor
from transformers import Qwen3VLMoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.positions import TextPositions
from lightrft_ray.models.routers import check_routers
from lightrft_ray.models.rows import RowLayout, Rows, build_rows
from lightrft_ray.models.token_models import Sampling, TokenPolicy

_GROUPS = [prompt_group(1, 5, [3, 1, 2]), prompt_group(2, 3, [4]), prompt_group(3, 9, [1, 1])]
_LAYOUTS = ("shared_prefix", "padded")


def _rows(layout: RowLayout) -> Rows:
    return build_rows(_GROUPS, layout, TextPositions(), PAD)


def _router_loss(model: torch.nn.Module, layout: RowLayout) -> Tensor:
    _, _, loss = TokenPolicy(model)(_rows(layout), Sampling(), with_router_loss=True)
    return loss


def _one_by_one(model: torch.nn.Module) -> Tensor:
    """transformers' own loss of the samples' tokens, each sample computed alone."""
    parts = []
    for group in _GROUPS:
        for response in group.responses:
            ids = torch.cat([group.prompt_ids, response])[None]
            parts.append(model.model(input_ids=ids, output_router_logits=True).router_logits)
    layers = tuple(torch.cat(of_layer) for of_layer in zip(*parts, strict=True))
    loss = load_balancing_loss_func(layers, num_experts=4, top_k=2)
    assert isinstance(loss, Tensor)
    return loss


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_the_loss_is_that_of_the_samples_one_by_one(layout: RowLayout) -> None:
    model = expert_model()
    loss, expected = _router_loss(model, layout), _one_by_one(model)
    assert float(expected.detach()) > 2.01  # two experts a token, and not balanced
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_its_gradient_is_that_of_the_samples_one_by_one(layout: RowLayout) -> None:
    model = expert_model()
    routers = [layer.mlp.gate.weight for layer in model.model.layers]
    own = torch.autograd.grad(_router_loss(model, layout), routers)
    expected = torch.autograd.grad(_one_by_one(model), routers)
    for one, other in zip(own, expected, strict=True):
        assert float(other.abs().max()) > 1e-3
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_log_probs_do_not_depend_on_it() -> None:
    policy = TokenPolicy(expert_model())
    with_loss = policy(_rows("shared_prefix"), Sampling(), with_router_loss=True)
    without = policy(_rows("shared_prefix"), Sampling())
    assert len(without) == 2
    assert all(torch.equal(one, other) for one, other in zip(with_loss, without, strict=False))


def test_models_without_experts_are_refused() -> None:
    for model in (text_model(), vision_model()):
        with pytest.raises(UserError) as refusal:
            check_routers(model.config, "model.pretrain a/b")
        for part in ("algorithm.aux_loss_coef", "model.pretrain a/b", model.config.model_type):
            assert part in str(refusal.value)


def test_models_with_experts_are_not() -> None:
    check_routers(expert_model().config, "model.pretrain a/b")
    check_routers(Qwen3VLMoeConfig(), "model.pretrain a/b")
