"""Memory of a role's process by what it is for: formulas alone, in bytes.

What a process always holds and what it needs only for a while are kept apart: of the latter the
largest counts, as the phases of a step come one after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightrft_ray.models.model_shape import BlockShape, ModelShape

GB = 10**9
GIB = 2**30
FLOAT32 = 4

# DeepSpeed's defaults, which runs leave as they are (reduce_bucket_size, stage3_max_live_parameters
# and sub_group_size), in elements.
_REDUCE_BUCKET = 500_000_000
_MAX_LIVE = 1_000_000_000
_SUB_GROUP = 1_000_000_000
_LOGITS_CHUNK = 2**28  # bytes: models/fused_log_probs.py computes that much of the logits at a time


@dataclass(frozen=True)
class Memory:
    """Bytes by purpose: what is `held` all the time, and what is needed `in_turn`."""

    held: Mapping[str, float]
    in_turn: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Bytes at the peak."""
        return sum(self.held.values()) + max(self.in_turn.values(), default=0.0)


@dataclass(frozen=True)
class Training:
    """What the memory of a trained model depends on beside its shape."""

    itemsize: int
    """Bytes of a parameter: 2 for bfloat16, 4 for float32."""
    zero_stage: int
    ranks: int
    checkpoints_blocks: bool = False
    """Whether activations are computed again in the backward pass."""


@dataclass(frozen=True)
class RowSize:
    """Of a micro-batch's rows: tokens, patches of images, and elements of the attention's mask.

    Where the attention takes a mask, it repeats the keys and values of a group.
    """

    tokens: int
    patches: int
    mask_elements: int
    repeats_keys: bool


def model_states(shape: ModelShape, how: Training) -> dict[str, float]:
    """Weights, gradients and optimizer states of one rank (ZeRO, 1910.02054, table 1).

    The optimizer keeps float32 weights and Adam's two moments: 12 bytes a trained parameter.
    Frozen parameters have weights alone. Without ZeRO, DeepSpeed trains float32 parameters in
    place, and keeps a float32 copy of others.
    """
    ranks = how.ranks
    weights: float = shape.parameters * how.itemsize
    gradients: float = shape.trained * how.itemsize
    has_copy = how.zero_stage > 0 or how.itemsize < FLOAT32
    optimizer: float = shape.trained * FLOAT32 * (3 if has_copy else 2)
    return {
        "weights": weights / ranks if how.zero_stage == 3 else weights,
        "gradients": gradients / ranks if how.zero_stage >= 2 else gradients,
        "optimizer": optimizer / ranks if how.zero_stage >= 1 else optimizer,
    }


def zero_buffers(shape: ModelShape, how: Training) -> dict[str, float]:
    """What DeepSpeed holds to exchange gradients and, under ZeRO-3, to gather weights."""
    if how.zero_stage == 0:
        return {}
    buffers: dict[str, float] = {
        "gradient bucket": min(_REDUCE_BUCKET, shape.trained) * how.itemsize
    }
    if how.zero_stage == 3 and how.ranks > 1:
        live = max(shape.largest_tensor, min(_MAX_LIVE, shape.parameters))
        buffers["gathered weights"] = live * how.itemsize
    return buffers


def optimizer_step(shape: ModelShape, how: Training) -> float:
    """Gradients of a rank's part in float32, while the optimizer runs."""
    part = shape.trained / (how.ranks if how.zero_stage >= 1 else 1)
    if how.zero_stage == 3:
        part = min(part, _SUB_GROUP)
    return part * FLOAT32


def activations(shape: ModelShape, rows: RowSize, how: Training) -> float:
    """What the backward pass of one micro-batch needs.

    With checkpointed blocks that is the input of each block and one block whole. The logits are
    computed in chunks, their gradients beside them, and the head's own gradient in float32.
    """
    language = _block_activations(shape.language, rows.tokens, rows, how)
    ends = rows.tokens * shape.language.hidden * (FLOAT32 + 2 * how.itemsize)
    mask = rows.mask_elements * how.itemsize
    vision = 0.0
    if shape.vision is not None and shape.trains_vision:
        vision = _block_activations(shape.vision, rows.patches, rows, how)
    logits = min(_LOGITS_CHUNK, rows.tokens * shape.vocabulary * FLOAT32)
    head = shape.vocabulary * shape.language.hidden * FLOAT32
    return language + ends + mask + vision + 2 * logits + head


def _block_activations(blocks: BlockShape, tokens: int, rows: RowSize, how: Training) -> float:
    one = tokens * blocks.saved_bytes(how.itemsize, repeats_keys=rows.repeats_keys)
    if not how.checkpoints_blocks:
        return blocks.layers * one
    return blocks.layers * tokens * blocks.hidden * how.itemsize + one


def scoring(shape: ModelShape, rows: RowSize, itemsize: int) -> float:
    """Working memory of a pass without gradients: one block, the mask, and a chunk of logits."""
    one = rows.tokens * shape.language.saved_bytes(itemsize, repeats_keys=rows.repeats_keys)
    return (
        one
        + rows.mask_elements * itemsize
        + min(_LOGITS_CHUNK, rows.tokens * shape.vocabulary * FLOAT32)
    )


def kv_bytes_per_token(blocks: BlockShape, itemsize: int, tensor_parallel: int) -> float:
    """Key-value cache of one token on one GPU; a KV head lies on one GPU at least."""
    heads = max(blocks.kv_heads / tensor_parallel, 1)
    return 2 * blocks.layers * heads * blocks.head_dim * itemsize
