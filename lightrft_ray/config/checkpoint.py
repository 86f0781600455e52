"""The settings of checkpoints: what a run writes to go on from, and what it goes on from."""

from typing import Annotated, Literal

from pydantic import AfterValidator, NonNegativeInt, PositiveFloat, PositiveInt

from lightrft_ray.config.fields import NonEmptyStr, Section, one_process_alone_sees

LoraForm = Literal["merged", "adapter"]
"""How a Hugging Face folder holds adapters: in the model's weights, or alone, as peft has them."""


class CheckpointConfig(Section):
    """Checkpoints to resume from."""

    resume: NonEmptyStr = "never"
    """Go on from the newest complete checkpoint (auto: from the start where there is none), from
    the checkpoint at a path or url, or never."""
    ckpt_path: Annotated[NonEmptyStr, AfterValidator(one_process_alone_sees)] | None = None
    """Folder or fsspec url of checkpoints that all nodes reach (null: output_dir/checkpoints)."""
    save_steps: NonNegativeInt = 50
    """Steps between checkpoints; one more at the end (0: only when the run is interrupted)."""
    max_ckpt_num: PositiveInt = 3
    """Checkpoints to keep; older ones are removed once a newer one is complete."""
    max_ckpt_mem: PositiveFloat | None = None
    """GB that all checkpoints may take; the newest is always kept (null: no limit)."""
    keep_best: bool = True
    """Keep the checkpoint with the best eval/accuracy beside the newest ones."""
    save_hf_ckpt: bool = False
    """Keep the policy as a Hugging Face folder in each checkpoint, too."""
    hf_lora: LoraForm = "merged"
    """There, adapters are merged into the weights, or alone for peft and vLLM to add
    (save_hf_ckpt and model.lora_rank > 0)."""
    save_timeout: PositiveFloat = 1800
    """Seconds to wait for a checkpoint to be written."""
