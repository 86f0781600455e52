"""A tiny vision-language checkpoint, built once; tiny models are faster on one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-vlm")
    build_tiny_qwen_vl(folder)
    return folder


@pytest.fixture(autouse=True, scope="module")
def single_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
