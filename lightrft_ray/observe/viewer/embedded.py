"""The data that a static page holds: all curves, and as many samples and spans as are bearable."""

import base64
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from lightrft_ray.observe.run_folder import RunFolder
from lightrft_ray.observe.viewer.metric_columns import thinned
from lightrft_ray.observe.viewer.page import render_page
from lightrft_ray.observe.viewer.run_files import IMAGE_TYPES, RunFiles
from lightrft_ray.observe.viewer.sample_rows import Sample, parse_samples

_SAMPLES_OF_REPORT = 10


class Limits(NamedTuple):
    """What one run may put into a static page."""

    metric_steps: int = 2000
    samples: int = 200
    bytes: int = 8_000_000  # of samples and their pictures
    timeline_steps: int = 20


def static_page(runs: Sequence[RunFiles], limits: Limits, title: str) -> str:
    """One HTML text with everything inside; it needs no server and no network."""
    return render_page({"runs": [_embedded(run, limits) for run in runs]}, title)


def write_report(folder: RunFolder) -> None:
    """Write the page that a run leaves at its end: the static page with ten samples."""
    run = RunFiles(folder.path, folder.path.resolve().name)
    page = static_page([run], Limits(samples=_SAMPLES_OF_REPORT), f"{run.name}: report")
    beside = folder.report.with_name(f".{folder.report.name}.tmp")
    beside.write_text(page, encoding="utf-8")
    beside.replace(folder.report)


def _embedded(run: RunFiles, limits: Limits) -> dict[str, object]:
    samples, images = _bounded(run, limits)
    steps = run.spans.steps()[-limits.timeline_steps :]
    about = run.about()
    held = sorted({sample.step for sample in samples})
    return {
        "about": about | {"steps": held, "steps_of_run": len(about["steps"])},
        "metrics": thinned(run.metrics(), limits.metric_steps),
        "samples": [sample.model_dump(mode="json") for sample in samples],
        "images": images,
        "timeline": [
            row.model_dump(mode="json")
            for row in run.timeline(steps[0] if steps else 0, limits.timeline_steps)
        ],
    }


def _bounded(run: RunFiles, limits: Limits) -> tuple[list[Sample], dict[str, str]]:
    """The latest samples, rules taking turns, and their pictures as data urls: within `limits`."""
    images: dict[str, str] = {}
    samples: list[Sample] = []
    size = 0
    for sample in islice(_latest_first(run), limits.samples):
        new = {
            name: url
            for name in _files_of(sample)
            if name not in images and (url := _data_url(run.image(name))) is not None
        }
        size += len(sample.model_dump_json()) + sum(map(len, new.values()))
        if size > limits.bytes:
            break
        samples.append(sample)
        images |= new
    return samples, images


def _latest_first(run: RunFiles) -> Iterable[Sample]:
    for _, path in reversed(run.step_files()):
        yield from _in_turns([sample for sample in parse_samples(path) if sample is not None])


def _in_turns(samples: list[Sample]) -> list[Sample]:
    """One sample of each rule, then the second of each, and so on."""
    places: dict[str, int] = {}
    turns: list[tuple[int, Sample]] = []
    for sample in samples:
        rule = "".join(sample.rules[:1])
        places[rule] = places.get(rule, 0) + 1
        turns.append((places[rule], sample))
    return [sample for _, sample in sorted(turns, key=lambda turn: turn[0])]


def _files_of(sample: Sample) -> list[str]:
    return [name for part in sample.prompt for name in (part.file, *part.files) if name]


def _data_url(path: Path | None) -> str | None:
    if path is None:
        return None
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{IMAGE_TYPES[path.suffix.lower()]};base64,{content}"
