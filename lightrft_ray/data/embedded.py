"""The embedded data sets and checkpoints: built on first use, then found in a cache folder.

`embedded:NAME` stands wherever a run takes a path. A cached folder's name carries a hash of all
that shapes its content, so a changed builder or library never meets an old build.
"""

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from lightrft_ray.config.errors import UserError

DEFAULT_CACHE_DIR = Path("~/.cache/lightrft_ray")
_PREFIX = "embedded:"
_TINY_VLM = "tiny-qwen2.5-vl"


@dataclass(frozen=True)
class _Recipe:
    """How a folder is built, given the cache for what it is built from.

    `sources` are the modules whose source decides the content, `libraries` those whose numbers or
    file formats do.
    """

    build: Callable[[Path, Path], None]
    sources: tuple[str, ...]
    libraries: tuple[str, ...]


def is_embedded(name: str) -> bool:
    """Whether `name` asks for something embedded and not for a path."""
    return name.startswith(_PREFIX)


def resolve_embedded(name: str, cache_dir: Path | None = None) -> Path:
    """The folder of an embedded data set or checkpoint, built if it is not cached.

    A data set's folder is a `TaskFiles`; a checkpoint's is a Hugging Face one. Two processes may
    call this at once: both build, the first to finish is kept. Building prints one line. An unknown
    name raises UserError.
    """
    short_name = name.removeprefix(_PREFIX)
    if not is_embedded(name) or short_name not in _RECIPES:
        known = ", ".join(_PREFIX + each for each in _RECIPES)
        raise UserError(f"{name!r} is not embedded: choose one of {known}, or give a path")
    cache = (cache_dir or DEFAULT_CACHE_DIR).expanduser().resolve()
    target = cache / f"{short_name}-{_content_hash(short_name)}"
    if not target.is_dir():
        recipe = _RECIPES[short_name]
        _build_into(target, lambda folder: recipe.build(folder, cache))
    return target


def _content_hash(short_name: str) -> str:
    digest = hashlib.sha256()
    for source in _RECIPES[short_name].sources:
        digest.update(Path(__file__).with_name(source).read_bytes())
    for library in _RECIPES[short_name].libraries:
        digest.update(f"{library}={version(library)}\n".encode())
    return digest.hexdigest()[:12]


def _build_digits(folder: Path, cache: Path) -> None:  # noqa: ARG001
    from lightrft_ray.data.digits import build_digits_dataset

    build_digits_dataset(folder)


def _build_digit_comparison(folder: Path, cache: Path) -> None:  # noqa: ARG001
    from lightrft_ray.data.digit_tasks import build_digit_comparison

    build_digit_comparison(folder)


def _build_digit_video(folder: Path, cache: Path) -> None:  # noqa: ARG001
    from lightrft_ray.data.digit_tasks import build_digit_video

    build_digit_video(folder)


def _build_easy_vqa(folder: Path, cache: Path) -> None:  # noqa: ARG001
    from lightrft_ray.data.easy_vqa import build_easy_vqa

    build_easy_vqa(folder)


def _build_arithmetic(folder: Path, cache: Path) -> None:  # noqa: ARG001
    from lightrft_ray.data.arithmetic import build_arithmetic

    build_arithmetic(folder)


def _build_tiny_vlm(folder: Path, cache: Path) -> None:
    from lightrft_ray.data.task_files import TaskFiles
    from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl
    from lightrft_ray.data.warm_start import warm_start

    dataset = TaskFiles(resolve_embedded(_PREFIX + "digits", cache))
    with _quiet_libraries():
        build_tiny_qwen_vl(folder)
        warm_start(folder, dataset)


def _build_tasks_vlm(folder: Path, cache: Path) -> None:
    from lightrft_ray.data.task_files import TaskFiles
    from lightrft_ray.data.task_warm_start import warm_start_on_tasks

    tasks = [TaskFiles(resolve_embedded(_PREFIX + name, cache)) for name in _TASKS]
    shutil.copytree(resolve_embedded(_PREFIX + _TINY_VLM, cache), folder, dirs_exist_ok=True)
    with _quiet_libraries():
        warm_start_on_tasks(folder, tasks)


_IMAGES = ("numpy", "pillow")
_MODELS = (*_IMAGES, "tokenizers", "torch", "transformers")
_TINY_SOURCES = ("digits.py", "task_files.py", "tiny_vlm.py", "warm_start.py")
_DIGIT_SOURCES = ("digits.py", "digit_tasks.py", "task_files.py")
_RECIPES = {
    "digits": _Recipe(_build_digits, ("digits.py", "task_files.py"), _IMAGES),
    "digit-comparison": _Recipe(_build_digit_comparison, _DIGIT_SOURCES, _IMAGES),
    "digit-video": _Recipe(_build_digit_video, _DIGIT_SOURCES, _IMAGES),
    "easy-vqa": _Recipe(_build_easy_vqa, ("easy_vqa.py", "task_files.py"), ("numpy", "easy-vqa")),
    "arithmetic": _Recipe(_build_arithmetic, ("arithmetic.py", "task_files.py"), ("numpy",)),
    _TINY_VLM: _Recipe(_build_tiny_vlm, _TINY_SOURCES, _MODELS),
    f"{_TINY_VLM}-tasks": _Recipe(
        _build_tasks_vlm,
        # Not the modules that read and encode any data: they have one right result.
        (*_TINY_SOURCES, "arithmetic.py", "digit_tasks.py", "easy_vqa.py", "task_warm_start.py"),
        (*_MODELS, "easy-vqa"),
    ),
}
_TASKS = ("digit-comparison", "digit-video", "easy-vqa", "arithmetic")


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep bars for loading and saving, and remarks on the missing GPU, off the terminal."""
    from transformers.utils import logging as bars

    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        if shown:
            bars.enable_progress_bar()


def _build_into(target: Path, build: Callable[[Path], object]) -> None:
    """Build beside the target and rename, so that a folder with the target's name is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"building {target.name} once, into {target.parent}", flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        built = Path(scratch) / target.name
        built.mkdir()
        build(built)
        _publish(built, target)


def _publish(built: Path, target: Path) -> None:
    try:
        built.rename(target)
    except OSError:
        # Another process may have renamed its equal build first; any other cause is an error.
        if not target.is_dir():
            raise
