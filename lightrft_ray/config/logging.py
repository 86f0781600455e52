"""Settings of what a run shows and writes."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from lightrft_ray.config.fields import Section


class LoggingConfig(Section):
    """What a run shows and writes."""

    use_tensorboard: bool = True
    """Write TensorBoard events to output_dir."""
    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress on the terminal (auto: live on a terminal, plain elsewhere)."""
    trajectory_steps: NonNegativeInt = 10
    """Keep samples, token by token, of every so many steps (0: of none)."""
    trajectory_samples: PositiveInt = 2
    """Samples kept of such a step by each rule: best, worst, random, failed."""
