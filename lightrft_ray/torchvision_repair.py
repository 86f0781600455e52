"""Lets PyPI's torchvision load beside the CPU build of torch.

PyPI's torchvision wheel is compiled against the CUDA build. Beside the CPU build its C library
does not load, so the schemas ``torchvision::nms`` and ``torchvision::qnms`` are missing and
``import torchvision`` fails, although the Python transforms that Qwen-VL processors need would
work. Declaring the two schemas first is enough.

vLLM inspects models in fresh subprocesses, so this must happen in *every* process that imports
torch: an entry point in the group ``torch.backends`` runs at the end of ``import torch``. It
declares nothing where torchvision's own library is built for the torch at hand.
"""

import importlib.metadata

import torch

_MISSING_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library: torch.library.Library | None = None


def register_missing_operators() -> None:
    """Declare torchvision's operator schemas if its own library cannot: safe to call twice."""
    global _library  # noqa: PLW0603  (a Library's declarations live as long as the object)
    if _library is not None or not _needs_repair():
        return
    _library = torch.library.Library("torchvision", "DEF")
    for name in _MISSING_OPERATORS:
        _library.define(name + _SCHEMA)


def _needs_repair() -> bool:
    """Whether torch has no CUDA while the installed torchvision was built for it.

    torchvision's local version label (``+cpu``) marks the wheels that match the CPU build.
    """
    if torch.version.cuda is not None or torch.version.hip is not None:
        return False
    try:
        version = importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError:
        return False
    return "+cpu" not in version
