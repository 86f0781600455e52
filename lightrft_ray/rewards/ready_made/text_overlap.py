"""How much of the reference's text is in the answer: by words, and by letters."""

import json
import re
from collections import Counter

from lightrft_ray.rewards.ready_made.answers import tagged_or_all

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]")


def token_f1(response: str, reference: str) -> float:
    """F1 of the words that answer and reference share, from 0 to 1 (SQuAD, 1606.05250).

    Case, punctuation and articles are left out. The reference may be a JSON list of right answers:
    the best of them counts. The answer is the ``<answer>`` tag's text, or the whole response.
    """
    answer = tagged_or_all(response)
    return max(_f1(_words(answer), _words(right)) for right in _right_answers(reference))


def anls(response: str, reference: str, *, threshold: float = 0.5) -> float:
    """Normalized Levenshtein similarity, 0 below `threshold` (ANLS: Biten et al., 1905.13648).

    1 − distance / length of the longer text, case and white space around left out. References and
    answer as in `token_f1`.
    """
    answer = tagged_or_all(response).lower()
    best = max(_similarity(answer, right.strip().lower()) for right in _right_answers(reference))
    return best if best >= threshold else 0.0


def _right_answers(reference: str) -> list[str]:
    text = tagged_or_all(reference)
    if text.startswith("["):
        try:
            answers = json.loads(text)
        except json.JSONDecodeError:
            return [text]
        if answers and all(isinstance(each, str) for each in answers):
            return list(answers)
    return [text]


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower())).split()


def _f1(given: list[str], right: list[str]) -> float:
    if not given or not right:
        return float(given == right)
    shared = sum((Counter(given) & Counter(right)).values())
    return 2 * shared / (len(given) + len(right))


def _similarity(one: str, other: str) -> float:
    longest = max(len(one), len(other))
    return 1.0 if longest == 0 else 1 - _distance(one, other) / longest


def _distance(one: str, other: str) -> int:
    """Levenshtein's: the fewest letters to insert, delete or replace."""
    previous = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        current = [row]
        for column, against in enumerate(other):
            replaced = previous[column] + (letter != against)
            current.append(min(replaced, previous[column + 1] + 1, current[column] + 1))
        previous = current
    return previous[-1]
