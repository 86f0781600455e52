"""One folder of everything that is broken: nothing crashes, each is named with its reason."""

import json
import re
from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.data.decoding import load_media
from lightrft_ray.data.media_source import MediaError
from lightrft_ray.data.reading import ReadRules, ReadSource, read_source
from lightrft_ray.data.sources import open_source
from tests.unit.data.odd_media import bad_media, odd_media, write_all
from tests.unit.data.test_bad_rows import FILES, GOOD, LINES, make_broken

BAD = bad_media()
NO_FILES = {"folder.png": "is not a file", "dangling.png": "does not exist"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Broken rows, rows whose image is broken or odd, and files that are broken as a whole."""
    folder = tmp_path_factory.mktemp("broken")
    write_all(folder)
    lines = [GOOD.strip(), *(line for line, _ in LINES.values())]
    for name in (*BAD, *NO_FILES, *odd_media()):
        lines.append(json.dumps({"prompt": name, "images": [name], "reference": "1"}).encode())
    (folder / "all.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    for name in FILES:
        make_broken(folder / name)
    return folder


def _read(folder: Path, name: str) -> ReadSource:
    rules = ReadRules(max_bad_fraction=1, cache_dir=folder)
    return read_source(open_source(str(folder / name)), rules)


def test_more_than_sixty_kinds_are_named_each_with_its_reason(folder: Path) -> None:
    read = _read(folder, "all.jsonl")
    named = [bad.reason for bad in read.bad]
    assert [bad.line for bad in read.bad] == list(range(2, len(LINES) + 2))
    for reason, (_, expected) in zip(named, LINES.values(), strict=True):
        assert expected in reason
    for prompt in read.prompts[1:]:
        try:
            load_media(prompt, MediaConfig())
        except MediaError as fault:
            named.append(str(fault))
            (name,) = prompt.images
            reason = NO_FILES.get(name) or BAD[name].reason
            assert re.match(f"image {name}: .*({reason})", str(fault)), fault
    for name, reason in FILES.items():
        with pytest.raises(UserError) as refused:
            _read(folder, name)
        named.append(str(refused.value))
        assert str(refused.value).startswith(str(folder)) and reason in str(refused.value)
    assert len(named) == len(LINES) + len(BAD) + len(NO_FILES) + len(FILES)
    assert len(named) >= 60
    assert all("\n" not in reason for reason in named)
