"""The sizes of a model that memory follows from."""

from dataclasses import dataclass

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from lightrft_ray.models.freezing import is_vision_tower


@dataclass(frozen=True)
class BlockShape:
    """Equal transformer blocks: `layers` of them; `feed_forward` is the width that a token passes.

    `heads` and `kv_heads` count those of the attention, `head_dim` wide each.
    """

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def queries(self) -> int:
        """Width of all heads' queries together."""
        return self.heads * self.head_dim

    def saved_bytes(self, itemsize: int, *, repeats_keys: bool) -> int:
        """Bytes a token that the backward pass of one block needs, as transformers saves them.

        A norm keeps its input in float32, what it is normalized to, and its output, which is the
        input of projections. The attention keeps queries, keys, values and its output; with a mask
        of its own (`repeats_keys`) each group's keys and values are as wide as its queries. The
        feed-forward keeps the gate, its activation, the other branch and their product.
        """
        keys = self.queries if repeats_keys else self.kv_heads * self.head_dim
        elements = 4 * self.hidden + 2 * self.queries + 2 * keys + 4 * self.feed_forward
        return 2 * 4 * self.hidden + elements * itemsize


@dataclass(frozen=True)
class ModelShape:
    """Counts of elements (tied parameters once) and the shapes of a model's parts."""

    parameters: int
    trained: int
    largest_tensor: int
    vocabulary: int
    language: BlockShape
    vision: BlockShape | None
    patches_per_token: int
    """Patches of the vision tower that become one token of the prompt."""
    trains_vision: bool


def shape_of(model: PreTrainedModel) -> ModelShape:
    """The shape of a model, as `freeze` has left it; it may lie on the meta device."""
    config = model.config
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    text = config.get_text_config()
    return ModelShape(
        parameters=sum(size for size, _ in sizes),
        trained=sum(size for size, trains in sizes if trains),
        largest_tensor=max(size for size, _ in sizes),
        vocabulary=text.vocab_size,
        language=_language_blocks(text),
        vision=_vision_blocks(config),
        patches_per_token=_patches_per_token(config),
        trains_vision=_trains_vision(model),
    )


def _language_blocks(text: PretrainedConfig) -> BlockShape:
    heads = text.num_attention_heads
    experts = getattr(text, "num_experts_per_tok", None)
    width = text.intermediate_size if experts is None else experts * text.moe_intermediate_size
    return BlockShape(
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        feed_forward=width,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
    )


def _vision_blocks(config: PretrainedConfig) -> BlockShape | None:
    vision = getattr(config, "vision_config", None)
    if vision is None:
        return None
    heads = vision.num_attention_heads  # `num_heads` of some families, by their own alias
    layers = getattr(vision, "depth", None) or vision.num_hidden_layers
    width = vision.hidden_size
    return BlockShape(layers, width, vision.intermediate_size, heads, heads, width // heads)


def _patches_per_token(config: PretrainedConfig) -> int:
    vision = getattr(config, "vision_config", None)
    return int(getattr(vision, "spatial_merge_size", 1)) ** 2


def _trains_vision(model: nn.Module) -> bool:
    return any(
        parameter.requires_grad and is_vision_tower(name)
        for name, parameter in model.named_parameters()
    )
