"""Settings of the prompts."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from lightrft_ray.config.fields import Fraction, NonEmptyStr, Section, reject_unused

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
