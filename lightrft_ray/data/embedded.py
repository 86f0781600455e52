"""The embedded data set and checkpoint: built on first use, then found in a cache folder.

`embedded:NAME` stands wherever a run takes a path. A cached folder's name carries a hash of all
that shapes its content, so a changed builder or library never meets an old build.
"""

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from lightrft_ray.config.errors import UserError

DEFAULT_CACHE_DIR = Path("~/.cache/lightrft_ray")
_PREFIX = "embedded:"
_DIGITS = "digits"
_TINY_VLM = "tiny-qwen2.5-vl"

# The modules whose source decides the content, and the libraries whose numbers or file formats do.
_SOURCES = {
    _DIGITS: ("digits.py",),
    _TINY_VLM: ("digits.py", "tiny_vlm.py", "warm_start.py"),
}
_LIBRARIES = {
    _DIGITS: ("numpy", "pillow", "scikit-learn"),
    _TINY_VLM: ("numpy", "pillow", "scikit-learn", "tokenizers", "torch", "transformers"),
}


def is_embedded(name: str) -> bool:
    """Whether `name` asks for something embedded and not for a path."""
    return name.startswith(_PREFIX)


def resolve_embedded(name: str, cache_dir: Path | None = None) -> Path:
    """The folder of `embedded:digits` or `embedded:tiny-qwen2.5-vl`, built if it is not cached.

    The data set's folder is a `DigitsDataset`; the checkpoint's is a Hugging Face one. Two
    processes may call this at once: both build, the first to finish is kept. Building prints one
    line. An unknown name raises UserError.
    """
    short_name = name.removeprefix(_PREFIX)
    if not is_embedded(name) or short_name not in _SOURCES:
        known = ", ".join(_PREFIX + each for each in _SOURCES)
        raise UserError(f"{name!r} is not embedded: choose one of {known}, or give a path")
    cache = (cache_dir or DEFAULT_CACHE_DIR).expanduser().resolve()
    target = cache / f"{short_name}-{_content_hash(short_name)}"
    if not target.is_dir():
        _build_into(target, _builder(short_name, cache))
    return target


def _content_hash(short_name: str) -> str:
    digest = hashlib.sha256()
    for source in _SOURCES[short_name]:
        digest.update(Path(__file__).with_name(source).read_bytes())
    for library in _LIBRARIES[short_name]:
        digest.update(f"{library}={version(library)}\n".encode())
    return digest.hexdigest()[:12]


def _builder(short_name: str, cache: Path) -> Callable[[Path], object]:
    if short_name == _DIGITS:
        from lightrft_ray.data.digits import build_digits_dataset

        return build_digits_dataset
    return lambda folder: _build_tiny_vlm(folder, cache)


def _build_tiny_vlm(folder: Path, cache: Path) -> None:
    from lightrft_ray.data.digits import DigitsDataset
    from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl
    from lightrft_ray.data.warm_start import warm_start

    dataset = DigitsDataset(resolve_embedded(_PREFIX + _DIGITS, cache))
    with _quiet_libraries():
        build_tiny_qwen_vl(folder)
        warm_start(folder, dataset)


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
