"""Experience of one process: text, images and both in a batch, in every documented step."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from makers import IMAGES, LABELS, PROMPTS, REFERENCES, full_maker, maker, picture, strategy
from torch import Tensor, nn

from lightrft_ray.config import RunConfig
from lightrft_ray.config.errors import UserError
from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, build_rows
from lightrft_ray.models.token_models import TokenPolicy
from lightrft_ray.trainer.assemble import Scores, assemble_experience
from lightrft_ray.trainer.experience_maker import NaiveExperienceMaker
from lightrft_ray.trainer.experience_maker_vl import (
    ExperienceVL,
    NaiveExperienceMakerVL,
    SamplesVL,
)
from lightrft_ray.trainer.experience_rows import join_rows, split_experience
from lightrft_ray.trainer.experience_settings import ExperienceSettings, experience_settings
from lightrft_ray.trainer.media import media_of
from lightrft_ray.trainer.rollout_advantages import add_advantages
from lightrft_ray.trainer.sample_layouts import pack_samples, unpack_samples

_INPUTS = (PROMPTS, IMAGES, REFERENCES, LABELS)


@pytest.fixture(autouse=True, scope="module")
def single_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


def _experience(rewards: list[float], lengths: list[int] | None = None) -> ExperienceVL:
    size = len(rewards)
    return ExperienceVL(
        torch.ones(size, 3).long(),
        attention_mask=torch.ones(size, 3).long(),
        action_mask=torch.ones(size, 2).bool(),
        action_log_probs=torch.zeros(size, 2),
        info={
            "reward": torch.tensor(rewards),
            "response_length": torch.tensor(lengths or [2] * size),
            "prompts": [f"prompt {row}" for row in range(size)],
        },
    )


def test_rewards_are_split_by_the_experiences_real_sizes(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    given = [_experience([1.0, 2.0]), _experience([3.0]), _experience([4.0, 5.0, 6.0])]
    experiences, rewards = own.process_experiences(given)
    assert experiences == given
    assert [part.tolist() for part in rewards] == [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]
    assert [each.info["group_ids"].tolist() for each in experiences] == [[0, 0], [0], [1, 1, 1]]
    with pytest.raises(ValueError, match="hold 4 samples, no multiple of n_samples_per_prompt 3"):
        own.process_experiences([_experience([1.0] * 4)])
    assert own.process_experiences([]) == ([], [])


def test_dynamic_sampling_leaves_out_groups_of_equal_rewards(tiny_folder: Path) -> None:
    """Whatever their reward is; those that stay keep their masks."""
    own = maker(tiny_folder, strategy=strategy(dynamic_sampling=True))
    given = [
        _experience([0.5, 0.5]),
        _experience([0.5, 0.0]),
        _experience([1.0, 0.0, 1.0, 1.0, 1.0]),
    ]
    experiences, rewards = own.process_experiences(given)
    assert [part.tolist() for part in rewards] == [[0.0], [1.0, 0.0]]
    assert [each.info["prompts"] for each in experiences] == [
        ["prompt 1"],
        ["prompt 0", "prompt 1"],
    ]
    assert all(each.action_mask.all() for each in experiences)
    assert own.process_experiences([_experience([0.5] * 3)]) == ([], [])


def test_rewards_are_clipped_and_long_responses_punished(tiny_folder: Path) -> None:
    settings = strategy(
        reward_clip_range=(-1.0, 2.0),
        overlong_buffer=True,
        overlong_buffer_len=4,
        overlong_buffer_penalty_factor=0.5,
        generate_max_len=10,
    )
    _, (rewards,) = maker(tiny_folder, strategy=settings).process_experiences(
        [_experience([9.0, -9.0, 1.0], [6, 8, 10])]
    )
    assert rewards.tolist() == [2.0, -1.25, 0.5]
    off = strategy(overlong_buffer=False, overlong_buffer_len=4, generate_max_len=10)
    _, (rewards,) = maker(tiny_folder, strategy=off).process_experiences(
        [_experience([9.0, -9.0, 1.0], [6, 8, 10])]
    )
    assert rewards.tolist() == [9.0, -9.0, 1.0]


def test_running_normalisation_goes_on_over_rollouts(tiny_folder: Path) -> None:
    own = maker(tiny_folder, strategy=strategy(reward_running_norm=True))
    own.process_experiences([_experience([1.0, 3.0, 5.0])])
    _, (rewards,) = own.process_experiences([_experience([7.0, 9.0, float("nan")])])
    std = torch.tensor([1.0, 3.0, 5.0, 7.0, 9.0]).std()
    torch.testing.assert_close(rewards[:2], torch.tensor([7.0, 9.0]) / std)
    assert rewards[2].isnan()


def test_a_failed_reward_masks_its_sample_and_never_counts_as_zero(tiny_folder: Path) -> None:
    def failing(responses: list[str], labels: list[str]) -> list[float]:
        if len(responses) > 1:
            raise RuntimeError("not as a batch")
        if labels == ["text"]:
            raise RuntimeError("no rule for text")
        return [float(len(responses[0]) % 3)]

    experiences = maker(tiny_folder, reward_fn=failing).make_experience_list(*_INPUTS)
    rewards = torch.cat([each.info["reward"] for each in experiences])
    used = torch.cat([each.action_mask.any(dim=1) for each in experiences])
    assert rewards.isnan().tolist() == [True] * 3 + [False] * 6
    assert used.tolist() == [False] * 3 + [True] * 6
    assert all((each.advantages[~each.action_mask] == 0).all() for each in experiences)


def test_rewards_see_prompt_response_reference_and_label_apart(tiny_folder: Path) -> None:
    seen: dict[str, list[str]] = {}

    def spy(prompts: Any, responses: Any, references: Any, labels: Any) -> list[float]:
        seen.update(prompts=prompts, responses=responses, references=references, labels=labels)
        return [0.0] * len(prompts)

    own = maker(tiny_folder, reward_fn=spy)
    samples = own.generate_samples(*_INPUTS)[0]
    own.make_experience(samples)
    assert seen["prompts"] == [PROMPTS[0]] * 3 + [PROMPTS[1]]
    assert seen["responses"] == samples.output_texts
    assert seen["references"] == ["one"] * 3 + ["two"]
    assert seen["labels"] == ["text"] * 3 + ["image"]


class _ConstantReward(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, sequences: Tensor, attention_mask: Tensor, **media: Tensor) -> Tensor:
        self.seen = set(media)
        return torch.full((len(sequences), 1), self.value)


def test_a_reward_model_sees_the_pixels_and_may_not_give_nan(tiny_folder: Path) -> None:
    model = _ConstantReward(2.0)
    own = maker(tiny_folder, reward_fn=None, reward_model=model)
    samples = own.generate_samples(*_INPUTS)[1]
    assert own.make_experience(samples).info["reward"].tolist() == [2.0] * 4
    assert model.seen == {"pixel_values", "image_grid_thw"}
    model.value = float("nan")
    with pytest.raises(ValueError, match=r"What is it.*: reward_model gave nan"):
        own.make_experience(samples)


def test_a_file_with_a_reward_function(tiny_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "rule.py"
    file.write_text("def reward_func(labels):\n    return [float(len(each)) for each in labels]\n")
    own = maker(tiny_folder, reward_fn=None, remote_rm_url=[str(file)])
    samples = own.generate_samples(*_INPUTS)[0]
    assert own.make_experience(samples).info["reward"].tolist() == [4.0, 4.0, 4.0, 5.0]


def test_rewards_come_from_one_known_place(tiny_folder: Path) -> None:
    with pytest.raises(UserError, match="not from reward_model and reward_fn"):
        maker(tiny_folder, reward_model=_ConstantReward(1.0))
    with pytest.raises(UserError, match="remote_rm_url http://host: reward services"):
        maker(tiny_folder, reward_fn=None, remote_rm_url=["http://host"])
    nowhere = maker(tiny_folder, reward_fn=None)
    with pytest.raises(UserError, match="no rewards: give one of"):
        nowhere.make_experience(nowhere.generate_samples(*_INPUTS)[0])


def test_tokenizing_pads_on_the_left_and_never_cuts(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    batch = own.tokenize_fn(["abc", "a"], 3)
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert own.tokenize_fn(["abc", "a"], 3, padding=False) == [
        batch["input_ids"][0].tolist(),
        batch["input_ids"][1, 2:].tolist(),
    ]
    with pytest.raises(ValueError, match="prompt 'abc': 3 tokens, over the limit 2"):
        own.tokenize_fn(["abc", "a"], 2)


def test_a_prompt_that_is_too_long_with_its_image_is_named(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    own.prompt_max_len = 12
    with pytest.raises(ValueError, match=r"What is it\?': 17 tokens, over the limit 12"):
        own.generate_samples(PROMPTS[1:2], IMAGES[1:2], None, None)


def test_inputs_of_processor_fn_are_for_each_text_or_for_the_batch(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    batch = own.processor_fn(PROMPTS, IMAGES, 64)
    single = own.processor_fn(PROMPTS, IMAGES, 64, padding=False)
    assert "pixel_values" not in single[0]
    pixels = torch.cat([single[1]["pixel_values"], single[2]["pixel_values"]])
    assert torch.equal(batch["pixel_values"], pixels)
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4], [1, 4, 4], [1, 4, 6]]
    text_only = own.processor_fn(["abc"], None, 64)
    assert set(text_only) == {"input_ids", "attention_mask"}


def test_bad_lists_and_missing_processors_are_named(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    with pytest.raises(ValueError, match="images has 1 entries for 3 prompts"):
        own.generate_samples(PROMPTS, [None], None, None)
    with pytest.raises(ValueError, match="all_labels has 1 entries for 3 prompts"):
        own.generate_samples(PROMPTS, IMAGES, None, ["x"])
    own.processor = None
    with pytest.raises(ValueError, match="has images, but there is no processor"):
        own.generate_samples(PROMPTS[:1], [picture(1)], None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_actions": 3}, r"action_mask is \(4, 5\), for 4 sequences with num_actions 3"),
        ({"attention_mask": torch.ones(1, 2)}, r"attention_mask is \(1, 2\), for sequences"),
        ({"action_mask": None}, "action_mask is missing"),
        ({"labels": ["x"]}, "labels has 1 entries for 4 samples"),
        ({"image_num": [0, 0, 0, 0]}, "image_num: .* counts 0 rows, image_grid_thws has"),
        (
            {"image_num": [0, 0, 0, 2]},
            r"image_num: .*What is it\?.* 2 rows, image_grid_thws has 1",
        ),
    ],
)
def test_samples_that_do_not_fit_are_named(
    tiny_folder: Path, changes: dict[str, Any], message: str
) -> None:
    own = maker(tiny_folder, strategy=strategy(generate_max_len=5))
    samples = own.generate_samples(*_INPUTS, min_new_tokens=5)[0]
    for name, value in changes.items():
        setattr(samples, name, value)
    with pytest.raises(ValueError, match=message):
        own.make_experience(samples)


def test_actions_outside_the_response_name_the_prompt(tiny_folder: Path) -> None:
    own = maker(tiny_folder)
    samples = own.generate_samples(*_INPUTS, min_new_tokens=5)[0]
    samples.attention_mask[3, -2:] = 0
    with pytest.raises(ValueError, match=r"What is it\?: 5 actions in a response of 3 tokens"):
        own.make_experience(samples)


def test_an_unknown_estimator_is_named(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match="advantage_estimator"):
        maker(tiny_folder, strategy=strategy(advantage_estimator="gea"))


def test_what_a_strategy_may_be() -> None:
    defaults = experience_settings(None)
    assert defaults == experience_settings(RunConfig()) == ExperienceSettings()
    assert experience_settings(defaults) is defaults
    own = experience_settings(strategy(gamma=0.5, lambd=None, init_kl_coef=0.1, use_kl_loss=None))
    assert own.algorithm.init_kl_coef == 0.1
    assert own.algorithm.use_kl_loss is RunConfig().algorithm.use_kl_loss
    assert (own.n_samples_per_prompt, own.micro_rollout_batch_size, own.max_new_tokens) == (3, 4, 5)
    with pytest.raises(ValueError, match="strategy is a dict"):
        experience_settings({})
    with pytest.raises(ValueError, match="n_samples_per_prompt 0"):
        experience_settings(strategy(n_samples_per_prompt=0))
    with pytest.raises(ValueError, match=r"gamma 1\.5"):
        own.with_discounts(1.5, None)


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
