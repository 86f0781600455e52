"""The same rows as files of every format."""

import csv
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

Rows = Sequence[dict[str, object]]


def png(value: int = 7, size: tuple[int, int] = (4, 3)) -> bytes:
    """A grey image's file."""
    file = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(file, format="PNG")
    return file.getvalue()


def write_jsonl(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_jsonl_gz(path: Path, rows: Rows) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_json(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps(list(rows), indent=1), encoding="utf-8")


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ","
        )
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()}
            )


def write_parquet(path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=3)


def write_arrow(path: Path, rows: Rows) -> None:
    table = pa.Table.from_pylist(list(rows))
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def write_arrow_stream(path: Path, rows: Rows) -> None:
    table = pa.Table.from_pylist(list(rows))
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def write_tar(path: Path, rows: Rows) -> None:
    write_members(
        path, [(f"{place:04}.json", json.dumps(row).encode()) for place, row in enumerate(rows)]
    )


def write_members(path: Path, members: Sequence[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "rows.jsonl": write_jsonl,
    "rows.jsonl.gz": write_jsonl_gz,
    "rows.json": write_json,
    "lines.json": write_jsonl,
    "rows.csv": write_csv,
    "rows.tsv": write_csv,
    "rows.parquet": write_parquet,
    "rows.arrow": write_arrow,
    "stream.arrow": write_arrow_stream,
    "rows.tar": write_tar,
    "rows.tar.gz": write_tar,
}
