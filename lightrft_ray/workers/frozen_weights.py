"""Which weights a learner leaves as they are, known without it."""

from lightrft_ray.config import RunConfig
from lightrft_ray.models.checkpoint_names import checkpoint_names
from lightrft_ray.models.freezing import Freezing, freeze
from lightrft_ray.models.loading import policy_without_weights
from lightrft_ray.sync.weight_source import unpublished_names
from lightrft_ray.workers.devices import model_source


def frozen_names(config: RunConfig) -> list[str]:
    """Weights of the policy that the learner will never publish, by their names in a checkpoint."""
    freezing = Freezing.of_policy(config.model)
    if freezing == Freezing():
        return []
    model = policy_without_weights(model_source(config, config.model.pretrain))
    freeze(model, freezing)
    return checkpoint_names(model, unpublished_names(model))
