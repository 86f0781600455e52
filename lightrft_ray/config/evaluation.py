"""Settings of evaluation."""

from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from lightrft_ray.config.fields import NonEmptyStr, Section, check_set_name


class EvaluationSet(Section):
    """One more set of held-out prompts, with a sampling of its own."""

    data: NonEmptyStr
    """Prompts: a source as in data.prompt_data, or embedded:NAME."""
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
