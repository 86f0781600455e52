"""Fused log-probs and entropies against the plain computation over whole logits, on the CPU.

Both take hidden states and the output head's weight to log-probs and entropies under a temperature
and forbidden ids, and the gradient of a weighted mean of the log-probs back to both. Each
measurement has a process of its own, one after another. Peaks are resident memory above the inputs,
the weight and its gradient. The last line is a JSON object; errors are absolute, over log-probs,
entropies and both gradients.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor

from lightrft_ray.models.fused_log_probs import fused_log_probs
from lightrft_ray.models.log_probs import sampled_distribution, token_entropy, token_log_probs

_TEMPERATURE = 0.8
_FORBIDDEN = (5, 6, 7)
_MB = 2**20

Scorer = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class _Size:
    tokens: int
    vocabulary: int
    hidden: int


def main() -> None:
    """Measure both in turn and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    size = _Size(options.tokens, options.vocabulary, options.hidden)
    seconds: dict[str, list[float]] = {name: [] for name in _SCORERS}
    peaks: dict[str, list[float]] = {name: [] for name in _SCORERS}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in _SCORERS]
        for _ in range(options.repeats):
            for name, file in zip(_SCORERS, files, strict=True):
                with get_context("spawn").Pool(1) as pool:
                    took, peak = pool.apply(_measure, (name, size, file))
                seconds[name].append(took)
                peaks[name].append(peak)
                print(f"{name}: {took:.1f} s, {peak:.0f} MB above inputs, weight and its gradient")
        max_abs_error = _largest_difference(*files)
    figures = {
        "memory_ratio": max(peaks["fused"]) / min(peaks["plain"]),
        "time_ratio": statistics.median(seconds["fused"]) / statistics.median(seconds["plain"]),
        "max_abs_error": max_abs_error,
        "peak_mb": max(peaks["fused"]),
        "plain_peak_mb": min(peaks["plain"]),
        "seconds": statistics.median(seconds["fused"]),
        "plain_seconds": statistics.median(seconds["plain"]),
    }
    print(json.dumps(figures))


def _plain(hidden: Tensor, weight: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
    distribution = sampled_distribution(
        hidden @ weight.T, temperature=_TEMPERATURE, forbidden=_FORBIDDEN
    )
    return token_log_probs(distribution, token_ids), token_entropy(distribution.detach())


def _fused(hidden: Tensor, weight: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
    return fused_log_probs(
        hidden, weight, None, token_ids, temperature=_TEMPERATURE, forbidden=_FORBIDDEN
    )


_SCORERS: dict[str, Scorer] = {"plain": _plain, "fused": _fused}


def _measure(name: str, size: _Size, file: Path) -> tuple[float, float]:
    """(seconds, peak in MB) of forward and backward; the results go into the file."""
    hidden, weight, token_ids, upstream = _inputs(*astuple(size))
    _SCORERS[name](hidden[:2], weight[:64], token_ids[:2] % 64)  # start the threads
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = _status_mb("VmRSS")
    start = time.perf_counter()
    log_probs, entropy = _SCORERS[name](hidden, weight, token_ids)
    log_probs.backward(upstream)
    took = time.perf_counter() - start
    peak = _status_mb("VmHWM") - before - weight.nbytes / _MB
    torch.save([log_probs.detach(), entropy.detach(), hidden.grad, weight.grad], file)
    return took, peak


def _inputs(tokens: int, vocabulary: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states of unit variance, logits too; each token has a weight of its own."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, width, generator=generator, requires_grad=True)
    weight = torch.randn(vocabulary, width, generator=generator).div_(width**0.5).requires_grad_()
    token_ids = torch.randint(len(_FORBIDDEN) + 5, vocabulary, (tokens,), generator=generator)
    return hidden, weight, token_ids, torch.randn(tokens, generator=generator) / tokens


def _status_mb(field: str) -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kilobytes = re.search(rf"{field}:\s+(\d+) kB", status)
    assert kilobytes is not None
    return int(kilobytes[1]) / 1024


def _largest_difference(plain: Path, fused: Path) -> float:
    names = ("log-probs", "entropies", "hidden states' gradient", "weight's gradient")
    pairs = zip(torch.load(plain), torch.load(fused), strict=True)
    differences = [(a - b).abs().max().item() for a, b in pairs]
    for name, difference in zip(names, differences, strict=True):
        print(f"{name}: {difference:.1e}")
    return max(differences)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
