"""How a checkpoint is loaded: where to, with whose code, and what excludes each other."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import text_model, vision_model

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.critic_vl import CriticVL

_ZERO_3 = {"zero_optimization": {"stage": 3}}


def test_a_device_map_places_the_model(tmp_path: Path) -> None:
    text_model().save_pretrained(tmp_path)
    actor = ActorLanguage(str(tmp_path), device_map="meta")
    assert {weight.device.type for weight in actor.parameters()} == {"meta"}
    assert {weight.device.type for weight in ActorLanguage(str(tmp_path)).parameters()} == {"cpu"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device_map": "auto"}, "device_map places whole layers, and ds_config"),
        ({"load_in_4bit": True}, "load_in_4bit: ZeRO stage 3"),
    ],
)
def test_what_zero_3_cannot_be_combined_with(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    text_model().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=message):
        ActorLanguage(str(tmp_path), ds_config=_ZERO_3, **arguments)


def test_code_of_a_checkpoint_runs_only_when_asked(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own_config.OwnConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own_config.py").write_text(
        f"open({str(ran)!r}, 'w').close()\n"
        "from transformers import LlamaConfig\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
    )
    with pytest.raises(UserError, match="cannot be read"):
        ActorLanguage(str(tmp_path))
    assert not ran.exists()
    with pytest.raises(Exception, match=r"."):  # there are no weights
        ActorLanguage(str(tmp_path), trust_remote_code=True)
    assert ran.exists()


def test_attention_is_that_of_pytorch_unless_asked(tmp_path: Path) -> None:
    vision_model().save_pretrained(tmp_path)
    for made in (ActorVL(str(tmp_path)), CriticVL(str(tmp_path))):
        assert made.model.config._attn_implementation == "sdpa"
        assert made.model.dtype == torch.bfloat16
