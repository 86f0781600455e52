"""Sharing demonstrations out over the ranks, and which update gets which."""

import numpy as np

from lightrft_ray.driver.demonstrations import share_out
from lightrft_ray.workers.messages import GroupTokens


def _demonstration(prompt: int, response: int) -> GroupTokens:
    return GroupTokens(np.full(prompt, prompt), (np.full(response, response),), None)


def test_ranks_get_equal_numbers_and_the_count_of_all_tokens() -> None:
    step = [_demonstration(1, length) for length in (9, 1, 2, 8, 5, 5)]
    shares = share_out(step, ranks=2)
    assert {share.n_tokens for share in shares} == {30}
    assert [len(share.groups) for share in shares] == [3, 3]
    tokens = [sum(group.token_count for group in share.groups) for share in shares]
    assert max(tokens) - min(tokens) <= 2
    lengths = [group.action_count for share in shares for group in share.groups]
    assert sorted(lengths) == [1, 2, 5, 5, 8, 9]
