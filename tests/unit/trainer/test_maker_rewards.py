"""Rewards of a whole rollout: where they come from, how they are shaped, what fails."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from makers import IMAGES, LABELS, PROMPTS, REFERENCES, maker, strategy
from PIL import Image
from torch import Tensor, nn

from lightrft_ray.config.errors import UserError
from lightrft_ray.trainer.experience_maker_vl import (
    ExperienceVL,
)

_INPUTS = (PROMPTS, IMAGES, REFERENCES, LABELS)


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


def test_lengths_are_compared_in_the_group_wherever_its_samples_lie(tiny_folder: Path) -> None:
    own = maker(tiny_folder, strategy=strategy(length_shaping="kimi", length_shaping_factor=2.0))
    experiences = [_experience([1.0, 0.0], [2, 4]), _experience([1.0, 1.0, 0.0, 0.0], [6, 3, 3, 3])]
    _, rewards = own.process_experiences(experiences)
    assert torch.cat(rewards).tolist() == [2.0, 0.0, 0.0, 1.0, 0.0, 0.0]


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


def test_rewards_that_ask_for_images_get_their_samples_own(tiny_folder: Path) -> None:
    seen: list[list[bytes]] = []

    def spy(images: Any, responses: Any) -> list[float]:
        seen.extend([image.data for image in own] for own in images)
        return [float(len(own)) for own in images]

    own = maker(tiny_folder, reward_fn=spy)
    experiences = [own.make_experience(batch) for batch in own.generate_samples(*_INPUTS)]
    rewards = torch.cat([each.info["reward"] for each in experiences])
    assert rewards.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    shown = [[], [IMAGES[1]], IMAGES[2]]
    for row, files in enumerate(seen):
        for content, image in zip(files, shown[row // 3], strict=True):
            assert Image.open(BytesIO(content)).tobytes() == image.tobytes()
    assert len({id(files[0]) for files in seen[4:6]}) == 1


def test_images_that_a_batch_has_only_as_pixels_are_an_error(tiny_folder: Path) -> None:
    own = maker(tiny_folder, reward_fn=lambda images: [0.0] * len(images))
    samples = own.generate_samples(*_INPUTS)[1]
    samples.raw_images = None
    with pytest.raises(ValueError, match="image_num counts 6 images, raw_images has 0"):
        own.make_experience(samples)


class _JsonRewards(BaseHTTPRequestHandler):
    """Gives each text its length."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rewards = [float(len(str(query))) for query in asked["query"]]
        body = json.dumps({"rewards": rewards}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


def test_rewards_of_a_service(tiny_folder: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _JsonRewards) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/get_reward"
        own = maker(tiny_folder, reward_fn=None, remote_rm_url=[address])
        samples = own.generate_samples(*_INPUTS)[0]
        rewards = own.make_experience(samples).info["reward"]
        server.shutdown()
        thread.join()
    texts = [p + r for p, r in zip(samples.prompts, samples.output_texts, strict=True)]
    assert rewards.tolist() == [float(len(text)) for text in texts]


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
    with pytest.raises(UserError, match=r"remote_rm_url 'host' is no address.*or give the path"):
        maker(tiny_folder, reward_fn=None, remote_rm_url=["host"])
    nowhere = maker(tiny_folder, reward_fn=None)
    with pytest.raises(UserError, match="no rewards: give one of"):
        nowhere.make_experience(nowhere.generate_samples(*_INPUTS)[0])


def test_rewards_of_tokens_reach_the_advantages(tiny_folder: Path) -> None:
    """By REINFORCE they are sums of what is to come; batches differ in width, and one has none."""

    def stepwise(response: str, label: str, response_token_ids: list[int]) -> Any:
        if label == "text":
            return 0.25
        return {
            "score": 1.0,
            "token_scores": [0.5 * (k + 1) for k in range(len(response_token_ids))],
        }

    settings = strategy(advantage_estimator="reinforce", init_kl_coef=0.0, whiten_advantages=False)
    own = maker(tiny_folder, reward_fn=stepwise, strategy=settings)
    experiences = own.make_experience_list(*_INPUTS)
    assert [each.info["labels"][0] for each in experiences] == ["text", "image", "images"]
    for experience in experiences:
        assert experience.info is not None and "process_rewards" not in experience.info
        rows = zip(experience.advantages, experience.action_mask, experience.info["labels"])  # noqa: B905
        for advantages, mask, label in rows:
            count = int(mask.sum())
            own_rewards = [0.0 if label == "text" else 0.5 * (k + 1) for k in range(count)]
            own_rewards[-1] += 0.25 if label == "text" else 1.0
            to_go = [sum(own_rewards[k:]) for k in range(count)]
            torch.testing.assert_close(advantages[mask], torch.tensor(to_go))
