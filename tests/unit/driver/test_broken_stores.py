"""Disks that are full, folders that may not be written, stores that are read-only or gone."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lightrft_ray.config import InfrastructureError, UserError
from lightrft_ray.driver.checkpoint_store import DRIVER_STATE, CheckpointStore
from lightrft_ray.driver.manifest import Manifest

BIG = "policy/rank_0.pt"
FILES = {DRIVER_STATE: b'{"step": 1}', BIG: b"0123456789" * 500}


class _FaultyFileSystem(MemoryFileSystem):
    """A store in memory in which `fault` is called before each access, with its kind."""

    protocol = "faulty"
    fault: ClassVar[Callable[[str], None] | None] = None

    def _access(self, kind: str) -> None:
        if _FaultyFileSystem.fault is not None:
            _FaultyFileSystem.fault(kind)

    def open(self, path: str, mode: str = "rb", **options: object) -> object:
        self._access("write" if "w" in mode else "read")
        return super().open(path, mode, **options)

    def cat_file(self, path: str, **options: object) -> bytes:
        self._access("read")
        return super().cat_file(path, **options)

    def ls(self, path: str, detail: bool = True, **options: object) -> list:
        self._access("read")
        return super().ls(path, detail, **options)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        self._access("write")
        super().rm(path, recursive, maxdepth)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._access("write")
        super().makedirs(path, exist_ok)


@pytest.fixture
def remote() -> Iterator[CheckpointStore]:
    """A remote store with a checkpoint."""
    fsspec.register_implementation("faulty", _FaultyFileSystem, clobber=True)
    store = CheckpointStore("faulty://bucket/checkpoints")
    _write(store, 1)
    yield store
    _FaultyFileSystem.fault = None
    MemoryFileSystem.store.clear()


@contextmanager
def _fault(raised: Callable[[str], None]) -> Iterator[None]:
    _FaultyFileSystem.fault = staticmethod(raised)
    yield
    _FaultyFileSystem.fault = None


def _read_only(kind: str) -> None:
    if kind == "write":
        raise PermissionError(errno.EACCES, "Access Denied")


def _vanished(kind: str) -> None:
    raise ConnectionError(f"cannot {kind}: name or service not known")


def _lost_client(kind: str) -> None:
    raise RuntimeError(f"cannot {kind}: the client has no session")  # no OSError, as some raise


def _write(store: CheckpointStore, step: int) -> None:
    store.discard_unfinished(step)
    place = store.place_of(step)
    entries = {name: place.write(name, data) for name, data in FILES.items()}
    store.complete(Manifest(step, {"seed": 1}, {"policy": 1}, {"policy": "x"}, entries))


def _assert_good(store: CheckpointStore) -> None:
    """The checkpoint from before is there, and whole."""
    assert store.steps() == [1]
    assert store.open(1).driver_state() == FILES[DRIVER_STATE]


def test_a_read_only_store_is_named_at_the_start(remote: CheckpointStore) -> None:
    with (
        _fault(_read_only),
        pytest.raises(UserError, match=r"written to faulty://bucket.*Access Denied.*ckpt_path"),
    ):
        remote.begin(resumed_at=1, overwrite=False)
    _assert_good(remote)


@pytest.mark.parametrize(
    ("fault", "error"), [(_vanished, UserError), (_lost_client, InfrastructureError)]
)
def test_a_store_that_is_gone_is_no_empty_one(
    remote: CheckpointStore, fault: Callable[[str], None], error: type[Exception]
) -> None:
    """A run must not begin at the beginning because its checkpoints cannot be seen."""
    with _fault(fault), pytest.raises(error, match=r"read from faulty://bucket.*cannot read"):
        remote.newest(lambda text: None)
    _assert_good(remote)


@pytest.mark.parametrize("fault", [_read_only, _vanished, _lost_client])
def test_a_store_that_breaks_in_mid_write_keeps_the_last_good_one(
    remote: CheckpointStore, fault: Callable[[str], None]
) -> None:
    place = remote.place_of(2)
    place.write(DRIVER_STATE, FILES[DRIVER_STATE])
    with (
        _fault(fault),
        pytest.raises((UserError, InfrastructureError), match=r"written to faulty://.*step_2"),
    ):
        place.write(BIG, FILES[BIG])
    _assert_good(remote)
    _write(remote, 2)
    assert remote.steps() == [2, 1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_keeps_the_last_good_one(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    _write(store, 1)
    place = store.place_of(2)
    full = Path(place.url) / BIG
    full.parent.mkdir(parents=True)
    full.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"step_2 .No space left.*max_ckpt_num"):
        place.write(BIG, FILES[BIG])
    _assert_good(store)


def test_a_folder_without_permission_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "checkpoints"
        store = CheckpointStore(str(folder))
        _write(store, 1)
        Path(name).chmod(0o755)
        folder.chmod(0o555)
        with (
            _without_privileges(),
            pytest.raises(UserError, match=r"written to .*checkpoints .Permission denied.*ckpt"),
        ):
            store.begin(resumed_at=1, overwrite=False)
        _assert_good(store)
        folder.chmod(0o755)


@contextmanager
def _without_privileges() -> Iterator[None]:
    """As a user whom permissions hold for: for root they do not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)
