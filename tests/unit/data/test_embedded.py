"""Embedded names resolve to complete cached folders, also when two processes build at once."""

import threading
from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.data import embedded
from lightrft_ray.data.embedded import is_embedded, resolve_embedded


def test_a_build_is_announced_once_and_then_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = resolve_embedded("embedded:digits", tmp_path / "cache")
    assert folder.parent == tmp_path / "cache"
    assert len(capsys.readouterr().out.splitlines()) == 1
    modified = folder.stat().st_mtime_ns
    assert resolve_embedded("embedded:digits", tmp_path / "cache") == folder
    assert capsys.readouterr().out == ""
    assert folder.stat().st_mtime_ns == modified
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]


def test_two_builders_at_once_leave_one_complete_folder(tmp_path: Path) -> None:
    """Both finish building before either publishes, the worst case for the rename."""
    both_built = threading.Barrier(2, timeout=30)

    def build(folder: Path) -> None:
        (folder / "content").write_text("the same in both")
        both_built.wait()

    target = tmp_path / "cache" / "thing-0123"
    builders = [
        threading.Thread(target=embedded._build_into, args=(target, build)) for _ in range(2)
    ]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(timeout=30)
    assert (target / "content").read_text() == "the same in both"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ValueError("builder broke")

    with pytest.raises(ValueError, match="builder broke"):
        embedded._build_into(tmp_path / "thing-0123", build)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["embedded:nothing", "digits", "embedded:"])
def test_an_unknown_name_lists_the_known_ones(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"embedded:digits, .*embedded:tiny-qwen2\.5-vl"):
        resolve_embedded(name, tmp_path)


def test_only_the_prefix_makes_a_name_embedded() -> None:
    assert is_embedded("embedded:digits")
    assert not is_embedded("data/embedded:digits.jsonl")
