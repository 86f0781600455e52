"""Parquet and Arrow files, a few rows at a time, whatever the size of file and row groups.

pyarrow reads both, is what `datasets` itself reads them with, and depends on nothing.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.readers.rows import BadRow, Row, Rows

_BATCH = 64  # rows; each may hold an image of megabytes


def read_parquet(path: Path) -> Rows:
    """The rows from 1. Raises UserError for a damaged file."""
    count = 0
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for row in rows_of_batches(file.iter_batches(batch_size=_BATCH)):
                yield row
                count += 1
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, "Parquet", count, error) from error


def read_arrow(path: Path) -> Rows:
    """The rows of an Arrow file or stream, from 1. Raises UserError for a damaged file."""
    count = 0
    try:
        with pa.memory_map(str(path)) as source:
            for row in rows_of_batches(_small(_arrow_batches(source))):
                yield row
                count += 1
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, "Arrow", count, error) from error


def rows_of_batches(batches: Iterator[pa.RecordBatch]) -> Rows:
    """Rows as plain values, numbered through. A value that is no text leaves out its row alone."""
    number = 0
    for batch in batches:
        for row in _plain_rows(batch):
            number += 1
            if isinstance(row, str):
                yield BadRow(number, row)
            else:
                yield Row(number, row)


def _plain_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object] | str]:
    try:
        yield from batch.to_pylist()
    except (UnicodeDecodeError, pa.ArrowException, ValueError, OverflowError):
        if batch.num_rows > 1:
            for place in range(batch.num_rows):
                yield from _plain_rows(batch.slice(place, 1))
        else:
            yield _why_not_plain(batch)


def _why_not_plain(row: pa.RecordBatch) -> str:
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            column.to_pylist()
        except UnicodeDecodeError as error:
            return f"{name!r} is not UTF-8 at byte {error.start}: write it as UTF-8"
        except (pa.ArrowException, ValueError, OverflowError) as error:
            return f"{name!r} holds a value that Python has none for ({error})"
    return "holds two columns of one name"


def _arrow_batches(source: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        yield from pa.ipc.open_stream(source)
        return
    for place in range(file.num_record_batches):
        yield file.get_batch(place)


def _small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH):
            yield batch.slice(start, _BATCH)


def _damaged(path: Path, kind: str, count: int, error: Exception) -> UserError:
    place = f"damaged after row {count}" if count else f"no {kind} file, or damaged"
    reason = " ".join(str(error).split())
    return UserError(f"{path}: {place} ({reason}): copy or download it again")
