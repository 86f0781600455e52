"""Settings of the prompts."""

import math
import os
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from lightrft_ray.config.fields import Fraction, NonEmptyStr, Section, reject_unused

DIFFICULTY_SETTINGS: dict[str, frozenset[str]] = {
    "difficulty_floor": frozenset({"difficulty"}),
    "difficulty_memory": frozenset({"difficulty"}),
}
"""Settings that only one way to sample prompts uses, with that."""

Layout = Literal["auto", "lightrft", "openrlhf", "verl", "trl", "llava", "sharegpt"]
Scalar = str | bool | int | float


def source_names(text: str) -> list[str]:
    """The names in a setting, which may have commas between them; what exists as a whole is one."""
    if os.path.exists(text):  # noqa: PTH110 - no error for a text that is too long for a name
        return [text]
    return [name.strip() for name in text.split(",")]


class DataConfig(Section):
    """Prompts to train and evaluate on."""

    prompt_data: NonEmptyStr = "embedded:digits"
    """Training prompts: files, patterns, folders or names on the Hugging Face hub, with commas
    between them, or embedded:NAME."""
    prompt_data_probs: NonEmptyStr | None = None
    """Weights by which the sources of prompt_data are mixed, with commas between them (null: all
    their prompts are one set)."""
    eval_data: NonEmptyStr | None = None
    """Evaluation prompts (null: none; embedded data bring their held-out split)."""
    prompt_split: NonEmptyStr = "train"
    """Split of prompt_data that folders and hub names have; of a file the slice: train[:90%]."""
    eval_split: NonEmptyStr = "test"
    """Split of eval_data and eval_sets, as prompt_split."""
    layout: Layout = "auto"
    """Whose columns the data have (auto: by the first rows; with renamed columns lightrft's)."""
    input_key: NonEmptyStr = "prompt"
    """Column of the prompt: text or chat messages."""
    image_key: NonEmptyStr = "images"
    """Column of the images: paths or the bytes of files."""
    video_key: NonEmptyStr = "videos"
    """Column of the videos: paths or the bytes of files."""
    reference_key: NonEmptyStr = "reference"
    """Column of the reference answer."""
    label_key: NonEmptyStr = "label"
    """Column of the label that a reward function may choose by."""
    pretrain_data: NonEmptyStr | None = None
    """Demonstrations for a supervised loss beside the policy's: a file (null: none)."""
    output_key: NonEmptyStr = "response"
    """Column of the response in pretrain_data."""
    image_root: NonEmptyStr | None = None
    """Folder that relative paths of images and videos start from (null: the file's folder)."""
    allow_paths_outside: bool = False
    """Take images and videos from outside that folder, too."""
    filter_columns: dict[NonEmptyStr, Scalar | list[Scalar]] = Field(default={})
    """Rows to take: those with this value, or one of a list, in each of these columns."""
    max_prompt_chars: PositiveInt | None = None
    """Longest prompt in characters; longer ones are filtered out (null: any)."""
    system_prompt: str | None = None
    """System message before each prompt (null: none)."""
    prompt_max_len: PositiveInt = 128
    """Longest prompt in tokens, expanded image tokens included."""
    max_samples: PositiveInt | None = None
    """Training prompts to read of each source (null: all)."""
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

    @property
    def prompt_sources(self) -> list[str]:
        """The names in prompt_data."""
        return source_names(self.prompt_data)

    @property
    def prompt_weights(self) -> list[float] | None:
        """The weight of each source, None where they are one set."""
        if self.prompt_data_probs is None:
            return None
        return [float(weight) for weight in self.prompt_data_probs.split(",")]

    @model_validator(mode="after")
    def _weights_fit_sources(self) -> Self:
        sources = self.prompt_sources
        if not all(sources):
            raise ValueError("data.prompt_data has a comma without a source on both sides")
        try:
            weights = self.prompt_weights
        except ValueError:
            weights = []
        if weights is None:
            return self
        if not all(math.isfinite(weight) and weight > 0 for weight in weights) or not weights:
            raise ValueError(
                f"data.prompt_data_probs {self.prompt_data_probs} must be numbers above 0 with "
                "commas between them"
            )
        if len(weights) != len(sources):
            raise ValueError(
                f"data.prompt_data_probs has {len(weights)} weight(s) for {len(sources)} source(s)"
                " of data.prompt_data: give one for each, or set data.prompt_data_probs to null"
            )
        return self
