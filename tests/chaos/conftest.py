"""One undisturbed run for all tests."""

from pathlib import Path

import pytest

from tests.chaos.undisturbed import undisturbed


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing happened to."""
    return undisturbed(tmp_path_factory.mktemp("whole") / "run")
