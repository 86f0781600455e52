"""What is known of model families by their configuration."""

from transformers import PretrainedConfig

# What model configurations call the tokens that stand for pixels or enclose them.
_PLACEHOLDER_SETTINGS = (
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "video_token_index",
    "vision_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)


def forbidden_token_ids(config: PretrainedConfig) -> tuple[int, ...]:
    """Ids of image, video and vision placeholders, sorted: they must never be sampled.

    A sampled placeholder stands for pixels that do not exist, and the model's next pass fails.
    """
    ids = (getattr(config, setting, None) for setting in _PLACEHOLDER_SETTINGS)
    return tuple(sorted({each for each in ids if each is not None}))
