"""Sums and differences in words: a task of text alone."""

from pathlib import Path

import numpy as np

from lightrft_ray.data.task_files import Question, write_questions

LARGEST = 12
_EVAL_SIZE = 50
_SEED = 0


def build_arithmetic(folder: Path) -> None:
    """Write train.jsonl (210 rows) and eval.jsonl (50) into `folder`.

    All sums of two numbers up to 12 and all their differences that are not negative, split by a
    fixed permutation.
    """
    numbers = range(LARGEST + 1)
    questions = [
        *(_question(a, "+", b, a + b, "sum") for a in numbers for b in numbers),
        *(_question(a, "-", b, a - b, "difference") for a in numbers for b in range(a + 1)),
    ]
    # RandomState's streams are frozen by NumPy's compatibility policy; default_rng's are not.
    order = np.random.RandomState(_SEED).permutation(len(questions)).tolist()
    for split, chosen in (("train", order[_EVAL_SIZE:]), ("eval", order[:_EVAL_SIZE])):
        path = folder / f"{split}.jsonl"
        write_questions(path, f"arithmetic-{split}", (questions[index] for index in chosen))


def _question(a: int, operator: str, b: int, result: int, label: str) -> Question:
    return Question(f"What is {a} {operator} {b}?", str(result), label)
