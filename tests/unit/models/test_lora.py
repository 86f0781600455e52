"""Adapters: where they are put, and what trains with them."""

import pytest
import torch
from tiny_models import prompt_group, text_model, vision_model
from transformers import GPT2Config, GPT2LMHeadModel

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL


def _adapted(actor: ActorLanguage | ActorVL) -> set[str]:
    return {name.split(".lora_A")[0] for name, _ in actor.named_parameters() if ".lora_A" in name}


def test_adapters_alone_train_and_change_nothing_at_first() -> None:
    tokens = torch.randint(2, 60, (2, 6))
    expected = ActorLanguage(text_model())(tokens, 3)
    actor = ActorLanguage(text_model(), lora_rank=4)
    assert all(("lora_" in name) == p.requires_grad for name, p in actor.named_parameters())
    torch.testing.assert_close(actor(tokens, 3), expected, rtol=0, atol=1e-5)
    actor.gradient_checkpointing_enable()
    actor.train()(tokens, 3).sum().backward()
    grads = [p.grad for name, p in actor.named_parameters() if "lora_B" in name]
    assert all(grad is not None and grad.abs().max() > 0 for grad in grads)


def test_by_default_every_linear_layer_of_the_language_model_is_adapted() -> None:
    projections = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    for actor in (ActorLanguage(text_model(), lora_rank=2), ActorVL(vision_model(), lora_rank=2)):
        names = _adapted(actor)
        assert {name.rpartition(".")[2] for name in names} == projections
        assert len(names) == 2 * len(projections)
        assert not any("visual" in name for name in names)


def test_the_vision_tower_is_adapted_when_asked() -> None:
    actor = ActorVL(vision_model(), lora_rank=2, lora_vision_tower=True)
    assert any("visual.blocks.0.attn.qkv" in name for name in _adapted(actor))
    assert not any("lm_head" in name for name in _adapted(actor))


def test_target_modules_choose_and_leave_the_vision_tower_out() -> None:
    actor = ActorVL(vision_model(), lora_rank=2, target_modules=["q_proj", "down_proj"])
    names = _adapted(actor)
    assert {name.rpartition(".")[2] for name in names} == {"q_proj", "down_proj"}
    assert not any("visual" in name for name in names)


def test_a_target_that_matches_nothing_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"target_modules q_projj: .* nearest is q_proj"):
        ActorLanguage(text_model(), lora_rank=2, target_modules=["q_projj"])


def test_an_adapted_vision_model_generates_and_scores() -> None:
    group = prompt_group(6, 4, [1], [(4, 4)])
    actor = ActorVL(vision_model(), lora_rank=2)
    sequences, mask, actions = actor.generate(
        group.prompt_ids[None], max_new_tokens=3, **group.media
    )
    assert actor(sequences, actions.shape[1], mask, **group.media).shape == actions.shape


def test_models_with_transposed_linear_layers_are_adapted() -> None:
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    )
    actor = ActorLanguage(model, lora_rank=2)
    assert {name.rpartition(".")[2] for name in _adapted(actor)} == {"c_attn", "c_proj", "c_fc"}
    assert actor(torch.randint(2, 60, (1, 5)), 2).shape == (1, 2)


@pytest.mark.parametrize(("rank", "share"), [(0, "100.00"), (2, "")])
def test_printing_the_trainable_parameters(
    rank: int, share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    actor = ActorLanguage(text_model(), lora_rank=rank)
    actor.print_trainable_parameters()
    total = sum(p.numel() for p in actor.parameters())
    trained = sum(p.numel() for p in actor.parameters() if p.requires_grad)
    share = share or f"{100 * trained / total:.2f}"
    expected = f"trainable params: {trained:,} || all params: {total:,} || trainable%: {share}\n"
    assert capsys.readouterr().out == expected
