"""Reward models before samples: scores equal transformers' own, and a bad sample fails alone."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForImageTextToText, AutoProcessor

from lightrft_ray.config.serve_reward import ServeRewardConfig
from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl
from lightrft_ray.models.judge import GenerativeJudge
from lightrft_ray.models.judge_prompts import JudgedSample, JudgeTemplate
from lightrft_ray.models.verdicts import VerdictRule
from lightrft_ray.rewards.judge_reward import JudgeReward
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore
from lightrft_ray.rewards.scalar_reward import ScalarReward
from lightrft_ray.rewards.server.served import open_source

_TEMPLATE = "{prompt} {response}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2.5-VL with a head as OpenRLHF saves it, and weights that tell inputs apart."""
    folder = tmp_path_factory.mktemp("reward_model")
    build_tiny_qwen_vl(folder)
    file = folder / "model.safetensors"
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(each.shape, generator=generator) * 0.2 if each.dim() > 1 else each
        for name, each in load_file(file).items()
    }
    head = {"value_head.weight": torch.randn(1, 128, generator=generator)}
    save_file(weights | head, file, metadata={"format": "pt"})
    return folder


def _picture(side: int) -> tuple[EncodedMedia, Image.Image]:
    picture = Image.radial_gradient("L").convert("RGB").resize((side, 56))
    target = BytesIO()
    picture.save(target, format="PNG")
    return EncodedMedia(target.getvalue(), "image/png"), picture


def _sample(
    name: str, question: str, response: str, images: Sequence[EncodedMedia]
) -> RewardSample:
    parts = [{"type": "image"} for _ in images]
    return RewardSample(
        sample_id=name,
        prompt=question,
        messages=[{"role": "user", "content": [*parts, {"type": "text", "text": question}]}],
        response=response,
        response_token_ids=[1, 2, 3],
        reference="",
        label="",
        images=tuple(images),
    )


@pytest.fixture(scope="module")
def samples() -> list[RewardSample]:
    return [
        _sample("a", "how many birds are there?", "3", []),
        _sample("b", "what is it", "a disk", [_picture(56)[0]]),
        _sample("c", "one?", "1", []),
        _sample("d", "which", "b", [_picture(112)[0]]),
        _sample("e", "which", "c", [_picture(112)[0]]),
    ]


def _alone(folder: Path, sample: RewardSample, pictures: list[Image.Image]) -> float:
    """The head on the last token's state, by transformers' own model of one sample."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(folder)
    mark = "<|vision_start|><|image_pad|><|vision_end|>" * len(pictures)
    text = (
        f"<|im_start|>user\n{mark}{sample.prompt}<|im_end|>\n"
        f"<|im_start|>assistant\n{sample.response}<|im_end|>\n"
    )
    inputs = processor(text=[text], images=pictures or None, return_tensors="pt")
    with torch.no_grad():
        state = model(**inputs, output_hidden_states=True).hidden_states[-1][0, -1]
    return float(state @ load_file(folder / "model.safetensors")["value_head.weight"][0])


def test_scalar_scores_are_those_of_each_sample_alone(
    checkpoint: Path, samples: list[RewardSample]
) -> None:
    reward = ScalarReward.load(str(checkpoint), bf16=False, device="cpu", batch_size=2)
    scores = reward.score(samples)
    pictures = [[], [_picture(56)[1]], [], [_picture(112)[1]], [_picture(112)[1]]]
    expected = [_alone(checkpoint, s, p) for s, p in zip(samples, pictures, strict=True)]
    assert [score.sample_id for score in scores] == list("abcde")
    assert [score.score for score in scores] == pytest.approx(expected, abs=1e-4)
    assert len({round(each, 2) for each in expected}) == 5


def test_what_a_model_cannot_take_fails_alone(
    checkpoint: Path, samples: list[RewardSample]
) -> None:
    reward = ScalarReward.load(str(checkpoint), bf16=False, device="cpu", batch_size=8)
    broken = replace(samples[1], sample_id="x", images=(EncodedMedia(b"no image", "image/png"),))
    film = replace(samples[0], sample_id="y", videos=(EncodedMedia(b"", "video/mp4"),))
    asked = [samples[0], broken, samples[1], film]
    scores = reward.score(asked)
    assert [score.score is None for score in scores] == [False, True, False, True]
    assert str(scores[1].error).startswith("MediaError: image of 8 bytes")
    assert scores[3].error == "DataFault: reward models here see no videos"
    assert scores[2].score == pytest.approx(reward.score([samples[1]])[0].score, abs=1e-4)


def test_without_images_the_text_alone_is_scored(
    checkpoint: Path, samples: list[RewardSample]
) -> None:
    blind = ScalarReward.load(
        str(checkpoint), bf16=False, device="cpu", batch_size=8, show_images=False
    )
    seen, unseen = blind.score([samples[3], replace(samples[3], images=(), sample_id="f")])
    assert seen.score == pytest.approx(unseen.score, abs=1e-5)


def _first_character(judge: GenerativeJudge, sample: RewardSample) -> str:
    pictures = [Image.open(BytesIO(each.data)).convert("RGB") for each in sample.images]
    (answer,) = judge.answers([JudgedSample(sample.prompt, sample.response, images=pictures)])
    return answer[0].lower()


def test_a_judges_verdicts_are_scores_and_other_answers_none(
    checkpoint: Path, samples: list[RewardSample]
) -> None:
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(checkpoint)
    asked = JudgeTemplate(_TEMPLATE)
    first = [
        _first_character(_judge(model, processor, asked, {"x": 0.0}), sample) for sample in samples
    ]
    scores = {first[1]: 0.25}
    reward = JudgeReward(_judge(model, processor, asked, scores), batch_size=2)
    answers = reward.score(samples)
    assert [score.sample_id for score in answers] == list("abcde")
    assert [score.score for score in answers] == [scores.get(each) for each in first]
    assert answers[1].score == 0.25
    assert any("verdict" in str(score.error) for score in answers)


def _judge(
    model: nn.Module, processor: AutoProcessor, asked: JudgeTemplate, scores: dict[str, float]
) -> GenerativeJudge:
    rule = VerdictRule(r"(?s)\A(.)", scores=scores)
    return GenerativeJudge(model, processor, asked, rule, max_new_tokens=3)


@pytest.mark.parametrize("kind", ["scalar_model", "judge"])
def test_a_server_opens_what_its_file_names(
    checkpoint: Path, samples: list[RewardSample], kind: str
) -> None:
    reward: dict[str, object] = {"kind": kind, "pretrain": str(checkpoint)}
    if kind == "judge":
        reward |= {"template": _TEMPLATE, "max_new_tokens": 2, "show_images": False}

    async def story() -> list[SampleScore]:
        source, name = await open_source(ServeRewardConfig.model_validate({"reward": reward}))
        assert name == str(checkpoint)
        scores = await source.score(samples)
        await source.close()
        return scores

    scores = asyncio.run(story())
    assert [score.sample_id for score in scores] == list("abcde")
    if kind == "scalar_model":
        assert all(score.score is not None for score in scores)
    else:
        assert all("the judge gave no verdict" in str(score.error) for score in scores)
