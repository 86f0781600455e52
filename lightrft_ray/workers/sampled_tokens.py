"""What vLLM tells of the tokens of a request, as arrays."""

from collections.abc import Mapping, Sequence

import numpy as np
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput

_BEFORE_ANY_UPDATE = "default"  # what vLLM calls the weights that an engine starts with


def versions_of(completion: CompletionOutput) -> np.ndarray:
    """(L,) int64: the version of the weights that each token was sampled with, 0 before any."""
    spans = completion.weight_versions or []
    lengths = [span.end - span.start for span in spans]
    labels = ["0" if span.version == _BEFORE_ANY_UPDATE else span.version for span in spans]
    versions = np.repeat(np.array([int(label) for label in labels], dtype=np.int64), lengths)
    if len(versions) != len(completion.token_ids):
        raise RuntimeError("vLLM gave tokens without the version of their weights")
    return versions


def log_probs_of(
    token_ids: np.ndarray, positions: Sequence[Mapping[int, Logprob] | None]
) -> np.ndarray:
    """(L,) float32: the log-prob of each token, from vLLM's mapping at its position."""
    pairs = zip(token_ids.tolist(), positions, strict=True)
    values = [position[token].logprob for token, position in pairs if position is not None]
    return np.asarray(values, dtype=np.float32)
