"""Ready-made reward functions by name.

A reward function takes lists with one entry a sample, by keyword, and gives a list with one reward
a sample. It names what it wants of `prompts` (the user's text), `responses`, `references`,
`labels`, `messages`, `images`, `videos` and `response_token_ids`. A function that names one of
`prompt`, `response`, `reference` and `label` takes a single sample and gives its reward. Both may
be async.
"""

from collections.abc import Callable

from lightrft_ray.rewards.ready_made.answer_tag import answer_tag
from lightrft_ray.rewards.ready_made.box_iou import box_iou
from lightrft_ray.rewards.ready_made.exact_match import exact_match
from lightrft_ray.rewards.ready_made.json_schema import json_schema
from lightrft_ray.rewards.ready_made.mathematics import boxed_math, math_or_answer_tag, math_verify
from lightrft_ray.rewards.ready_made.multiple_choice import multiple_choice
from lightrft_ray.rewards.ready_made.numeric_match import numeric_match
from lightrft_ray.rewards.ready_made.response_format import response_format
from lightrft_ray.rewards.ready_made.response_length import response_length
from lightrft_ray.rewards.ready_made.text_overlap import anls, token_f1

RewardFunction = Callable[..., object]
"""Takes samples as above; what it gives is checked when it was called."""

READY_MADE: dict[str, RewardFunction] = {
    "exact_match": exact_match,
    "answer_tag": answer_tag,
    "numeric_match": numeric_match,
    "multiple_choice": multiple_choice,
    "boxed_math": boxed_math,
    "math_verify": math_verify,
    "math_or_answer_tag": math_or_answer_tag,
    "response_format": response_format,
    "box_iou": box_iou,
    "token_f1": token_f1,
    "anls": anls,
    "json_schema": json_schema,
    "response_length": response_length,
}
"""Functions by the name that `reward.reward_fn` and recipes take."""

MAY_HANG = frozenset({"boxed_math", "math_verify", "math_or_answer_tag", "json_schema"})
"""Those that a text can keep busy for ever (sympy, regular expressions of a schema)."""
