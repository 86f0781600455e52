"""The embedded data set and checkpoint, from the cache that runs use: built once per change."""

from pathlib import Path

import pytest

from lightrft_ray.data.embedded import resolve_embedded
from lightrft_ray.data.task_files import TaskFiles


@pytest.fixture(scope="session")
def digits() -> TaskFiles:
    return TaskFiles(resolve_embedded("embedded:digits"))


@pytest.fixture(scope="session")
def tiny_vlm() -> Path:
    return resolve_embedded("embedded:tiny-qwen2.5-vl")
