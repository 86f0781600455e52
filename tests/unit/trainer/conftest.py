"""A tiny vision-language checkpoint, built once."""

from pathlib import Path

import pytest

from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-vlm")
    build_tiny_qwen_vl(folder)
    return folder
