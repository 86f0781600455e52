"""Where prompts come from: files by their ending, patterns, folders and Hugging Face data sets."""

import glob
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.readers.csv_table import read_csv
from lightrft_ray.data.readers.json_array import read_json
from lightrft_ray.data.readers.jsonl import read_jsonl
from lightrft_ray.data.readers.rows import Reader, Rows
from lightrft_ray.data.readers.webdataset import read_webdataset
from lightrft_ray.data.splits import parse_split

_PATTERN = re.compile(r"[*?\[]")
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(:[\w.-]+)?")


@dataclass(frozen=True)
class Source:
    """Rows that can be read from their beginning, again and again."""

    name: str
    rows: Callable[[], Rows]
    folder: Path  # where relative paths of media start
    word: str = "row"  # what a row is called in errors


def read_parquet(path: Path) -> Rows:
    """Of a Parquet file; pyarrow is loaded when there is one."""
    from lightrft_ray.data.readers.columnar import read_parquet

    return read_parquet(path)


def read_arrow(path: Path) -> Rows:
    """Of an Arrow file."""
    from lightrft_ray.data.readers.columnar import read_arrow

    return read_arrow(path)


READERS: dict[str, Reader] = {
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".feather": read_arrow,
    ".tar": read_webdataset,
    ".jsonl.gz": read_jsonl,
    ".json.gz": read_json,
    ".csv.gz": read_csv,
    ".tsv.gz": read_csv,
    ".tar.gz": read_webdataset,
    ".tgz": read_webdataset,
}
"""By the ending of a file's name."""
_LINED = (".jsonl", ".jsonl.gz")


def open_source(name: str, split: str = "train") -> Source:
    """A file, a pattern with * ? or [ ] for several, a folder, or a name on the Hugging Face hub.

    Folders and hub names (`owner/name`, or `owner/name:subset`) are read by `datasets`, which knows
    their splits. Of a file, `split` can take a slice alone: `train[:90%]`. Raises UserError if
    there is nothing of that name, or nothing that could be read.
    """
    part = parse_split(split)
    path = Path(name)
    if path.is_dir() or (not path.exists() and _may_be_on_the_hub(name)):
        from lightrft_ray.data.readers.hugging_face import open_dataset

        source = Source(name, open_dataset(name, part.name), path if path.is_dir() else Path())
    else:
        source = _of_files(name, _matching(name))
    return replace(source, rows=lambda: part.rows(source.rows))


def _of_files(name: str, files: Sequence[Path]) -> Source:
    endings = [_ending(file) for file in files]
    lined = all(ending in _LINED for ending in endings)
    if len(files) == 1:
        read, file = READERS[endings[0]], files[0]
        return Source(name, lambda: read(file), file.parent, "line" if lined else "row")

    def rows() -> Rows:
        for file, ending in zip(files, endings, strict=True):
            for row in READERS[ending](file):
                yield replace(row, file=file.name)

    return Source(name, rows, files[0].parent, "line" if lined else "row")


def _matching(name: str) -> list[Path]:
    if Path(name).is_file():
        return [Path(name)]
    files = [Path(each) for each in sorted(glob.glob(name))] if _PATTERN.search(name) else []  # noqa: PTH207
    if not files:
        raise UserError(
            f"{name}: there is no such file; data are JSONL, JSON, CSV, Parquet, Arrow, WebDataset "
            "tar, a folder or a data set of the Hugging Face hub"
        )
    return files


def _may_be_on_the_hub(name: str) -> bool:
    is_file_name = any(name.partition(":")[0].endswith(ending) for ending in READERS)
    return not is_file_name and _HUB_NAME.fullmatch(name) is not None


def _ending(file: Path) -> str:
    """The longest ending of a file's name that there is a reader for."""
    name = file.name.lower()
    known = [ending for ending in READERS if name.endswith(ending)]
    if not known:
        raise UserError(
            f"{file}: the ending is none of {', '.join(READERS)}: rename the file by its format"
        )
    return max(known, key=len)
