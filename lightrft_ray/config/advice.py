"""What a run may do but its user should know of."""

from lightrft_ray.config.run import RunConfig

# (the KL is a part of the loss, estimator) -> what is wrong with its gradient. The exact ones are
# k2 in the loss and k1 in the reward.
_KL_BIAS = {
    (True, "k1"): "has a gradient that is 0 in expectation: it adds noise and holds nothing back",
    (True, "k3"): "has the gradient of the reverse KL, of the reference from the policy",
    (False, "k2"): "has a biased gradient: what is differentiated is not the KL",
    (False, "k3"): "has a biased gradient, though its value is that of the KL",
}

# Off-policy correction -> what it does to responses with a first token from a hotter distribution.
_BLIND_TO_FIRE = {
    "none": "trains the hot first token as if the policy had chosen it",
    "sequence_mask": "may drop a whole response for its hot first token",
    "geometric_mask": "may drop a whole response for its hot first token",
    "geometric_mask_token_weight": "may drop a whole response for its hot first token",
}


def warnings(config: RunConfig) -> list[str]:
    """One line for each doubtful combination of settings, with the reason and the remedy."""
    return [
        *_of_the_kl(config),
        *_of_reinforce(config),
        *_of_the_average(config),
        *_of_fire(config),
        *_of_staleness(config),
    ]


def _of_the_kl(config: RunConfig) -> list[str]:
    algorithm = config.algorithm
    bias = _KL_BIAS.get((algorithm.use_kl_loss, algorithm.kl_estimator))
    if not config.uses_reference or bias is None:
        return []
    place, exact = ("loss", "k2") if algorithm.use_kl_loss else ("reward", "k1")
    return [
        f"algorithm.kl_estimator {algorithm.kl_estimator} in the {place} "
        f"(algorithm.use_kl_loss {str(algorithm.use_kl_loss).lower()}) {bias}; "
        f"in the {place}, {exact} is exact"
    ]


def _of_reinforce(config: RunConfig) -> list[str]:
    if config.algorithm.policy_loss != "reinforce" or config.updates_per_step == 1:
        return []
    return [
        "algorithm.policy_loss reinforce is for the policy that sampled, and a step makes "
        f"{config.updates_per_step} updates of it (trainer.max_epochs, trainer.train_batch_size); "
        "ppo corrects for that"
    ]


def _of_the_average(config: RunConfig) -> list[str]:
    if not config.trainer.enable_ema or config.evaluation.eval_ema:
        return []
    return [
        "trainer.enable_ema writes the average of the weights to hf_checkpoint, and eval/accuracy "
        "is that of the weights themselves; evaluation.eval_ema true evaluates the average"
    ]


def _of_fire(config: RunConfig) -> list[str]:
    correction = config.algorithm.correction
    if not config.rollout.use_fire or correction not in _BLIND_TO_FIRE:
        return []
    return [
        f"algorithm.off_policy_correction {correction} {_BLIND_TO_FIRE[correction]} with "
        "rollout.use_fire; token_truncate weighs that token alone"
    ]


def _of_staleness(config: RunConfig) -> list[str]:
    if config.rollout.max_staleness == 0 or config.algorithm.old_log_probs == "learner":
        return []
    return [
        "algorithm.old_log_probs rollout clips by how far the policy has moved since a sample was "
        f"begun, up to rollout.max_staleness {config.rollout.max_staleness} versions ago; with "
        "learner the clip is for one step, and off_policy_correction weighs the rest"
    ]
