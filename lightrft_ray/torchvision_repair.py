"""Lets PyPI's torchvision load beside the CPU build of torch.

PyPI's torchvision wheel is compiled against the CUDA build. Beside the CPU build its C library
does not load, so the schemas ``torchvision::nms`` and ``torchvision::qnms`` are missing and
``import torchvision`` fails, although the Python transforms that Qwen-VL processors need would
work. Declaring the two schemas first is enough.

vLLM inspects models in fresh subprocesses, so this must happen in *every* process that imports
torch: an entry point in the group ``torch.backends`` runs at the end of ``import torch``. It
declares nothing where torchvision's own library loads.
"""

import importlib.util
from pathlib import Path

import torch

_MISSING_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # declarations live as long as their library object


def register_missing_operators() -> None:
    """Declare torchvision's operator schemas if its own library cannot; safe to call twice."""
    if _declared or not _needs_repair():
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in _MISSING_OPERATORS:
        library.define(name + _SCHEMA)
    _declared.append(library)


def _needs_repair() -> bool:
    """Whether torchvision is installed with a C library that this torch cannot load.

    Loading the library here is what ``import torchvision`` would do: it registers its operators
    once, however often it is loaded.
    """
    if torch.version.cuda is not None or torch.version.hip is not None:
        return False
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return False
    libraries = sorted(Path(spec.origin).parent.glob("_C*.so"))
    return bool(libraries) and not _loads(libraries[0])


def _loads(library: Path) -> bool:
    try:
        torch.ops.load_library(str(library))
    except OSError:
        return False
    return True
