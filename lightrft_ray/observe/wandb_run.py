"""Step records on Weights & Biases."""

from collections.abc import Mapping
from pathlib import Path

from lightrft_ray.config.logging import LoggingConfig
from lightrft_ray.observe.names import Record


class WandbRun:
    """One run on Weights & Biases, with the run's own id: a resumed one goes on in it.

    Raises wandb.Error as the service does, and RuntimeError where it is asked for online and no
    API key is known, for which it would wait at the terminal.
    """

    def __init__(
        self,
        settings: LoggingConfig,
        run_id: str,
        folder: Path,
        config: Mapping[str, object],
    ) -> None:
        import wandb  # here, for it takes seconds

        if settings.wandb_mode == "online" and not wandb.api.api_key:
            raise RuntimeError("no API key: set WANDB_API_KEY, or logging.wandb_mode to offline")
        self._run = wandb.init(
            project=settings.wandb_project,
            entity=settings.wandb_org,
            group=settings.wandb_group,
            name=settings.wandb_run_name or folder.resolve().name,
            id=run_id,
            resume="allow" if settings.wandb_mode == "online" else None,
            mode=settings.wandb_mode,
            dir=str(folder),
            config=dict(config),
            # Nothing of the terminal's, which shows prompts and responses, goes to the service.
            settings=wandb.Settings(console="off", silent=True, save_code=False),
        )
        # Its own steps never go back; those of a run that does are told by their name.
        self._run.define_metric("*", step_metric="step")

    def write(self, record: Record, /) -> None:
        """Log all numbers of a step."""
        self._run.log(dict(record))

    def close(self) -> None:
        """Have what waits sent or written."""
        self._run.finish()
