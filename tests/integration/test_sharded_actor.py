"""An actor under a ZeRO-3 configuration, in a process group of one."""

import multiprocessing
import os
import socket
from pathlib import Path

from tiny_models import text_model


def _sharded_step(folder: str, port: int) -> dict[str, object]:
    """In a process of its own: DeepSpeed leaves its process group and its hooks behind."""
    import deepspeed
    import torch

    from lightrft_ray.models.actor_language import ActorLanguage
    from lightrft_ray.models.loading import trainable_summary

    torch.set_num_threads(1)
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    actor = ActorLanguage(folder, bf16=False, ds_config=settings)
    held = sum(parameter.numel() for parameter in actor.parameters())
    optimizer = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    engine, *_ = deepspeed.initialize(model=actor, config={**settings, "optimizer": optimizer})
    tokens = torch.arange(2, 14).view(2, 6)
    log_probs = engine(tokens, 3)
    expected = ActorLanguage(text_model())(tokens, 3)
    engine.backward(log_probs.sum())
    engine.step()
    return {
        "held": held,
        "summary": trainable_summary(actor),
        "is_close": torch.allclose(log_probs, expected, atol=1e-5),
    }


def test_a_sharded_actor_is_never_whole_and_scores_the_same(tmp_path: Path) -> None:
    model = text_model()
    model.save_pretrained(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply_async(_sharded_step, (str(tmp_path), port)).get(timeout=180)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert result["held"] == 0  # all lie in ZeRO's partitions
    assert str(result["summary"]).startswith(
        f"trainable params: {total:,} || all params: {total:,}"
    )
    assert result["is_close"]
