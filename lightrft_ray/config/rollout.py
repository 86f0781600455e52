"""The settings of generation: how prompts are sampled, and which samples are trained on."""

from typing import Literal, Self

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from lightrft_ray.config.fields import PositiveFraction, Section, Temperature


class RolloutConfig(Section):
    """Generation of samples by vLLM."""

    rollout_batch_size: PositiveInt = 32
    """Prompts of a step."""
    n_samples_per_prompt: PositiveInt = 8
    """Samples of one prompt."""
    best_of_n: PositiveInt | None = None
    """Samples to generate, of which the n_samples_per_prompt with the best rewards are trained on
    (null: no more than those)."""
    dynamic_sampling: bool = False
    """Replace prompts whose samples all have the same reward by new ones."""
    dynamic_sampling_max_batches: PositiveInt | None = None
    """Batches to draw for one step; after them, equal rewards fill what is missing (null: 10)."""
    generate_max_len: PositiveInt = 8
    """Longest response in tokens."""
    temperature: Temperature = 1.0
    """Sampling temperature; log-probs are of the distribution it gives."""
    use_fire: bool = False
    """Draw the first token of each response at first_token_temperature (FIRE)."""
    first_token_temperature: PositiveFloat | None = None
    """Temperature of that token (use_fire only; null: 10.0)."""
    first_token_top_k: PositiveInt | None = None
    """Likeliest tokens that it is drawn from (use_fire only; null: 16)."""
    vllm_num_engines: PositiveInt = 1
    """Generators."""
    vllm_tensor_parallel_size: PositiveInt = 1
    """GPUs (or CPU processes) of one generator."""
    vllm_gpu_memory_utilization: PositiveFraction = 0.85
    """Share of a GPU's memory that a generator takes (GPU only)."""
    vllm_max_num_seqs: PositiveInt = 256
    """Sequences that a generator decodes at once."""
    vllm_dtype: Literal["float32", "bfloat16"] | None = None
    """Parameter type of the generators; learners convert what they publish (null: model.dtype)."""
    vllm_enforce_eager: bool = True
    """Decode without CUDA graphs and compilation."""
    vllm_kv_cache_gb: PositiveInt = 1
    """Key-value cache of a generator in GB (CPU only)."""
    generate_timeout: PositiveFloat = 600
    """Seconds to wait for the samples of one prompt."""
    max_staleness: NonNegativeInt = 0
    """Weight versions that generation may run ahead of learning (0: synchronous; gae: up to 1)."""
    over_age: Literal["wait", "drop"] = "wait"
    """Of prompts that would be staler: wait for them in time, or begin them anew (max_staleness > 0
    only)."""

    @property
    def hot_temperature(self) -> float:
        """`first_token_temperature` with its default filled in."""
        return 10.0 if self.first_token_temperature is None else self.first_token_temperature

    @property
    def hot_top_k(self) -> int:
        """`first_token_top_k` with its default filled in."""
        return 16 if self.first_token_top_k is None else self.first_token_top_k

    @property
    def generated_per_prompt(self) -> int:
        """Samples of a prompt that are generated; the best n_samples_per_prompt are trained on."""
        return self.n_samples_per_prompt if self.best_of_n is None else self.best_of_n

    @model_validator(mode="after")
    def _first_token_is_hot(self) -> Self:
        for name in ("first_token_temperature", "first_token_top_k"):
            if getattr(self, name) is not None and not self.use_fire:
                raise ValueError(
                    f"rollout.{name} does nothing without rollout.use_fire: set rollout.use_fire "
                    f"to true, or rollout.{name} to null"
                )
        if self.use_fire and self.hot_temperature <= self.temperature:
            raise ValueError(
                f"rollout.first_token_temperature {self.hot_temperature:g} is not above "
                f"rollout.temperature {self.temperature:g}: set it higher, or rollout.use_fire "
                "to false"
            )
        return self

    @model_validator(mode="after")
    def _selection_can_choose(self) -> Self:
        if self.best_of_n is not None and self.best_of_n <= self.n_samples_per_prompt:
            raise ValueError(
                f"rollout.best_of_n {self.best_of_n} leaves nothing to choose from with "
                f"rollout.n_samples_per_prompt {self.n_samples_per_prompt}: set rollout.best_of_n "
                "above it, or to null"
            )
        if self.dynamic_sampling and self.n_samples_per_prompt < 2:
            raise ValueError(
                "rollout.dynamic_sampling compares the samples of one prompt: set "
                "rollout.n_samples_per_prompt to 2 or more, or rollout.dynamic_sampling to false"
            )
        if self.dynamic_sampling_max_batches is not None and not self.dynamic_sampling:
            raise ValueError(
                "rollout.dynamic_sampling_max_batches does nothing without "
                "rollout.dynamic_sampling: set rollout.dynamic_sampling to true, or "
                "rollout.dynamic_sampling_max_batches to null"
            )
        return self
