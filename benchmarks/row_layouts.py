"""What the benchmarks of row layouts share: a random model, random samples, and a timed pass."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, RowLayout, build_rows
from lightrft_ray.models.token_models import Sampling, TokenPolicy

_IMAGE, _VIDEO, _VOCABULARY = 2046, 2047, 2048
_PATCH_WIDTH = 3 * 2 * 14 * 14  # channels, frames and sides of a patch


def random_model() -> TokenPolicy:
    """A Qwen2.5-VL of 5 million parameters, shared out over its parts as in the 3B checkpoint."""
    torch.manual_seed(0)
    width = 256
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": _VOCABULARY,
            "hidden_size": width,
            "intermediate_size": 704,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "bos_token_id": None,
            "eos_token_id": 1,
            "rope_parameters": {"rope_type": "default", "mrope_section": [8, 12, 12]},
        },
        vision_config={
            "depth": 4,
            "hidden_size": 128,
            "intermediate_size": 352,
            "num_heads": 2,
            "out_hidden_size": width,
            "fullatt_block_indexes": [3],
        },
        image_token_id=_IMAGE,
        video_token_id=_VIDEO,
        tie_word_embeddings=True,
    )
    return TokenPolicy(Qwen2_5_VLForConditionalGeneration(config).eval())


def log_normal_lengths(count: int, mean: float, generator: torch.Generator) -> list[int]:
    """Lengths of the given mean whose logarithms have a standard deviation of 1."""
    logarithms = torch.randn(count, generator=generator) + torch.tensor(mean).log() - 0.5
    return logarithms.exp().round().clamp(min=1).long().tolist()


def random_tokens(count: int, generator: torch.Generator) -> Tensor:
    """Words, no placeholders."""
    return torch.randint(3, _IMAGE, (count,), generator=generator)


def random_image(side: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
    """Placeholders and model inputs of a square image of `side` merged patches."""
    patches = torch.randn((2 * side) ** 2, _PATCH_WIDTH, generator=generator)
    grid = torch.tensor([[1, 2 * side, 2 * side]])
    return torch.full((side**2,), _IMAGE), {"pixel_values": patches, "image_grid_thw": grid}


@dataclass(frozen=True)
class Pass:
    """Seconds of forward and backward, log-probs of all actions, and the gradients."""

    seconds: float
    log_probs: Tensor
    gradients: list[Tensor]


def timed_pass(policy: TokenPolicy, groups: list[PromptGroup], layout: RowLayout) -> Pass:
    """Build rows, and go forward and backward through a mean in which each action has a weight."""
    policy.zero_grad()
    start = time.perf_counter()
    rows = build_rows(groups, layout, position_rule(policy.model.config), pad_token_id=0)
    log_probs = policy(rows, Sampling())[0][rows.action_mask]
    (log_probs * torch.linspace(-1, 2, len(log_probs))).mean().backward()
    seconds = time.perf_counter() - start
    gradients = [p.grad for p in policy.parameters() if p.grad is not None]
    return Pass(seconds, log_probs.detach(), gradients)


def largest_difference(own: list[Tensor], other: list[Tensor]) -> float:
    """The largest absolute difference of corresponding tensors."""
    return max((a - b).abs().max().item() for a, b in zip(own, other, strict=True))
