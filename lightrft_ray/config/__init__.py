"""Typed run configuration. Imports without torch."""

from lightrft_ray.config.algorithm import AlgorithmConfig
from lightrft_ray.config.checkpoint import CheckpointConfig
from lightrft_ray.config.errors import (
    DataFault,
    InfrastructureError,
    InputsLost,
    UserError,
    WorkerDied,
)
from lightrft_ray.config.recovery import RecoveryConfig
from lightrft_ray.config.reward import RewardConfig
from lightrft_ray.config.rollout import RolloutConfig
from lightrft_ray.config.run import RunConfig
from lightrft_ray.config.sections import (
    DataConfig,
    EvaluationConfig,
    LoggingConfig,
    ModelConfig,
    PlacementConfig,
    SyncConfig,
    TrainerConfig,
)

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "DataConfig",
    "DataFault",
    "EvaluationConfig",
    "InfrastructureError",
    "InputsLost",
    "LoggingConfig",
    "ModelConfig",
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
