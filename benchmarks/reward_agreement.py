"""How often the ready-made rewards give the recorded verdict on recorded model output.

    python benchmarks/reward_agreement.py --data FOLDER

FOLDER holds what was recorded elsewhere, and none of it comes with the project:
`r1v/rollouts.jsonl` (completions of vision-language models with solution and reward; several files
under two kinds of rules), `r1v/eval_logs/*.json` (counting and geometry questions with verdicts),
`gsm8k/example_model_solutions.jsonl` (solutions of four models), `math/math500.jsonl` (reference
solutions with their answers, which must all be accepted). Prints one JSON object: per file the
rule, the cases and the share on which both agree.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from lightrft_ray.rewards.ready_made.answer_tag import answer_tag
from lightrft_ray.rewards.ready_made.mathematics import boxed_math, math_or_answer_tag, math_verify
from lightrft_ray.rewards.ready_made.numeric_match import numeric_match

Rule = Callable[[str, str], float]
_GSM8K_MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


class Case(NamedTuple):
    """One response, and what was said of it when it was recorded."""

    file: str
    response: str
    reference: str
    verdict: float


def exact_answer_tag(response: str, reference: str) -> float:
    """The answer tag's text to the letter."""
    return answer_tag(response, reference, ignore_case=False)


def rollout_rule(file: str) -> Rule:
    """Which reward the file's training run used."""
    if file.startswith(("vllm_run_1", "vllm_run_2")):
        return math_or_answer_tag
    return exact_answer_tag if file == "vllm_run_test_4.txt" else answer_tag


def read_lines(path: Path) -> Iterator[dict]:
    """The objects of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)


def rollouts(folder: Path) -> Iterator[tuple[Rule, Case]]:
    """Completions of training runs."""
    for row in read_lines(folder / "r1v" / "rollouts.jsonl"):
        case = Case(row["file"], row["content"], row["solution"], row["reward"])
        yield rollout_rule(row["file"]), case


def evaluation_logs(folder: Path) -> Iterator[tuple[Rule, Case]]:
    """Counting: the number in the answer tag. Geometry: math-verify on the whole text."""
    for path in sorted((folder / "r1v" / "eval_logs").glob("*.json")):
        counts = path.name.startswith("counting")
        for row in json.loads(path.read_text(encoding="utf-8"))["results"]:
            right = row["extracted_answer"] == row["ground_truth"] if counts else row["is_correct"]
            case = Case(path.name, row["model_output"], str(row["ground_truth"]), float(right))
            yield numeric_match if counts else math_verify, case


def school_maths(folder: Path) -> Iterator[tuple[Rule, Case]]:
    """GSM8K solutions of four models."""
    for row in read_lines(folder / "gsm8k" / "example_model_solutions.jsonl"):
        for model in _GSM8K_MODELS:
            answer = row[model]
            verdict = float(answer["is_correct"])
            file = f"gsm8k {model}"
            yield numeric_match, Case(file, answer["solution"], row["ground_truth"], verdict)


def competition_maths(folder: Path) -> Iterator[tuple[Rule, Case]]:
    """MATH-500: the reference solution, which is right."""
    for row in read_lines(folder / "math" / "math500.jsonl"):
        yield boxed_math, Case("math500.jsonl", row["solution"], row["answer"], 1.0)


def agreement(cases: Iterable[tuple[Rule, Case]]) -> dict[str, dict[str, object]]:
    """By file: the rule's name, the number of cases, and how many get their verdict."""
    agreed: dict[str, list[bool]] = defaultdict(list)
    rules: dict[str, str] = {}
    for rule, case in cases:
        rules[case.file] = rule.__name__
        agreed[case.file].append(rule(case.response, case.reference) == case.verdict)
    return {
        file: {
            "rule": rules[file],
            "cases": len(each),
            "agreed": sum(each),
            "agreement": sum(each) / len(each),
        }
        for file, each in agreed.items()
    }


def main() -> None:
    """Print the agreement of all files, and the lowest of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the recorded output")
    folder = parser.parse_args().data
    files: dict[str, dict[str, object]] = {}
    for source in (rollouts, evaluation_logs, school_maths, competition_maths):
        files |= agreement(source(folder))
    lowest = min(float(str(each["agreement"])) for each in files.values())
    print(json.dumps({"files": files, "lowest_agreement": lowest}, indent=2))


if __name__ == "__main__":
    main()
