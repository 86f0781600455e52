"""Which weights a learner leaves as they are, known without it."""

from lightrft_ray.config import RunConfig
from lightrft_ray.models.checkpoint_names import checkpoint_names
from lightrft_ray.models.loading import policy_without_weights
from lightrft_ray.models.trained_part import leave_to_train, trains_all
from lightrft_ray.sync.weight_source import unpublished_names
from lightrft_ray.workers.devices import model_source


def frozen_names(config: RunConfig) -> list[str]:
    """Weights of the policy that the learner will never publish, by their names in a checkpoint."""
    if trains_all(config.model):
        return []
    model = policy_without_weights(model_source(config, config.model.pretrain))
    leave_to_train(model, config.model, config.seed)
    return checkpoint_names(model, unpublished_names(model))
