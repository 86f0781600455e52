"""Settings of what a run shows and writes."""

from typing import Literal

from lightrft_ray.config.fields import Section


class LoggingConfig(Section):
    """What a run shows and writes."""

    use_tensorboard: bool = True
    """Write TensorBoard events to output_dir."""
    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress on the terminal (auto: live on a terminal, plain elsewhere)."""
