"""Ready-made rewards on cases of each kind; none of them is taken from a data set."""

import pytest

from lightrft_ray.rewards.functions import READY_MADE
from lightrft_ray.rewards.loading import load_reward
from lightrft_ray.rewards.ready_made.answer_tag import answer_tag
from lightrft_ray.rewards.ready_made.box_iou import box_iou
from lightrft_ray.rewards.ready_made.json_schema import json_schema
from lightrft_ray.rewards.ready_made.mathematics import boxed_math, math_or_answer_tag, math_verify
from lightrft_ray.rewards.ready_made.multiple_choice import multiple_choice
from lightrft_ray.rewards.ready_made.numeric_match import numeric_match
from lightrft_ray.rewards.ready_made.response_format import response_format
from lightrft_ray.rewards.ready_made.response_length import response_length
from lightrft_ray.rewards.ready_made.text_overlap import anls, token_f1
from lightrft_ray.rewards.scoring import RewardInputs


@pytest.mark.parametrize(
    ("response", "reference", "reward"),
    [
        ("<think>hm</think><answer>Blue Whale</answer>", "blue whale", 1),
        ("<answer> x </answer> or <answer>y</answer>", "<answer>x</answer>", 1),
        ("<answer>x</answer>", "y", 0),
        ("Blue whale", "<answer> blue whale </answer>", 1),
        ("<answer>\nx\n</answer>", "x", 0),
        ("<answer>x", "x", 0),
        ("", "x", 0),
    ],
)
def test_answer_tag(response: str, reference: str, reward: float) -> None:
    assert answer_tag(response, reference) == reward


def test_answer_tag_to_the_letter_and_over_lines() -> None:
    assert answer_tag("<answer>X</answer>", "x", ignore_case=False) == 0
    assert answer_tag("<answer>\nx\n</answer>", "x", one_line=False) == 1


@pytest.mark.parametrize(
    ("response", "reference", "reward"),
    [
        ("3 + 4 = 7\n#### 7", "so it is 7\n#### 7", 1),
        ("A: 1,234", "#### 1234", 1),
        ("A: 12 \nno, A: 13", "13", 1),
        ("#### $5.50", "5.5", 1),
        ("#### -3", "3", 0),
        ("<answer>\n 42 \n</answer>", "42", 1),
        ("<answer>B. 8</answer>", "8", 0),
        ("<answer>42%</answer> A: 7", "42", 1),
        ("the total is 7", "7", 0),
        ("A: none", "7", 0),
        ("#### 7", "seven", 0),
        ("#### 12,34", "12", 1),
    ],
)
def test_numeric_match(response: str, reference: str, reward: float) -> None:
    assert numeric_match(response, reference) == reward


def test_numeric_match_within_a_tolerance() -> None:
    assert numeric_match("#### 3.14", "3.1416", tolerance=0.01) == 1
    assert numeric_match("#### 3.14", "3.1416") == 0


@pytest.mark.parametrize(
    ("response", "reference", "reward"),
    [
        ("<answer>B</answer>", "B", 1),
        ("<answer>(B) Paris</answer>", "(B)", 1),
        ("<answer>B. Paris</answer>", "C", 0),
        ("<answer>Bern</answer>", "B", 0),
        ("A is wrong. The answer is C.", "C", 1),
        ("Answer: **D**", "D", 1),
        ("the answer is a car", "A", 0),
        ("answer: A. No, the answer is B", "B", 1),
        ("C.", "C", 1),
        ("Cats", "C", 0),
        ("", "C", 0),
    ],
)
def test_multiple_choice(response: str, reference: str, reward: float) -> None:
    assert multiple_choice(response, reference) == reward


@pytest.mark.parametrize(
    ("response", "reference", "reward"),
    [
        (r"so \boxed{\frac{1}{2}}", "0.5", 1),
        (r"\boxed{6 - 5i}", "-5i + 6", 1),
        (r"\boxed{5}", "6 - 5i", 0),
        (r"first \boxed{1}. No, wait: it must be \boxed{2}", "2", 1),
        (r"\boxed{(1, 2)}", r"\left(1, 2\right)", 1),
        (r"\boxed{x^2 + 2x + 1}", "(x+1)^2", 1),
        (r"\boxed{3}", r"$\sqrt{9}$", 1),
        (r"\boxed{\$1200}", r"\$1200", 1),
        ("no idea", "3", 0),
        ("", "3", 0),
    ],
)
def test_boxed_math(response: str, reference: str, reward: float) -> None:
    assert boxed_math(response, reference) == reward


def test_math_verify_reads_plain_text_and_the_tag_is_a_second_chance() -> None:
    assert math_verify("the angle is 140", "140°") == 1
    assert math_verify("it is <answer> 12 </answer>", "<answer> 12 </answer>") == 1
    assert math_verify("<answer>yes</answer>", "<answer> yes </answer>") == 0
    assert math_or_answer_tag("<answer>yes</answer>", "<answer> yes </answer>") == 1
    assert math_or_answer_tag("<answer>Yes</answer>", "<answer> yes </answer>") == 0


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("<think>a</think><answer>b</answer>", 1),
        ("\n<think>a\nb</think>\n<answer>b</answer>\n", 1),
        ("<think></think><answer></answer>", 1),
        ("<answer>b</answer>", 0),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a</think>so<answer>b</answer>", 0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0),
        ("ok <think>a</think><answer>b</answer>", 0),
    ],
)
def test_response_format(response: str, reward: float) -> None:
    assert response_format(response) == reward


def test_a_format_in_the_prompt_earns_nothing() -> None:
    prompt = "Write <think>a</think><answer>b</answer>"
    inputs = RewardInputs([prompt], ["b"], [""], [""])
    assert load_reward("response_format").score(inputs).values == [0]


@pytest.mark.parametrize(
    ("response", "iou"),
    [
        ("<answer>[0, 0, 10, 10]</answer>", 1),
        ("(5, 0, 15, 10)", 50 / 150),
        ("[20, 20, 30, 30]", 0),
        ("[1, 2, 3, 4] then [0.0, 0.0, 10.0, 5.0]", 0.5),
        ("[10, 10, 0, 0]", 0),
        ("no box", 0),
        ("[1, 2, 3]", 0),
    ],
)
def test_box_iou(response: str, iou: float) -> None:
    assert box_iou(response, "[0, 0, 10, 10]") == pytest.approx(iou)


def test_box_iou_needs_a_box_to_compare_with() -> None:
    with pytest.raises(ValueError, match=r"reference 'here' holds no box \[x1, y1, x2, y2\]"):
        box_iou("[0, 0, 1, 1]", "here")


def test_token_f1() -> None:
    assert token_f1("The cat sat.", "a cat sat") == 1
    assert token_f1("<answer>red cat</answer>", "cat") == pytest.approx(2 / 3)
    assert token_f1("dog", '["cat", "hot dog"]') == pytest.approx(2 / 3)
    assert token_f1("dog", "cat") == 0
    assert token_f1("", "cat") == 0
    assert token_f1("[cat", "[cat") == 1


def test_anls() -> None:
    assert anls("Karlsruhe", "karlsruhe ") == 1
    assert anls("karlsruh", "karlsruhe") == pytest.approx(8 / 9)
    assert anls("kitten", "sitting") == pytest.approx(4 / 7)
    assert anls("kitten", "sitting", threshold=0.6) == 0
    assert anls("abc", "xyz") == 0
    assert anls("5", '["five", "5"]') == 1


def test_json_schema() -> None:
    schema = '{"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}'
    assert json_schema('{"x": 1}', schema) == 1
    assert json_schema('```json\n{"x": 1}\n```', schema) == 1
    assert json_schema('<answer>{"x": 1}</answer>', schema) == 1
    assert json_schema('{"x": "1"}', schema) == 0
    assert json_schema('{"x": 1', schema) == 0
    for reference in ("{", '{"type": "nothing"}'):
        with pytest.raises(ValueError, match="the reference is no JSON schema"):
            json_schema("{}", reference)


def test_response_length() -> None:
    assert response_length([[], [1, 2], [1] * 8, [1] * 9], limit=8) == [1, 0.75, 0, 0]


@pytest.mark.parametrize("name", READY_MADE)
def test_every_ready_made_reward_loads_and_scores(name: str) -> None:
    reference = {"json_schema": "{}", "box_iou": "[0, 0, 1, 1]"}.get(name, "1")
    inputs = RewardInputs(["p"], ["1"], [reference], [""], response_token_ids=[[5]])
    rewards = load_reward(name).score(inputs)
    assert rewards.faults == {}
    assert 0 <= rewards.values[0] <= 1
