"""Data sets by `datasets`: from the hub, a folder of data files, or one that it saved itself.

`datasets` is what knows a repository's splits, subsets and file layouts. It keeps the rows in Arrow
files on disk; this reads them without decoding images. It runs no code of a data set.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.readers.columnar import rows_of_batches
from lightrft_ray.data.readers.rows import Rows

if TYPE_CHECKING:
    from datasets import Dataset

_BATCH = 64  # rows
_SAVED = ("state.json", "dataset_dict.json")  # files of `Dataset.save_to_disk`


def open_dataset(name: str, split: str) -> Callable[[], Rows]:
    """The rows of a split of a folder or of `owner/name:subset`. Raises UserError."""
    dataset = _load(name, split)
    return lambda: rows_of_batches(_batches(dataset))


def _load(name: str, split: str) -> "Dataset":
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise UserError(
            f"{name}: folders and data sets of the hub need the package datasets: install the "
            "extra lightrft-ray[datasets]"
        ) from error
    folder = Path(name)
    try:
        if any((folder / file).is_file() for file in _SAVED):
            loaded = datasets.load_from_disk(name)
        else:
            path, _, subset = (name, "", "") if folder.is_dir() else name.partition(":")
            loaded = datasets.load_dataset(path, subset or None)
    except Exception as error:  # what it raises is whatever its many libraries do
        raise UserError(
            f"{name}: cannot be loaded as a Hugging Face data set ({_first_line(error)}): check "
            "the name, or convert it to Parquet"
        ) from error
    if isinstance(loaded, datasets.Dataset):
        return loaded
    if split not in loaded:
        raise UserError(
            f"{name}: there is no split {split!r}, but {', '.join(loaded)}: set data.prompt_split "
            "or data.eval_split"
        )
    return loaded[split]


def _batches(dataset: "Dataset") -> Iterator[pa.RecordBatch]:
    for table in dataset.with_format("arrow").iter(batch_size=_BATCH):
        yield from table.combine_chunks().to_batches()


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.split("\n")[0][:300]
