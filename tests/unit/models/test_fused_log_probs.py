"""Fused log-probs equal the plain ones, gradients included, and never hold the logits whole."""

import math
from dataclasses import dataclass

import pytest
import torch
from tiny_models import text_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.fused_log_probs import fused_log_probs
from lightrft_ray.models.log_probs import (
    PLAIN_LOGITS,
    LogitRule,
    sampled_distribution,
    token_entropy,
    token_log_probs,
)
from lightrft_ray.models.output_heads import head_log_probs, logit_rule
from lightrft_ray.models.token_models import TokenPolicy

_TOKENS, _WIDTH, _VOCABULARY = 23, 8, 50
_SAMPLED = {"temperature": 0.7, "forbidden": (1, 4)}
_RULES = [PLAIN_LOGITS, LogitRule(scale=0.5), LogitRule(scale=2.0, softcap=3.0)]


@dataclass(frozen=True)
class _Inputs:
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    token_ids: Tensor

    @staticmethod
    def random(dtype: torch.dtype, *, biased: bool) -> "_Inputs":
        generator = torch.Generator().manual_seed(0)

        def leaf(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

        ids = torch.randint(5, _VOCABULARY, (_TOKENS,), generator=generator)
        bias = leaf(_VOCABULARY) if biased else None
        return _Inputs(leaf(_TOKENS, _WIDTH), leaf(_VOCABULARY, _WIDTH), bias, ids)

    @property
    def leaves(self) -> list[Tensor]:
        return [leaf for leaf in (self.hidden, self.weight, self.bias) if leaf is not None]

    def fused(self, rule: LogitRule, chunk_tokens: int | None = None) -> tuple[Tensor, Tensor]:
        return fused_log_probs(
            self.hidden,
            self.weight,
            self.bias,
            self.token_ids,
            rule=rule,
            chunk_tokens=chunk_tokens,
            **_SAMPLED,
        )

    def plain(self, rule: LogitRule) -> tuple[Tensor, Tensor]:
        logits = rule.apply(nn.functional.linear(self.hidden, self.weight, self.bias))
        distribution = sampled_distribution(logits, **_SAMPLED)
        return token_log_probs(distribution, self.token_ids), token_entropy(distribution)


def _loss(log_probs: Tensor, entropy: Tensor) -> Tensor:
    """Each token and each entropy has a weight of its own."""
    weights = torch.linspace(-1, 2, len(log_probs))
    return (weights * log_probs + weights.flip(0) * entropy).sum()


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rule", _RULES)
def test_gradients_are_those_of_finite_differences(rule: LogitRule, biased: bool) -> None:
    inputs = _Inputs.random(torch.float64, biased=biased)

    def scored(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        return _Inputs(*leaves[:2], leaves[2] if biased else None, inputs.token_ids).fused(rule, 5)

    assert torch.autograd.gradcheck(scored, inputs.leaves)


@pytest.mark.parametrize("chunk_tokens", [1, 5, _TOKENS, None])
@pytest.mark.parametrize("rule", _RULES)
def test_fused_equals_plain(rule: LogitRule, chunk_tokens: int | None) -> None:
    inputs = _Inputs.random(torch.float32, biased=True)
    plain, fused = inputs.plain(rule), inputs.fused(rule, chunk_tokens)
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-5)
    expected = torch.autograd.grad(_loss(*plain), inputs.leaves)
    torch.testing.assert_close(
        torch.autograd.grad(_loss(*fused), inputs.leaves), expected, rtol=1e-4, atol=1e-5
    )


def test_either_result_alone_has_its_gradient() -> None:
    inputs = _Inputs.random(torch.float32, biased=False)
    for which in (0, 1):
        plain = torch.autograd.grad(inputs.plain(PLAIN_LOGITS)[which].sum(), inputs.leaves)
        fused = torch.autograd.grad(inputs.fused(PLAIN_LOGITS, 7)[which].sum(), inputs.leaves)
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)


def test_a_frozen_weight_gets_no_gradient() -> None:
    inputs = _Inputs.random(torch.float32, biased=False)
    inputs.weight.requires_grad_(False)
    inputs.fused(PLAIN_LOGITS)[0].sum().backward()
    assert inputs.weight.grad is None
    assert inputs.hidden.grad is not None


def test_bfloat16_inputs_give_float32_results_and_gradients_of_their_own_type() -> None:
    inputs = _Inputs.random(torch.bfloat16, biased=True)
    plain, fused = inputs.plain(PLAIN_LOGITS), inputs.fused(PLAIN_LOGITS, 5)
    assert {result.dtype for result in fused} == {torch.float32}
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-5)
    gradients = torch.autograd.grad(_loss(*fused), inputs.leaves)
    assert {gradient.dtype for gradient in gradients} == {torch.bfloat16}
    expected = torch.autograd.grad(_loss(*plain), inputs.leaves)
    for own, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0.02 * other.abs().max().item())


def test_a_forbidden_token_has_no_probability() -> None:
    inputs = _Inputs.random(torch.float32, biased=False)
    inputs.token_ids[3] = _SAMPLED["forbidden"][0]
    log_probs, entropy = inputs.fused(PLAIN_LOGITS)
    assert log_probs[3] == -math.inf
    assert log_probs.isfinite().sum() == _TOKENS - 1
    assert entropy.isfinite().all()


class _LargestTensor(TorchDispatchMode):
    """Counts the elements of the largest tensor that any operation makes."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if torch.is_tensor(value):
                self.largest = max(self.largest, value.numel())
        return result


@pytest.mark.parametrize("adapted", [False, True], ids=["linear", "adapted"])
def test_the_logits_never_exist_whole(adapted: bool) -> None:
    head: nn.Module = nn.Linear(4, _VOCABULARY, bias=False)
    head = nn.Sequential(head, nn.Identity()) if adapted else head
    hidden, ids = torch.randn(100, 4, requires_grad=True), torch.randint(5, 50, (100,))
    with _LargestTensor() as seen:
        results = head_log_probs(head, hidden, ids, trains_entropy=True, chunk_tokens=8, **_SAMPLED)
        _loss(*results).backward()
    assert hidden.grad is not None
    assert seen.largest == 8 * _VOCABULARY


def test_an_adapted_head_equals_the_plain_computation() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(text_model(), LoraConfig(r=2, target_modules=["lm_head"]))
    head = model.get_base_model().get_output_embeddings()
    assert type(head) is not nn.Linear
    nn.init.normal_(head.lora_B["default"].weight)
    trained = [parameter for parameter in head.parameters() if parameter.requires_grad]
    hidden, ids = torch.randn(20, 32), torch.randint(5, 60, (20,))
    distribution = sampled_distribution(head(hidden), **_SAMPLED)
    plain = token_log_probs(distribution, ids), token_entropy(distribution)
    fused = head_log_probs(head, hidden, ids, trains_entropy=True, chunk_tokens=6, **_SAMPLED)
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-5)
    expected = torch.autograd.grad(_loss(*plain), trained)
    found = torch.autograd.grad(_loss(*fused), trained)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_heads_hooks_run_around_the_fused_computation() -> None:
    """ZeRO-3 gathers the weight in them, forward and backward."""
    head, seen = nn.Linear(4, _VOCABULARY), []
    head.register_forward_pre_hook(lambda *_: seen.append("before"))
    head.register_forward_hook(lambda _module, _inputs, outputs: seen.append(len(outputs)))
    head_log_probs(head, torch.randn(3, 4), torch.tensor([7, 8, 9]), **_SAMPLED)
    assert seen == ["before", 2]
    assert head(torch.randn(3, 4)).shape == (3, _VOCABULARY)


_FAMILIES = {
    "gemma2": {"final_logit_softcapping": 2.0, "attn_logit_softcapping": None},
    "gemma3_text": {"final_logit_softcapping": 2.0},
    "granite": {"logits_scaling": 4.0},
    "cohere": {"logit_scale": 0.25},
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_log_probs_are_of_the_logits_that_a_family_gives(family: str) -> None:
    config = AutoConfig.for_model(
        family,
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        initializer_range=0.5,
        pad_token_id=0,
        **_FAMILIES[family],
    )
    torch.manual_seed(0)
    actor = ActorLanguage(AutoModelForCausalLM.from_config(config).eval())
    tokens = torch.randint(2, 64, (2, 7))
    logits = actor.model(tokens).logits[:, 2:-1].float()
    expected = logits.log_softmax(-1).gather(-1, tokens[:, 3:, None])[..., 0]
    torch.testing.assert_close(actor(tokens, 4), expected, rtol=0, atol=1e-5)
    assert logit_rule(config) != PLAIN_LOGITS


def test_a_family_with_an_unknown_rule_is_refused() -> None:
    model = text_model()
    model.config.lm_head_multiplier = 2.0
    with pytest.raises(UserError, match="'qwen2' change their logits by 'lm_head_multiplier'"):
        TokenPolicy(model)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_equals_plain_on_a_gpu(dtype: torch.dtype) -> None:
    own = _Inputs.random(dtype, biased=True)
    moved = [leaf.detach().cuda().requires_grad_() for leaf in own.leaves]
    inputs = _Inputs(*moved, own.token_ids.cuda())
    plain, fused = inputs.plain(PLAIN_LOGITS), inputs.fused(PLAIN_LOGITS, 5)
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-5)
    weights = torch.ones(_TOKENS, device="cuda")
    gradients = torch.autograd.grad(fused, inputs.leaves, [weights, weights])
    expected = torch.autograd.grad(plain, inputs.leaves, [weights, weights])
    for a, b in zip(gradients, expected, strict=True):
        bound = 1e-5 if dtype == torch.float32 else 0.02 * b.abs().max().item()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=bound)
