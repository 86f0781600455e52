"""Experience of one process: text, images and both in a batch, in every documented step."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from makers import IMAGES, LABELS, PROMPTS, REFERENCES, full_maker, maker, strategy
from torch import Tensor

from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, build_rows
from lightrft_ray.models.token_models import TokenPolicy
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.batch_media import media_of
from lightrft_ray.trainer.experience_maker import NaiveExperienceMaker
from lightrft_ray.trainer.experience_maker_vl import (
    NaiveExperienceMakerVL,
    SamplesVL,
)
from lightrft_ray.trainer.experience_rows import join_rows, split_experience
from lightrft_ray.trainer.rollout_advantages import add_advantages
from lightrft_ray.trainer.sample_layouts import pack_samples, unpack_samples

_INPUTS = (PROMPTS, IMAGES, REFERENCES, LABELS)


def test_the_signatures_are_the_documented_ones() -> None:
    parameters = inspect.signature(NaiveExperienceMakerVL.__init__).parameters.values()
    names = [parameter.name for parameter in parameters]
    models = ["actor", "critic", "reward_model", "initial_model", "tokenizer", "processor"]
    others = ["prompt_max_len", "kl_controller", "strategy", "remote_rm_url", "reward_fn"]
    assert names == ["self", *models, *others]
    assert [p.default for p in parameters][-3:] == [None, None, None]
    documented = {
        "generate_samples": "all_prompts all_images all_references all_labels generate_kwargs",
        "get_advantages_and_returns": "values rewards action_mask gamma lambd",
        "get_cumulative_returns": "rewards action_mask gamma",
        "make_experience": "samples",
        "make_experience_list": "all_prompts all_images all_references all_labels generate_kwargs",
        "process_experiences": "experiences",
        "processor_fn": "texts images max_length padding device",
        "tokenize_fn": "texts max_length padding device",
    }
    for name, arguments in documented.items():
        signature = inspect.signature(getattr(NaiveExperienceMakerVL, name))
        assert list(signature.parameters)[1:] == arguments.split(), name


def test_samples_are_group_major_and_know_their_media(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    batches = own.generate_samples(*_INPUTS, temperature=0.9)
    assert [len(batch.sequences) for batch in batches] == [4, 4, 1]
    assert [p for batch in batches for p in batch.prompts] == [p for p in PROMPTS for _ in range(3)]
    assert [n for batch in batches for n in batch.image_num or []] == [0] * 3 + [1] * 3 + [2] * 3
    for batch in batches:
        width = batch.sequences.shape[1] - int(batch.num_actions)
        media = media_of(batch, len(batch.sequences))
        for row, prompt in enumerate(batch.prompts):
            inputs = own.processor_fn([prompt], [IMAGES[PROMPTS.index(prompt)]], 64)
            real = batch.sequences[row, :width][batch.attention_mask[row, :width].bool()]
            assert torch.equal(real, inputs["input_ids"][0])
            if media[row].images.count:
                assert torch.equal(media[row].images.pixels, inputs["pixel_values"])
                assert torch.equal(media[row].images.grids, inputs["image_grid_thw"])
            length = int(batch.response_length[row])
            text = own.tokenizer.decode(
                batch.sequences[row, width : width + length], skip_special_tokens=True
            )
            assert batch.output_texts[row] == text
        assert torch.equal(batch.response_length, batch.action_mask.sum(dim=1))
        assert torch.equal(batch.total_length, batch.attention_mask.sum(dim=1))


def test_the_processor_runs_once_a_prompt(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    calls, processor = [], own.processor

    def counting(**arguments: Any) -> Any:
        calls.append(arguments["text"])
        return processor(**arguments)

    own.processor = counting  # type: ignore[assignment]
    own.generate_samples(*_INPUTS)
    assert calls == [[PROMPTS[1]], [PROMPTS[2]]]


def _groups(samples: SamplesVL) -> list[PromptGroup]:
    """The samples one by one, as the distributed path lays them out."""
    width = samples.sequences.shape[1] - int(samples.num_actions)
    groups = []
    for row, media in enumerate(media_of(samples, len(samples.sequences))):
        prompt = samples.sequences[row, :width][samples.attention_mask[row, :width].bool()]
        response = samples.sequences[row, width:][samples.action_mask[row]]
        images = media.images
        inputs = {"pixel_values": images.pixels, "image_grid_thw": images.grids}
        groups.append(PromptGroup(prompt, [response], inputs if images.count else {}))
    return groups


def test_experience_equals_that_of_the_distributed_paths_rows(tiny_folder: Path) -> None:
    own = full_maker(tiny_folder, micro_rollout_batch_size=9)
    (samples,) = own.generate_samples(*_INPUTS, temperature=0.8)
    experience = own.make_experience(samples)
    for actor, got in (
        (own.actor, experience.action_log_probs),
        (own.initial_model, experience.base_action_log_probs),
    ):
        policy = TokenPolicy(actor.model)
        rows = build_rows(_groups(samples), "padded", position_rule(actor.model.config), 0)
        expected, _ = policy(rows, actor.sampling)
        assert actor.sampling.temperature == 0.8
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    scores = Scores(
        rewards=experience.info["reward"],
        group_ids=torch.arange(9) // 3,
        action_log_probs=experience.action_log_probs,
        base_action_log_probs=experience.base_action_log_probs,
        values=experience.values,
    )
    whole = assemble_experience(samples, scores, own.settings.algorithm, kl_coef=0.3)
    (shaped,), rewards = own.process_experiences([experience])
    add_advantages([shaped], rewards, own.settings.algorithm, kl_coef=0.3)
    for name in ("kl", "advantages", "returns", "action_mask"):
        assert torch.equal(getattr(shaped, name), getattr(whole, name)), name


def test_packed_and_batched_samples_give_the_same_experience(tiny_folder: Path) -> None:
    own = full_maker(tiny_folder)
    for samples in own.generate_samples(*_INPUTS):
        packed = pack_samples(samples)
        assert packed.action_mask is None
        assert packed.sequences.shape == (1, int(samples.total_length.sum()))
        assert torch.equal(packed.attention_mask.unique(), torch.arange(len(samples.prompts)) + 1)
        again = unpack_samples(packed, 0)
        for name in ("action_mask", "attention_mask", "response_length", "total_length"):
            assert torch.equal(getattr(again, name), getattr(samples, name))
        one, other = own.make_experience(samples), own.make_experience(packed)
        for name in ("action_log_probs", "base_action_log_probs", "values", "kl", "action_mask"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name))
        assert torch.equal(one.info["reward"], other.info["reward"])


def test_what_samples_know_is_not_lost(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    samples = own.generate_samples(*_INPUTS)[1]
    info = own.make_experience(samples).info
    assert info["image_num"] == [1, 1, 2, 2]
    assert info["labels"] == ["image", "image", "images", "images"]
    assert info["references"] == ["two", "two", "three", "three"]
    assert info["prompts"] == samples.prompts
    assert info["output_texts"] == samples.output_texts
    for name in ("reward", "kl", "response_length", "total_length", "num_actions"):
        assert info[name].shape == (4,), name


def test_videos_stay_in_their_fields_and_log_probs_in_theirs(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    video = own.tokenizer.convert_tokens_to_ids("<|video_pad|>")
    grids, pixels = torch.tensor([[2, 4, 4]]), torch.randn(32, 1176)
    samples = SamplesVL(
        sequences=torch.tensor([[70, *[video] * 8, 71, 72, 73], [0] * 9 + [80, 81, 82]]),
        attention_mask=torch.tensor([[1] * 12, [0] * 9 + [1] * 3]),
        action_mask=torch.ones(2, 2).bool(),
        pixel_values_videos=pixels,
        video_grid_thws=grids,
        video_num=[1, 0],
        num_actions=2,
        references=["x", "y"],
        output_texts=["a", "b"],
    )
    experience = own.make_experience(samples)
    assert experience.pixel_values_videos is pixels
    assert experience.video_grid_thws is grids
    assert experience.pixel_values is None
    assert experience.info["video_num"] == [1, 0]
    alone = own.actor(samples.sequences[:1], 2, pixel_values_videos=pixels, video_grid_thw=grids)
    torch.testing.assert_close(experience.action_log_probs[:1], alone, rtol=0, atol=1e-5)
    first, second = split_experience(join_rows(split_experience(experience), 0))
    assert torch.equal(first.media.videos.pixels, pixels)
    assert second.media.videos.count == 0


def _slow_group_norm(rewards: Tensor) -> Tensor:
    groups = rewards.view(-1, 3)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (groups.std(dim=1, keepdim=True) + 1e-6)).flatten()


def test_advantages_compare_groups_that_are_cut_by_batches(tiny_folder: Path) -> None:
    experiences = maker(tiny_folder).make_experience_list(*_INPUTS)
    assert [len(each.sequences) for each in experiences] == [4, 4, 1]
    rewards = torch.cat([each.info["reward"] for each in experiences])
    assert len(rewards.unique()) > 3
    expected = _slow_group_norm(rewards)
    start = 0
    for each in experiences:
        own = expected[start : start + len(each.sequences), None] * each.action_mask
        torch.testing.assert_close(each.advantages, own, rtol=1e-4, atol=1e-5)
        start += len(each.sequences)


@pytest.mark.parametrize("sizes", [[9], [4, 4, 1], [1, 5, 3]])
def test_advantages_do_not_depend_on_the_batches(tiny_folder: Path, sizes: list[int]) -> None:
    """Discounts hold for every batch, and whitening is done once over all."""
    own = full_maker(tiny_folder, micro_rollout_batch_size=9)
    (whole,) = own.make_experience_list(*_INPUTS, gamma=0.9, lambd=0.7)
    values, rewards = whole.values, whole.info["reward"]
    assert own.settings.algorithm.gamma == 1.0
    algorithm = own.settings.with_discounts(0.9, 0.7)
    rows = split_experience(whole)
    parts, start = [], 0
    for size in sizes:
        part = join_rows(rows[start : start + size], 0)
        part.advantages = part.returns = None
        parts.append(part)
        start += size
    add_advantages(parts, list(rewards.split(sizes)), algorithm, kl_coef=0.3)
    for name in ("advantages", "returns"):
        got = torch.cat([getattr(part, name)[part.action_mask] for part in parts])
        torch.testing.assert_close(got, getattr(whole, name)[whole.action_mask])
    advantages = whole.advantages[whole.action_mask]
    assert abs(advantages.mean()) < 1e-5
    assert abs(advantages.var() - 1) < 1e-3
    raw, _ = own.get_advantages_and_returns(
        values, torch.zeros_like(values), whole.action_mask, 0.9, 0.7
    )
    assert (raw[~whole.action_mask] == 0).all()


def _one_for_all(responses: list[str]) -> list[float]:
    return [1.0] * len(responses)


def test_the_text_twin(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    actor = ActorLanguage(own.actor.model)
    rest = (None, None, None, own.tokenizer, 64, None, strategy())
    twin = NaiveExperienceMaker(actor, *rest, reward_fn=_one_for_all)
    samples = twin.generate_samples(["abc", "de"], ["x", "y"], None)
    assert [len(batch.sequences) for batch in samples] == [4, 2]
    assert samples[0].references == ["x", "x", "x", "y"]
    experiences = twin.make_experience_list("abc", ["x"], None)
    assert [len(each.sequences) for each in experiences] == [3]
    assert (experiences[0].advantages == 0).all()
    assert twin.tokenize_fn(["ab"], 4)["input_ids"].shape == (1, 2)
