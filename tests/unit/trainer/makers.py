"""Experience makers around a tiny checkpoint, and prompts for them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from transformers import AutoProcessor

from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.critic_vl import CriticVL
from lightrft_ray.trainer.experience_maker_vl import NaiveExperienceMakerVL
from lightrft_ray.trainer.kl import FixedKLController

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
PROMPTS = ["How many?", f"{IMAGE}What is it?", f"{IMAGE}{IMAGE}Which is larger?"]
REFERENCES = ["one", "two", "three"]
LABELS = ["text", "image", "images"]


def picture(seed: int, width: int = 56) -> Image.Image:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (56, width, 3), dtype=torch.uint8, generator=generator)
    return Image.fromarray(pixels.numpy())


IMAGES = [None, picture(1), [picture(2), picture(3, width=84)]]


def strategy(**arguments: Any) -> SimpleNamespace:
    chosen = {"n_samples_per_prompt": 3, "micro_rollout_batch_size": 4, "generate_max_len": 5}
    return SimpleNamespace(args=SimpleNamespace(**{**chosen, **arguments}))


def length_reward(responses: list[str], references: list[str]) -> list[float]:
    """Differs from sample to sample of a random policy."""
    return [
        sum(map(ord, text)) % 7 + len(ref) for text, ref in zip(responses, references, strict=True)
    ]


def maker(folder: Path, **changes: Any) -> NaiveExperienceMakerVL:
    """With an actor alone, unless told otherwise."""
    torch.manual_seed(0)
    processor = AutoProcessor.from_pretrained(folder)
    arguments: dict[str, Any] = {
        "actor": ActorVL(str(folder), bf16=False),
        "critic": None,
        "reward_model": None,
        "initial_model": None,
        "tokenizer": processor.tokenizer,
        "processor": processor,
        "prompt_max_len": 64,
        "kl_controller": None,
        "strategy": strategy(),
        "reward_fn": length_reward,
    }
    return NaiveExperienceMakerVL(**{**arguments, **changes})


def full_maker(folder: Path, **settings: Any) -> NaiveExperienceMakerVL:
    """With a critic, and a reference that differs from the actor."""
    reference = ActorVL(str(folder), bf16=False)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return maker(
        folder,
        critic=CriticVL(str(folder), bf16=False),
        initial_model=reference,
        kl_controller=FixedKLController(0.3),
        strategy=strategy(advantage_estimator="gae", use_kl_loss=False, **settings),
    )
