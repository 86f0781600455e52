"""The sections of a run's configuration: every setting with its type, default and meaning.

The defaults are those of the embedded demo, which runs on a CPU. The string below a setting is its
text in `--help`. A leaf name is unique over all sections, so `--n_samples_per_prompt` means the
same as `--rollout.n_samples_per_prompt`.
"""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from lightrft_ray.config.fields import (
    AdamBeta,
    Fraction,
    NonEmptyStr,
    Section,
    check_set_name,
    reject_unused,
    require_integer,
)


class ModelConfig(Section):
    """Checkpoints of the policy, the reference and the critic."""

    pretrain: NonEmptyStr = "embedded:tiny-qwen2.5-vl"
    """Policy to train: Hugging Face name, folder, or embedded:NAME."""
    ref_pretrain: NonEmptyStr | None = None
    """Reference model of the KL term (null: pretrain)."""
    critic_pretrain: NonEmptyStr | None = None
    """Model the critic starts from (null: pretrain)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Parameter type of learners and generators."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flex_attention"] = "sdpa"
    """Attention of learners, reference and critic; the last two run on GPUs only."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    trust_remote_code: bool = False
    """Run Python code that comes with a checkpoint."""
    freeze_vision_tower: bool = False
    """Leave the vision tower of policy and critic as it is: neither trained nor published."""
    freeze_projector: bool = False
    """The same for what joins the vision tower to the language model."""
    freeze_embeddings: bool = False
    """The same for the token embeddings, and with them for an output head that is tied to them."""
    freeze_patterns: Annotated[tuple[NonEmptyStr, ...], Field(strict=False)] = ()
    """The same for parameters of the policy by name, in which * stands for anything."""

    @model_validator(mode="after")
    def _flash_attention_needs_half_precision(self) -> Self:
        if self.attn_implementation == "flash_attention_2" and self.dtype == "float32":
            raise ValueError(
                "model.attn_implementation flash_attention_2 has no float32 kernels: "
                "set model.dtype to bfloat16, or model.attn_implementation to sdpa"
            )
        return self


DIFFICULTY_SETTINGS: dict[str, frozenset[str]] = {
    "difficulty_floor": frozenset({"difficulty"}),
    "difficulty_memory": frozenset({"difficulty"}),
}
"""Settings that only one way to sample prompts uses, with that."""


class DataConfig(Section):
    """Prompts to train and evaluate on."""

    prompt_data: NonEmptyStr = "embedded:digits"
    """Training prompts: a JSONL file, or embedded:NAME."""
    eval_data: NonEmptyStr | None = None
    """Evaluation prompts (null: none; embedded data bring their held-out split)."""
    input_key: NonEmptyStr = "prompt"
    """Column of the prompt: text or chat messages."""
    image_key: NonEmptyStr = "images"
    """Column of the image paths."""
    reference_key: NonEmptyStr = "reference"
    """Column of the reference answer."""
    label_key: NonEmptyStr = "label"
    """Column of the label that a reward function may choose by."""
    pretrain_data: NonEmptyStr | None = None
    """Demonstrations for a supervised loss beside the policy's: a JSONL file (null: none)."""
    output_key: NonEmptyStr = "response"
    """Column of the response in pretrain_data."""
    image_root: NonEmptyStr | None = None
    """Folder that relative image paths start from (null: the file's folder)."""
    system_prompt: str | None = None
    """System message before each prompt (null: none)."""
    prompt_max_len: PositiveInt = 128
    """Longest prompt in tokens, expanded image tokens included."""
    max_samples: PositiveInt | None = None
    """Training prompts to read (null: all)."""
    eval_max_samples: PositiveInt | None = None
    """Evaluation prompts to read (null: all)."""
    prompt_sampling: Literal["uniform", "difficulty"] = "uniform"
    """Prompts of an epoch: all, or the more likely the closer to half of their samples are correct
    (difficulty; reward.correct_threshold says what is)."""
    difficulty_floor: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Chance of prompts that are solved always or never (difficulty only; null: 0.1)."""
    difficulty_memory: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Weight of earlier visits in a prompt's share of correct samples (difficulty only; null:
    0.5)."""
    max_bad_fraction: Fraction = 0.05
    """Share of unusable rows of a file, or prompts in the run, past which the run stops."""
    cache_dir: NonEmptyStr | None = None
    """Folder of embedded models and data (null: ~/.cache/lightrft_ray)."""

    @model_validator(mode="after")
    def _sampling_uses_its_settings(self) -> Self:
        reject_unused(self, "data", "prompt_sampling", self.prompt_sampling, DIFFICULTY_SETTINGS)
        return self


class TrainerConfig(Section):
    """Optimization by the learners."""

    num_steps: PositiveInt = 150
    """Steps of the run; each generates, scores, learns and publishes once."""
    max_epochs: PositiveInt = 1
    """Passes over the samples of a step."""
    train_batch_size: PositiveInt = 256
    """Samples of an optimizer step, all ranks together."""
    ptx_batch_size: PositiveInt | None = None
    """Demonstrations of an optimizer step, all ranks together (null: train_batch_size)."""
    micro_train_batch_size: PositiveInt = 256
    """Samples of one forward and backward pass on one rank."""
    micro_rollout_batch_size: PositiveInt = 256
    """Samples of one scoring pass on one worker."""
    actor_learning_rate: NonNegativeFloat = 5e-4
    """Peak learning rate of the policy."""
    critic_learning_rate: NonNegativeFloat = 1e-3
    """Peak learning rate of the critic."""
    critic_warmup_steps: NonNegativeInt = 0
    """First steps of the run in which the critic alone is trained."""
    lr_warmup_steps: NonNegativeInt = 0
    """Optimizer steps over which the learning rate rises from 0."""
    lr_scheduler: Literal["constant", "cosine", "linear"] = "constant"
    """Course of the learning rate after the warm-up; cosine and linear end at 0."""
    adam_betas: Annotated[tuple[AdamBeta, AdamBeta], Field(strict=False)] = (0.9, 0.95)
    """Decay rates of Adam's two moments."""
    l2: NonNegativeFloat = 0.0
    """Decoupled weight decay of Adam."""
    max_norm: PositiveFloat = 1.0
    """Gradient norm past which gradients are scaled down."""
    max_skipped_in_row: PositiveInt = 10
    """Updates in a row without a finite loss and gradient after which the run stops."""
    enable_ema: bool = False
    """Keep a moving average of the policy's weights, for hf_checkpoint."""
    ema_beta: AdamBeta | None = None
    """Share of the average that an update keeps (null: 0.992)."""
    zero_stage: Annotated[Literal[0, 1, 2, 3], BeforeValidator(require_integer)] = 1
    """DeepSpeed ZeRO stage: what the ranks share out among them."""
    row_layout: Literal["shared_prefix", "packed", "padded"] = "shared_prefix"
    """A micro-batch is one row in which samples share their prompt or repeat it, or is padded."""
    learner_timeout: PositiveFloat = 600
    """Seconds to wait for one call of a learner, reference or critic."""

    @property
    def averaging_beta(self) -> float:
        """`ema_beta` with its default filled in."""
        return 0.992 if self.ema_beta is None else self.ema_beta

    @model_validator(mode="after")
    def _average_is_kept(self) -> Self:
        if self.ema_beta is not None and not self.enable_ema:
            raise ValueError(
                "trainer.ema_beta does nothing without trainer.enable_ema: set "
                "trainer.enable_ema to true, or trainer.ema_beta to null"
            )
        return self


class EvaluationSet(Section):
    """One more set of held-out prompts, with a sampling of its own."""

    data: NonEmptyStr
    """Prompts: a JSONL file, or embedded:NAME."""
    max_samples: PositiveInt | None = None
    """Prompts to read (null: all)."""
    n_samples_per_prompt: PositiveInt = 1
    """Samples of one prompt; pass@k is over so many."""
    temperature: NonNegativeFloat = 0.0
    """Sampling temperature (0: greedy)."""
    generate_max_len: PositiveInt | None = None
    """Longest response in tokens (null: that of training)."""

    @model_validator(mode="after")
    def _samples_differ(self) -> Self:
        if self.n_samples_per_prompt > 1 and self.temperature == 0:
            raise ValueError(
                f"n_samples_per_prompt {self.n_samples_per_prompt} at temperature 0 gives the same "
                "sample again and again: set temperature above 0, or n_samples_per_prompt to 1"
            )
        return self


SetName = Annotated[str, AfterValidator(check_set_name)]


class EvaluationConfig(Section):
    """Evaluation on held-out prompts."""

    eval_only: bool = False
    """Evaluate the checkpoint that checkpoint.resume names, or model.pretrain; train nothing."""

    eval_steps: NonNegativeInt = 50
    """Steps between evaluations (0: only before and after the run)."""
    eval_temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Sampling temperature of evaluation (0: greedy)."""
    eval_generate_max_len: PositiveInt | None = None
    """Longest response in evaluation, in tokens (null: generate_max_len)."""
    eval_ema: bool = False
    """Evaluate the moving average of the weights (enable_ema), published for that alone."""
    eval_n_samples_per_prompt: PositiveInt = 1
    """Samples of one evaluation prompt; pass@k is over so many."""
    eval_sets: dict[SetName, EvaluationSet] = Field(default={})
    """More sets by name, each with data and, where wanted, max_samples, n_samples_per_prompt,
    temperature and generate_max_len."""

    def longest(self, training: int) -> int:
        """Tokens of the longest response in any set, where training allows `training`."""
        own = [self.eval_generate_max_len, *(s.generate_max_len for s in self.eval_sets.values())]
        return max(length or training for length in own)

    @model_validator(mode="after")
    def _samples_differ(self) -> Self:
        if self.eval_n_samples_per_prompt > 1 and self.eval_temperature == 0:
            raise ValueError(
                "evaluation.eval_n_samples_per_prompt above 1 at evaluation.eval_temperature 0 "
                "gives the same sample again and again: set evaluation.eval_temperature above 0, "
                "or evaluation.eval_n_samples_per_prompt to 1"
            )
        return self


class SyncConfig(Section):
    """Publication of weights from the learners to the generators."""

    transport: Literal["object_store"] = "object_store"
    """How weights travel: through the Ray object store."""
    bucket_mb: PositiveInt = 256
    """Size of one bucket of weights in MB."""
    publish_timeout: PositiveFloat = 120
    """Seconds to wait for a publication."""
    canary_max_abs_diff: PositiveFloat = 1e-3
    """Log-prob gap of learner and generator past which the run stops (bfloat16: set it higher)."""


class PlacementConfig(Section):
    """Processes and GPUs of each model."""

    actor_num_nodes: PositiveInt = 1
    """Nodes of the learners (GPU only)."""
    actor_num_gpus_per_node: NonNegativeInt = 0
    """GPUs of the learners on each node (0: CPU processes)."""
    critic_num_nodes: PositiveInt = 1
    """Nodes of the critic (GPU only)."""
    critic_num_gpus_per_node: NonNegativeInt = 0
    """GPUs of the critic on each node (0: CPU processes)."""
    ref_num_nodes: PositiveInt = 1
    """Nodes of the reference (GPU only)."""
    ref_num_gpus_per_node: NonNegativeInt = 0
    """GPUs of the reference on each node (0: CPU processes)."""
    cpu_learner_ranks: PositiveInt = 1
    """Processes of the learner, and as many of the critic, where they have no GPUs."""
    cpu_ref_workers: PositiveInt = 1
    """Reference processes when ref_num_gpus_per_node is 0."""
    vllm_use_gpu: bool = False
    """Give each generator vllm_tensor_parallel_size GPUs (false: CPU)."""
    placement_timeout: PositiveFloat = 60
    """Seconds to wait for the cluster to provide the processes and GPUs."""
    cpu_threads_per_worker: PositiveInt = 2
    """PyTorch threads of each CPU process."""

    @model_validator(mode="after")
    def _counts_fit_the_kind_of_process(self) -> Self:
        for group in ("actor", "critic", "ref"):
            nodes, gpus = f"{group}_num_nodes", f"{group}_num_gpus_per_node"
            if getattr(self, gpus) == 0 and getattr(self, nodes) > 1:
                raise ValueError(
                    f"placement.{nodes} does nothing without GPUs: "
                    f"set placement.{gpus} to 1 or more, or placement.{nodes} to 1"
                )
        if self.ref_num_gpus_per_node > 0 and self.cpu_ref_workers > 1:
            raise ValueError(
                "placement.cpu_ref_workers does nothing with GPUs: "
                "set placement.ref_num_gpus_per_node to 0, or placement.cpu_ref_workers to 1"
            )
        return self


class LoggingConfig(Section):
    """What a run shows and writes."""

    use_tensorboard: bool = True
    """Write TensorBoard events to output_dir."""
    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress on the terminal (auto: live on a terminal, plain elsewhere)."""
