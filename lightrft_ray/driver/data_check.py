"""The data of a run's settings looked at whole, before the run: what it would use and leave out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.data.findings import Findings, Kind, Sample, bars, examine, kinds
from lightrft_ray.data.processing import PromptEncoder, load_processor, tokenizer_of
from lightrft_ray.data.reading import ReadSource
from lightrft_ray.data.sample_page import render_page
from lightrft_ray.driver.preflight import read_data, resolve_checkpoints

_ROWS_NAMED = 5
SAMPLES_SHOWN = 10


@dataclass(frozen=True)
class DataReport:
    """What the check found: lines to print, the page of samples, and how bad it is.

    `bad` counts rows and prompts that the run would leave out; `refusal` says why it would stop.
    """

    lines: list[str]
    page: str
    bad: int
    refusal: str | None


def check_data(config: RunConfig) -> DataReport:
    """Read, decode and encode all prompts of the settings, as the run would.

    Raises UserError for what the run could not start with, but for bad rows.
    """
    config = resolve_checkpoints(config)
    train, held_out = read_data(config, take_all=True)
    processor = load_processor(config.model.pretrain, config.model.trust_remote_code)
    encoder = PromptEncoder(processor, config.data.system_prompt, config.data.prompt_max_len)
    lines: list[str] = []
    samples: list[Sample] = []
    refusals: list[str] = []
    bad = 0
    sources = [("training", read) for read in train] + [("evaluation", read) for read in held_out]
    for place, (what, read) in enumerate(sources):
        wanted = math.ceil((SAMPLES_SHOWN - len(samples)) / (len(sources) - place))
        findings, shown = examine(read, encoder, config.media, wanted)
        lines += _describe(read, findings, what, config.data.prompt_max_len)
        samples += shown
        bad += len(read.bad) + len(findings.faults)
        refusals += _refusal(read, findings, config.data.max_bad_fraction)

    def decode(token_ids: Sequence[int]) -> str:
        return str(tokenizer_of(processor).decode(list(token_ids)))

    page = render_page(f"Samples of {config.data.prompt_data}", lines, samples, decode)
    return DataReport(lines, page, bad, "; ".join(refusals) or None)


def _describe(read: ReadSource, findings: Findings, what: str, longest: int) -> list[str]:
    usable = len(read.prompts) - len(findings.faults)
    counts = [f"{usable} usable prompts", f"layout {read.layout}"]
    counts += [f"{read.filtered} filtered"] if read.filtered else []
    counts += [f"{findings.repeated} repeat another's content"] if findings.repeated else []
    lines = [f"{read.name} ({what}): {', '.join(counts)}"]
    for title, found in (("bad rows", read.bad), ("prompts that fail", findings.faults)):
        if found:
            lines.append(f"  {len(found)} {title}, by reason")
            lines += [f"    {_kind(kind, read.word)}" for kind in kinds(found)]
    for title, values in (
        (f"tokens of a prompt, media included (data.prompt_max_len {longest})", findings.lengths),
        ("pixels of an image", findings.pixels),
    ):
        if values:
            lines += [f"  {title}", *(f"    {line}" for line in bars(values))]
    return lines


def _kind(kind: Kind, word: str) -> str:
    rows = [
        f"{row.line} of {row.file}" if row.file else str(row.line)
        for row in kind.rows[:_ROWS_NAMED]
    ]
    more = ", …" if len(kind.rows) > _ROWS_NAMED else ""
    example = kind.rows[0].reason
    shown = example if len(kind.rows) == 1 else f"{kind.reason} (first: {example})"
    return f"{len(kind.rows):>6}  {shown}: {word} {', '.join(rows)}{more}"


def _refusal(read: ReadSource, findings: Findings, limit: float) -> list[str]:
    bad = len(read.bad) + len(findings.faults)
    total = len(read.prompts) + len(read.bad)
    if total and bad < total and bad <= limit * total:
        return []
    if not total:
        return [f"{read.name} has no prompt"]
    return [
        f"{bad} of {total} rows of {read.name} cannot be used, more than the share {limit:g} that "
        "data.max_bad_fraction allows"
    ]


def write_page(report: DataReport, path: Path) -> None:
    """Write the page of samples. Raises UserError where that is not possible."""
    try:
        path.write_text(report.page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
