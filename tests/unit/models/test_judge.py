"""Generative judges: their prompt, their verdicts, and asking a real model."""

import math
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl
from lightrft_ray.models.judge import GenerativeJudge
from lightrft_ray.models.judge_prompts import JudgedSample, JudgeTemplate
from lightrft_ray.models.verdicts import VerdictRule

_FORBIDDEN = [259, 260, 261, 262]  # vision start and end, image and video placeholders
_NUMBERS = VerdictRule(lowest=0, highest=10)


def test_fields_are_filled_in_and_their_braces_stay() -> None:
    template = JudgeTemplate("Q {prompt} A {response} {{R}} {reference}|{label}|{response}")
    sample = JudgedSample("{response}", "f{{x}}", "7", "sum")
    assert template.render(sample) == "Q {response} A f{{x}} {R} 7|sum|f{{x}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{respones}", r"no such field as \{respones\}; the nearest is \{response\}"),
        ("{}{response}", r"no such field as \{\}"),
        ("{response} {", "lone '{' at character 11"),
        ("} {response}", "lone '}' at character 0"),
        ("{prompt}", r"it has no \{response\}"),
    ],
)
def test_a_template_that_cannot_be_filled_in_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        JudgeTemplate(text)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Verdict: 7", 7),
        ("It is sound.\nverdict: 0.5.\n", 0.5),
        ("  VERDICT :10  \nThank you.", 10),
        ("Verdict: 3\nI repeat,\nVerdict: 3", 3),
    ],
)
def test_verdicts_that_are_numbers(answer: str, score: float) -> None:
    assert _NUMBERS.parse(answer).score == score
    assert _NUMBERS.parse(answer).fault is None


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("", "no verdict"),
        ("I would say 7.", "no verdict"),
        ("My verdict: 7 is final", "no verdict"),
        ("Verdict: 7 out of 10", "no verdict"),
        ("Verdict:", "no verdict"),
        ("Verdict: seven", "'seven' is no number"),
        ("Verdict: nan", "'nan' is no number"),
        ("Verdict: 1e9", "'1e9' is no number"),
        ("Verdict: 7\nVerdict: 8", "more than one verdict: 7, 8"),
        ("Verdict: 11", "is not from 0 to 10"),
        ("Verdict: -1", "is not from 0 to 10"),
    ],
)
def test_what_is_no_verdict_is_a_fault_and_never_a_number(answer: str, fault: str) -> None:
    verdict = _NUMBERS.parse(answer)
    assert math.isnan(verdict.score)
    assert verdict.fault is not None and fault in verdict.fault


def test_verdicts_that_are_words() -> None:
    rule = VerdictRule(r"^\[\[(\w+)\]\]$", scores={"A": 1.0, "B": 0.0})
    assert rule.parse("because\n[[a]]").score == 1
    assert rule.parse("[[C]]").fault == "the judge's verdict 'c' is none of a, b"
    assert rule.parse("x" * 200).fault == f"the judge gave no verdict: '…{'x' * 80}'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "Verdict: .*"}, "has 0 groups"),
        ({"pattern": "("}, "judge verdict pattern '\\('"),
        ({"lowest": 1.0, "highest": 1.0}, "lowest 1 is not below highest 1"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        VerdictRule(**arguments)


def test_a_model_is_asked_about_every_sample_in_batches(tmp_path: Path) -> None:
    """Batched answers are those that transformers gives one by one, images and all."""
    build_tiny_qwen_vl(tmp_path)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32)
    torch.manual_seed(0)
    for weight in model.parameters():  # else every answer repeats the prompt's last token
        torch.nn.init.normal_(weight, std=0.2)
    processor = AutoProcessor.from_pretrained(tmp_path)
    template = JudgeTemplate("{prompt}? {response}")
    judge = GenerativeJudge(
        model, processor, template, VerdictRule(r"(?s)^(.)"), max_new_tokens=5, batch_size=2
    )
    picture = Image.radial_gradient("L").convert("RGB").resize((56, 84))
    samples = [
        JudgedSample("two", "2"),
        JudgedSample("what is it", "a disk", images=[picture]),
        JudgedSample("a much longer prompt than the others", "and a longer response"),
        JudgedSample("which", "b", images=[picture.rotate(90), picture]),
        JudgedSample("one", "1"),
    ]
    answers = judge.answers(samples)
    assert answers == [_alone(model, processor, sample) for sample in samples]
    assert len(set(answers)) > 1
    assert [math.isnan(verdict.score) for verdict in judge.score(samples)] == [True] * 5


def _alone(model: torch.nn.Module, processor: AutoProcessor, sample: JudgedSample) -> str:
    content = [{"type": "image", "image": image} for image in sample.images]
    content.append({"type": "text", "text": f"{sample.prompt}? {sample.response}"})
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    answer = model.generate(**inputs, max_new_tokens=5, do_sample=False, suppress_tokens=_FORBIDDEN)
    return processor.decode(answer[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def test_a_text_judge_refuses_images(tmp_path: Path) -> None:
    build_tiny_qwen_vl(tmp_path)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path)
    tokenizer = AutoProcessor.from_pretrained(tmp_path).tokenizer
    judge = GenerativeJudge(model, tokenizer, JudgeTemplate("{response}"), _NUMBERS)
    with pytest.raises(UserError, match="judge takes text alone"):
        judge.score([JudgedSample("", "x", images=[Image.new("RGB", (56, 56))])])
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        GenerativeJudge(model, tokenizer, JudgeTemplate("{response}"), _NUMBERS)
