"""Ready-made reward functions."""

import pytest

from lightrft_ray.rewards.functions import exact_match


def test_exact_match_ignores_white_space_around() -> None:
    responses = ["7", " 7\n", "77", "", "a b", "A"]
    references = ["7", "7", "7", "7", "a  b", "a"]
    assert exact_match(responses, references) == [1, 1, 0, 0, 0, 0]


def test_exact_match_wants_a_reference_for_each_response() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        exact_match(["1", "2"], ["1"])
