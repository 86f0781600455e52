"""Checkpoints appear whole, are checked when read, and the newest good one always stays."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lightrft_ray.config import UserError
from lightrft_ray.driver.checkpoint_store import DRIVER_STATE, CheckpointStore
from lightrft_ray.driver.manifest import MANIFEST, Manifest
from lightrft_ray.workers.storage import DamagedFile, Storage

FILES = {DRIVER_STATE: b'{"step": 1}', "policy/rank_0.pt": b"0123456789" * 500}


def _never(text: str) -> None:
    raise AssertionError(f"unexpected: {text}")


@pytest.fixture(params=["folder", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "checkpoints")
    else:
        yield f"memory://{uuid.uuid4().hex}/checkpoints"
        MemoryFileSystem.store.clear()


def _write(
    store: CheckpointStore,
    step: int,
    files: dict[str, bytes] = FILES,
    score: float | None = None,
) -> None:
    store.discard_unfinished(step)
    place = store.place_of(step)
    entries = {name: place.write(name, data) for name, data in files.items()}
    store.complete(Manifest(step, {"seed": 1}, {"policy": 1}, {"policy": "x"}, entries, score))


def _spoil(url: str, name: str, change: Callable[[bytes], bytes]) -> None:
    files, root = fsspec.core.url_to_fs(url)
    files.pipe_file(f"{root}/{name}", change(files.cat_file(f"{root}/{name}")))


def test_the_newest_is_read_back(url: str) -> None:
    store = CheckpointStore(url)
    assert store.newest(_never) is None
    for step in (2, 10, 4):
        _write(store, step)
    checkpoint = CheckpointStore(url).newest(_never)
    assert checkpoint is not None and checkpoint.step == 10
    assert checkpoint.driver_state() == FILES[DRIVER_STATE]
    assert checkpoint.manifest.size == sum(map(len, FILES.values()))
    assert store.steps() == [10, 4, 2]


def test_one_that_is_being_written_is_none(url: str) -> None:
    store = CheckpointStore(url)
    _write(store, 1)
    store.place_of(2).write(DRIVER_STATE, b"half")
    assert store.steps() == [1]
    _write(store, 2)  # after a restart, over the remains
    assert store.steps() == [2, 1]


@pytest.mark.parametrize("name", ["policy/rank_0.pt", DRIVER_STATE, MANIFEST])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        lambda data: b"",
    ],
    ids=["truncated", "changed", "emptied"],
)
def test_a_damaged_one_is_named_and_the_one_before_is_used(
    url: str, name: str, change: Callable[[bytes], bytes]
) -> None:
    store = CheckpointStore(url)
    _write(store, 1)
    _write(store, 2)
    before = Storage(f"{store.url}/step_2").read(name)
    _spoil(f"{url}/step_2", name, change)
    assert Storage(f"{store.url}/step_2").read(name) != before
    said: list[str] = []
    checkpoint = store.newest(said.append)
    assert checkpoint is not None and checkpoint.step == 1
    (line,) = said
    assert "step_2" in line and name in line
    with pytest.raises(DamagedFile):
        store.open(2)


def test_a_missing_file_is_damage(url: str) -> None:
    store = CheckpointStore(url)
    _write(store, 1)
    Storage(f"{store.url}/step_1").remove("policy/rank_0.pt")
    with pytest.raises(UserError, match=r"all 1 checkpoints .* are damaged"):
        store.newest(lambda text: None)


def test_rotation_by_count_and_size_spares_the_newest_and_the_best(url: str) -> None:
    store = CheckpointStore(url)
    for step in range(1, 7):
        _write(store, step, score={2: 0.9, 3: 0.8, 5: 0.7}.get(step))
    assert store.best() == 2
    assert store.rotate(count=4, gigabytes=None) == [2, 1]
    assert store.steps() == [6, 5, 4, 3]
    two = 2.5 * sum(map(len, FILES.values())) / 1e9
    assert store.rotate(count=4, gigabytes=two, keep_best=True) == [5, 4]
    assert store.rotate(count=1, gigabytes=1e-9) == [3]
    assert store.steps() == [6]
    assert store.rotate(count=1, gigabytes=1e-9) == []


def test_rotation_removes_remains_and_nothing_foreign(url: str) -> None:
    store = CheckpointStore(url)
    _write(store, 1)
    store.place_of(2).write(DRIVER_STATE, b"half")
    Storage(store.url).at("notes").write("mine.txt", b"keep")
    store.rotate(count=3, gigabytes=None)
    assert sorted(Storage(store.url).folders()) == ["notes", "step_1"]


def test_going_on_from_an_older_one_withdraws_the_later(url: str) -> None:
    store = CheckpointStore(url)
    for step in (2, 4, 6):
        _write(store, step)
    store.begin(resumed_at=2, overwrite=False)
    assert store.steps() == [2]
    _write(store, 4)
    store.rotate(count=3, gigabytes=None)
    assert store.steps() == [4, 2]
    assert sorted(Storage(store.url).folders()) == ["step_2", "step_4"]


def test_a_new_run_does_not_mix_into_the_checkpoints_of_another(url: str) -> None:
    store = CheckpointStore(url)
    store.begin(resumed_at=None, overwrite=False)
    _write(store, 5)
    with pytest.raises(UserError, match=r"already holds checkpoints, up to step 5.*overwrite"):
        store.begin(resumed_at=None, overwrite=False)
    assert store.steps() == [5]
    store.begin(resumed_at=None, overwrite=True)
    assert store.steps() == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    store = CheckpointStore(str(tmp_path / "file" / "checkpoints"))
    with pytest.raises(UserError, match=r"cannot be written to .*file/checkpoints"):
        store.begin(resumed_at=None, overwrite=False)


def test_an_unknown_kind_of_url_is_named() -> None:
    with pytest.raises(UserError, match=r"nosuch://x.*checkpoint.ckpt_path"):
        CheckpointStore("nosuch://x")
