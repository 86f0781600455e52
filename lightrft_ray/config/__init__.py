"""Typed run configuration. Imports without torch."""

from lightrft_ray.config.algorithm import AlgorithmConfig
from lightrft_ray.config.checkpoint import CheckpointConfig
from lightrft_ray.config.data import DataConfig
from lightrft_ray.config.errors import (
    DataFault,
    InfrastructureError,
    InputsLost,
    NoAnswer,
    UserError,
    WorkerDied,
)
from lightrft_ray.config.evaluation import EvaluationConfig
from lightrft_ray.config.logging import LoggingConfig
from lightrft_ray.config.media import MediaConfig
from lightrft_ray.config.model import ModelConfig
from lightrft_ray.config.placement import PlacementConfig
from lightrft_ray.config.recovery import RecoveryConfig
from lightrft_ray.config.reward import RewardConfig
from lightrft_ray.config.rollout import RolloutConfig
from lightrft_ray.config.run import RunConfig
from lightrft_ray.config.sync import SyncConfig
from lightrft_ray.config.trainer import TrainerConfig

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "DataConfig",
    "DataFault",
    "EvaluationConfig",
    "InfrastructureError",
    "InputsLost",
    "LoggingConfig",
    "MediaConfig",
    "ModelConfig",
    "NoAnswer",
    "PlacementConfig",
    "RecoveryConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "SyncConfig",
    "TrainerConfig",
    "UserError",
    "WorkerDied",
]
