"""The policy of a checkpoint as a Hugging Face folder."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import ray
from torch import Tensor

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.checkpoint import LoraForm
from lightrft_ray.data.processing import load_processor
from lightrft_ray.driver.checkpoint_store import Checkpoint
from lightrft_ray.driver.model_card import model_card
from lightrft_ray.driver.preflight import resolve_checkpoints
from lightrft_ray.models.loading import load_policy
from lightrft_ray.models.token_models import TokenPolicy
from lightrft_ray.models.trained_part import leave_to_train
from lightrft_ray.observe.names import Record
from lightrft_ray.sync.weight_source import full_state_dict, named_weights
from lightrft_ray.workers.devices import model_source
from lightrft_ray.workers.snapshot import POLICY
from lightrft_ray.workers.state_files import deepspeed_classes, state_from_file
from lightrft_ray.workers.storage import FileEntry, Storage

HF_FOLDER = "hf"
"""The Hugging Face folder within a checkpoint, where `save_hf_ckpt` asks for it."""


def export_checkpoint(checkpoint: Checkpoint, output: Path, lora: LoraForm | None = None) -> None:
    """Write a checkpoint's policy to `output`: safetensors, processor, chat template and card.

    `lora` takes the place of the run's `checkpoint.hf_lora`. Raises UserError where `output` holds
    something already, and for adapters that the run has not.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"--output {output} is not empty: give another folder")
    config = _with_lora(RunConfig.model_validate_json(json.dumps(checkpoint.manifest.config)), lora)
    state = json.loads(checkpoint.driver_state())
    _export(checkpoint.storage, config, output, state["step"], state["results"])


@ray.remote(num_cpus=0, max_retries=2)
def export_beside(url: str, config: RunConfig, step: int, results: Record) -> dict[str, FileEntry]:
    """Add the Hugging Face folder to a checkpoint that is being written; entries of its files."""
    storage = Storage(url)
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / HF_FOLDER
        _export(storage, config, output, step, results)
        files = [path for path in output.rglob("*") if path.is_file()]
        return {
            name: storage.write(name, path.read_bytes())
            for path in files
            if (name := path.relative_to(scratch).as_posix())
        }


def _export(storage: Storage, config: RunConfig, output: Path, step: int, results: Record) -> None:
    resolved = resolve_checkpoints(config)
    model = load_policy(model_source(resolved, resolved.model.pretrain))
    adapted = leave_to_train(model, resolved.model, resolved.seed)
    with _at_hand(storage) as folder:
        TokenPolicy(model).load_state_dict(_full_state(folder, config.trainer.zero_stage))
    if config.checkpoint.hf_lora == "adapter":
        adapted.save_pretrained(str(output))
    else:
        weights = named_weights(model, config.sync.bucket_bytes)
        model.save_pretrained(output, state_dict=full_state_dict(weights, keep=True))
    write_companions(resolved, output)
    (output / "README.md").write_text(model_card(config, step, results), encoding="utf-8")


def _with_lora(config: RunConfig, lora: LoraForm | None) -> RunConfig:
    if lora is None:
        return config
    if config.model.lora_rank == 0:
        raise UserError("--lora: this run trained no adapters (model.lora_rank 0): leave it out")
    checkpoint = config.checkpoint.model_copy(update={"hf_lora": lora})
    return config.model_copy(update={"checkpoint": checkpoint})


def write_companions(config: RunConfig, output: Path) -> None:
    """What a model needs beside its weights: processor, tokenizer and chat template."""
    model = config.model
    load_processor(model.pretrain, model.trust_remote_code).save_pretrained(output)


@contextlib.contextmanager
def _at_hand(storage: Storage) -> Iterator[Path]:
    """A local folder with the policy's files."""
    if storage.is_local:
        yield Path(storage.url)
        return
    with tempfile.TemporaryDirectory() as folder:
        storage.download(POLICY, Path(folder))
        yield Path(folder)


def _full_state(folder: Path, zero_stage: int) -> dict[str, Tensor]:
    """Name -> whole parameter or buffer, float32 where DeepSpeed has cut it up.

    Raises UserError where a file holds more than data.
    """
    # DeepSpeed reads them as pickles that may run anything: these have been seen not to.
    paths = sorted((folder / POLICY).glob("*_states.pt"))
    states = [state_from_file(path, deepspeed_classes()) for path in paths]
    if zero_stage == 0:
        whole: dict[str, Tensor] = cast(dict[str, Any], states[0])["module"]
        return whole
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    with contextlib.redirect_stdout(None):  # it prints what it does, which nobody asked for
        gathered: dict[str, Tensor] = get_fp32_state_dict_from_zero_checkpoint(str(folder), POLICY)
    return gathered
