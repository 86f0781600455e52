"""How many tokens a generator's engine must take: of one sequence, and at a time."""

from lightrft_ray.config import RunConfig

_CPU_BATCHED_TOKENS = 16384


def longest_sequence(config: RunConfig) -> int:
    """Tokens of the longest prompt with the longest response, in training or evaluation."""
    training = config.rollout.generate_max_len
    return config.data.prompt_max_len + max(training, config.evaluation.longest(training))


def cpu_batched_tokens(config: RunConfig) -> int:
    """Tokens that an engine on a CPU computes at a time; it cannot cut a prompt in two."""
    return max(_CPU_BATCHED_TOKENS, longest_sequence(config))
