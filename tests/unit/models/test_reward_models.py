"""Scalar reward models: the heads of checkpoints, every layout, and transformers' own scores."""

from pathlib import Path

import pytest
import torch
from batches import MIXED_GROUPS, TEXT_GROUPS, Samples
from safetensors.torch import load_file, save_file
from tiny_models import IMAGE, text_model, vision_model
from torch import Tensor, nn
from transformers import PreTrainedModel, Qwen2ForSequenceClassification

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.reward_scalar import ScalarRewardModel, pairwise_loss


def _classifier(labels: int = 1) -> Qwen2ForSequenceClassification:
    config = text_model().config
    config.num_labels = labels
    torch.manual_seed(0)
    return Qwen2ForSequenceClassification(config).eval()


def _save_with_value_head(model: PreTrainedModel, folder: Path, **settings: float) -> nn.Linear:
    """As OpenRLHF does: the backbone's weights, the head's, and mean and std in the config."""
    head = nn.Linear(32, 1)
    for name, value in settings.items():
        setattr(model.config, name, value)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    own = {"value_head.weight": head.weight.data, "value_head.bias": head.bias.data}
    save_file(load_file(file) | own, file, metadata={"format": "pt"})
    return head


def _rewards(model: ScalarRewardModel, samples: Samples) -> list[Tensor]:
    """Of the padded and of the packed batch."""
    return [
        model(samples.padded, samples.mask, **samples.media),
        model(samples.packed[None], packed_seq_lens=samples.layout.total_lengths, **samples.media),
    ]


@pytest.mark.parametrize("packs", [False, True])
def test_rewards_are_those_of_transformers_own_classifier(packs: bool, tmp_path: Path) -> None:
    classifier, samples = _classifier(), Samples.of(TEXT_GROUPS)
    classifier.save_pretrained(tmp_path)
    alone = [
        classifier(torch.cat([group.prompt_ids, response])[None]).logits[0, 0]
        for group in TEXT_GROUPS
        for response in group.responses
    ]
    for source in (classifier, str(tmp_path)):
        model = ScalarRewardModel(source, bf16=False, packing_samples=packs)
        for rewards in _rewards(model, samples):
            assert rewards.dtype == torch.float32
            torch.testing.assert_close(rewards, torch.stack(alone), rtol=0, atol=1e-5)
    assert torch.stack(alone).std() > 0.01


@pytest.mark.parametrize("packs", [False, True])
def test_a_vision_model_with_a_value_head_sees_its_pixels(packs: bool, tmp_path: Path) -> None:
    """Normalized by the checkpoint's mean and std, or not if asked."""
    policy, samples = vision_model(), Samples.of(MIXED_GROUPS)
    head = _save_with_value_head(policy, tmp_path, mean=0.5, std=2.0)
    expected = []
    for group in MIXED_GROUPS:
        for response in group.responses:
            ids = torch.cat([group.prompt_ids, response])[None]
            media: dict[str, Tensor] = dict(group.media)
            if media:
                media["mm_token_type_ids"] = (ids == IMAGE).long()
            expected.append(head(policy.base_model(ids, **media).last_hidden_state[0, -1])[0])
    raw = torch.stack(expected)
    for normalize, wanted in ((False, raw), (True, (raw - 0.5) / 2)):
        model = ScalarRewardModel(
            str(tmp_path), bf16=False, packing_samples=packs, normalize=normalize
        )
        for rewards in _rewards(model, samples):
            torch.testing.assert_close(rewards, wanted, rtol=0, atol=1e-5)
    changed = {**samples.media, "pixel_values": samples.media["pixel_values"].flip(0)}
    moved = model(samples.padded, samples.mask, **changed) - wanted
    assert (moved[2:].abs() > 1e-4).all() and (moved[:2].abs() < 1e-5).all()


def test_a_head_of_a_sharded_checkpoint_is_found(tmp_path: Path) -> None:
    classifier = _classifier()
    classifier.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    head = ScalarRewardModel(str(tmp_path)).value_head
    assert torch.equal(head.weight, classifier.score.weight)
    assert head.weight.dtype == torch.float32


def test_a_checkpoint_without_a_head_is_refused_unless_a_new_one_is_asked_for(
    tmp_path: Path,
) -> None:
    policy = text_model()
    policy.save_pretrained(tmp_path)
    for source in (str(tmp_path), policy):
        with pytest.raises(UserError, match=r"it has no head .*new_head=True"):
            ScalarRewardModel(source)
        assert ScalarRewardModel(source, new_head=True).value_head.weight.shape == (1, 32)


def test_a_head_of_more_than_one_output_is_refused(tmp_path: Path) -> None:
    classifier = _classifier(labels=3)
    classifier.save_pretrained(tmp_path)
    for source in (str(tmp_path), classifier):
        with pytest.raises(UserError, match=r"score is \(3, 32\): a scalar head is \(1, 32\)"):
            ScalarRewardModel(source)


def test_a_new_head_learns_from_pairs_and_from_scores() -> None:
    model, samples = ScalarRewardModel(text_model(), new_head=True), Samples.of(TEXT_GROUPS)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        rewards = model(samples.padded, samples.mask)
        regression = (rewards[2:] - torch.tensor([1.0, -1.0, 0.5])).square().mean()
        loss = pairwise_loss(rewards[:1], rewards[1:2], margin=0.5) + regression
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert rewards[0] > rewards[1] + 0.5
    torch.testing.assert_close(rewards[2:], torch.tensor([1.0, -1.0, 0.5]), rtol=0, atol=0.2)


def test_the_pairwise_loss_is_the_papers() -> None:
    chosen, rejected = torch.tensor([1.0, 0.2]), torch.tensor([0.5, 0.9])
    expected = torch.log1p(torch.exp(-(chosen - rejected - 0.1))).mean()
    torch.testing.assert_close(pairwise_loss(chosen, rejected, margin=0.1), expected)


def test_a_text_model_refuses_images() -> None:
    model = ScalarRewardModel(_classifier())
    with pytest.raises(UserError, match="pixel_values: models of the family 'qwen2'"):
        model(torch.tensor([[3, 4]]), pixel_values=torch.zeros(4, 96))


def test_a_std_that_is_not_positive_is_refused(tmp_path: Path) -> None:
    _save_with_value_head(text_model(), tmp_path, mean=0.0, std=0.0)
    with pytest.raises(UserError, match=r"std 0\.0 in its configuration"):
        ScalarRewardModel(str(tmp_path))
