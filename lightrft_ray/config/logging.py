"""Settings of what a run shows and writes."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, NonNegativeInt, PositiveInt, model_validator

from lightrft_ray.config.fields import NonEmptyStr, Section, reject_changed
from lightrft_ray.config.secrets import refuse_key, refuse_password


class LoggingConfig(Section):
    """What a run shows and writes."""

    use_tensorboard: bool = True
    """Write TensorBoard events to output_dir."""
    use_wandb: Annotated[bool, BeforeValidator(refuse_key)] = False
    """Log to Weights & Biases; its API key is taken from WANDB_API_KEY."""
    wandb_project: NonEmptyStr = "lightrft_ray"
    """Project on Weights & Biases."""
    wandb_run_name: str | None = None
    """Name of the run there (null: that of output_dir)."""
    wandb_org: str | None = None
    """Team or user there (null: that of the API key)."""
    wandb_group: str | None = None
    """Group that the run is shown in there."""
    wandb_mode: Literal["online", "offline"] = "online"
    """Offline: into output_dir, for `wandb sync` later."""
    use_mlflow: bool = False
    """Log to MLflow; its password or token is taken from the variables that MLflow names."""
    mlflow_tracking_uri: Annotated[str | None, BeforeValidator(refuse_password)] = None
    """MLflow's server or folder (null: MLFLOW_TRACKING_URI, else a folder in output_dir)."""
    mlflow_experiment: NonEmptyStr = "lightrft_ray"
    """Experiment on MLflow."""
    use_prometheus: bool = False
    """Give the metrics to Ray's own Prometheus endpoint; cluster/grafana_dashboard.json shows
    them."""
    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress on the terminal (auto: live on a terminal, plain elsewhere)."""
    trajectory_steps: NonNegativeInt = 10
    """Keep samples, token by token, of the first, the last and every so many steps (0: none)."""
    trajectory_samples: PositiveInt = 2
    """Samples kept of such a step by each rule: best, worst, random, failed."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What driver and workers write to their logs, and what is worse."""

    @model_validator(mode="after")
    def _settings_are_used(self) -> Self:
        unused = []
        if not self.use_wandb:
            names = ("project", "run_name", "org", "group", "mode")
            unused += [(f"wandb_{name}", "use_wandb") for name in names]
        if not self.use_mlflow:
            unused += [(f"mlflow_{name}", "use_mlflow") for name in ("tracking_uri", "experiment")]
        if self.trajectory_steps == 0:
            reject_changed(
                self,
                "logging.trajectory_samples",
                "logging.trajectory_steps 0",
                "logging.trajectory_steps to 1 or more",
            )
        for name, switch in unused:
            reason, remedy = f"logging.{switch} false", f"logging.{switch} to true"
            reject_changed(self, f"logging.{name}", reason, remedy)
        return self
