"""Files of an embedded task: two JSONL files, and media beside them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class TaskFiles:
    """Where a built task keeps its two splits; media paths are relative to `folder`."""

    folder: Path

    @property
    def train_file(self) -> Path:
        """Training rows, JSONL."""
        return self.folder / "train.jsonl"

    @property
    def eval_file(self) -> Path:
        """Held-out rows, JSONL."""
        return self.folder / "eval.jsonl"


@dataclass(frozen=True)
class Question:
    """A row of a task; the images and then the videos stand before the text."""

    text: str
    answer: str
    label: str
    images: Sequence[str] = field(default_factory=tuple)
    videos: Sequence[str] = field(default_factory=tuple)


def write_questions(path: Path, prefix: str, questions: Iterable[Question]) -> None:
    """Write rows with the ids `prefix-00000`, `prefix-00001`, …"""
    rows = (
        {
            "id": f"{prefix}-{number:05d}",
            "prompt": [{"role": "user", "content": _content(question)}],
            **({"images": list(question.images)} if question.images else {}),
            **({"videos": list(question.videos)} if question.videos else {}),
            "reference": question.answer,
            "label": question.label,
        }
        for number, question in enumerate(questions)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _content(question: Question) -> list[dict[str, str]]:
    return [
        *({"type": "image"} for _ in question.images),
        *({"type": "video"} for _ in question.videos),
        {"type": "text", "text": question.text},
    ]
