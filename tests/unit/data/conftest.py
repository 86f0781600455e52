"""The embedded data set and checkpoint, from the cache that runs use: built once per change."""

from pathlib import Path

import pytest

from lightrft_ray.data.digits import DigitsDataset
from lightrft_ray.data.embedded import resolve_embedded


@pytest.fixture(scope="session")
def digits() -> DigitsDataset:
    return DigitsDataset(resolve_embedded("embedded:digits"))


@pytest.fixture(scope="session")
def tiny_vlm() -> Path:
    return resolve_embedded("embedded:tiny-qwen2.5-vl")
