"""Critics: values in every layout, pixels seen, and what they may start from."""

from pathlib import Path

import pytest
import torch
from batches import Samples
from tiny_models import prompt_group, text_model, vision_model
from transformers import Qwen2ForSequenceClassification

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.critic_language import CriticLanguage
from lightrft_ray.models.critic_vl import CriticVL

_TEXT = [prompt_group(8, 3, [2, 3]), prompt_group(9, 6, [1, 4, 2])]
_MIXED = [prompt_group(3, 5, [4, 1]), prompt_group(4, 7, [2, 6], [(4, 4), (2, 4)])]
_CASES = {
    "text": (CriticLanguage, text_model, _TEXT),
    "vision": (CriticVL, vision_model, _MIXED),
}


@pytest.mark.parametrize("name", _CASES)
def test_values_are_those_of_the_states_before_the_actions(name: str) -> None:
    kind, build, groups = _CASES[name]
    samples, backbone = Samples.of(groups), build()
    for packs in (False, True):
        critic = kind(backbone, packing_samples=packs)
        values = critic(samples.padded, samples.num_actions, samples.mask, **samples.media)
        mask = samples.layout.action_mask
        assert values.dtype == torch.float32
        assert (values[~mask] == 0).all()
        row = 0
        for group in groups:
            for response in group.responses:
                ids = torch.cat([group.prompt_ids, response])[None]
                alone = critic(ids, len(response), **group.media)[0]
                torch.testing.assert_close(values[row, mask[row]], alone, rtol=0, atol=1e-5)
                row += 1
        packed = critic(
            samples.packed[None],
            samples.layout.response_lengths,
            packed_seq_lens=samples.layout.total_lengths,
            **samples.media,
        )
        torch.testing.assert_close(packed[0], values[mask], rtol=0, atol=1e-5)


def test_the_value_head_is_float32_on_a_bfloat16_model() -> None:
    critic = CriticLanguage(text_model().to(torch.bfloat16))
    tokens = torch.tensor([[3, 4, 5]])
    hidden = critic.model(tokens).last_hidden_state[:, 1].float()
    values = critic(tokens, 1)
    assert critic.value_head.weight.dtype == values.dtype == torch.float32
    assert torch.equal(values, critic.value_head(hidden))


def test_a_critic_sees_the_pixels_and_learns_through_them() -> None:
    samples, critic = Samples.of(_MIXED), CriticVL(vision_model())
    values = critic(samples.padded, samples.num_actions, samples.mask, **samples.media)
    media = {**samples.media, "pixel_values": samples.media["pixel_values"].flip(0)}
    changed = critic(samples.padded, samples.num_actions, samples.mask, **media)
    sees = samples.layout.action_mask[2:]
    assert ((values - changed)[2:][sees].abs() > 1e-5).all()
    torch.testing.assert_close(values[:2], changed[:2], rtol=0, atol=1e-6)
    values.sum().backward()
    assert critic.model.visual.patch_embed.proj.weight.grad.abs().max() > 0


def test_a_critic_that_cannot_see_refuses_images() -> None:
    with pytest.raises(UserError, match="pixel_values: models of the family 'qwen2'"):
        CriticVL(text_model())(torch.tensor([[3, 4]]), 1, pixel_values=torch.zeros(4, 96))


def test_a_critic_starts_from_a_policy_or_a_reward_model(tmp_path: Path) -> None:
    policy = text_model()
    reward_model = Qwen2ForSequenceClassification(policy.config)
    for source in (policy, reward_model):
        folder = tmp_path / type(source).__name__
        source.save_pretrained(folder)
        expected = source.base_model.embed_tokens.weight
        assert torch.equal(CriticLanguage(source).model.embed_tokens.weight, expected)
        critic = CriticLanguage(str(folder), bf16=False)
        assert torch.equal(critic.model.embed_tokens.weight, expected)


def test_adapters_and_the_value_head_train(capsys: pytest.CaptureFixture[str]) -> None:
    critic = CriticLanguage(text_model(), lora_rank=2)
    trained = {name for name, p in critic.named_parameters() if p.requires_grad}
    assert {"value_head.weight", "value_head.bias"} < trained
    assert all("lora_" in name or "value_head" in name for name in trained)
    critic.print_trainable_parameters()
    assert "trainable params" in capsys.readouterr().out
    assert critic(torch.tensor([[3, 4, 5]]), 2).shape == (1, 2)
