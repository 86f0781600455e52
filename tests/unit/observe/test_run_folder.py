"""The folder of a run: refused when it holds another one, and never cleaned of foreign files."""

from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.observe.run_folder import RunFolder


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs" / "first", overwrite=False)
    assert folder.path.is_dir()
    assert list(folder.path.iterdir()) == []
    names = [
        path.relative_to(folder.path).as_posix()
        for path in (folder.config, folder.metrics, folder.summary, folder.curves)
    ]
    assert names == ["config.yaml", "metrics.jsonl", "summary.json", "curves.png"]
    assert folder.tensorboard == folder.path / "tensorboard"
    assert folder.checkpoint == folder.path / "hf_checkpoint"


def test_a_folder_with_foreign_files_is_taken(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path, overwrite=False)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("trace", ["config.yaml", "metrics.jsonl"])
def test_a_folder_with_a_run_is_refused_and_left_alone(tmp_path: Path, trace: str) -> None:
    (tmp_path / trace).write_text("of another run")
    with pytest.raises(UserError) as refusal:
        RunFolder.create(tmp_path, overwrite=False)
    for text in (str(tmp_path), "--output_dir", "--overwrite_output true"):
        assert text in str(refusal.value)
    assert (tmp_path / trace).read_text() == "of another run"


def test_overwriting_removes_what_a_run_makes_and_nothing_else(tmp_path: Path) -> None:
    for name in (
        "config.yaml",
        "metrics.jsonl",
        "summary.json",
        "curves.png",
        "report.html",
        "evaluation.json",
    ):
        (tmp_path / name).write_text("old")
    for name in ("tensorboard", "hf_checkpoint", "skipped_updates", "checkpoints", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "notes.txt"]
    assert (tmp_path / "data" / "file").exists()


def test_overwriting_removes_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / "hf_checkpoint").symlink_to(model)
    RunFolder.create(run, overwrite=True)
    assert not (run / "hf_checkpoint").is_symlink()
    assert (model / "weights").read_text() == "precious"


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("mine")
    with pytest.raises(UserError, match=r"run is a file.*--output_dir"):
        RunFolder.create(path, overwrite=True)
    assert path.read_text() == "mine"


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="cannot be written"):
        RunFolder.create(tmp_path / "file" / "run", overwrite=False)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system without files")
def test_a_folder_that_takes_no_files_is_refused() -> None:
    with pytest.raises(UserError, match=r"/proc/self cannot be written \(.+\)"):
        RunFolder.create("/proc/self", overwrite=False)
