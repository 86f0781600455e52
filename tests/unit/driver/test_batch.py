"""Groups as one padded batch."""

import numpy as np
import pytest
import torch
from rollouts import rollout_group, sample

from lightrft_ray.driver.batch import RolloutBatch, response_mask
from lightrft_ray.trainer.experience_types import SamplesVL

_PAD = 99
_GROUPS = [
    rollout_group("a", [1, 2], [sample([10, 11, 12]), sample([13])], images=2),
    rollout_group("b", [3, 4, 5, 6], [sample([14, 15])]),
]


def test_prompts_are_padded_left_and_responses_right() -> None:
    """Every response starts at column S − A."""
    samples = RolloutBatch.of(_GROUPS, _PAD).samples
    assert samples.sequences.tolist() == [
        [_PAD, _PAD, 1, 2, 10, 11, 12],
        [_PAD, _PAD, 1, 2, 13, _PAD, _PAD],
        [3, 4, 5, 6, 14, 15, _PAD],
    ]
    assert samples.attention_mask is not None
    assert samples.attention_mask.tolist() == [
        [0, 0, 1, 1, 1, 1, 1],
        [0, 0, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 0],
    ]
    assert response_mask(samples).int().tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert samples.num_actions == 3


def test_samples_know_their_prompt() -> None:
    batch = RolloutBatch.of(_GROUPS, _PAD)
    samples = batch.samples
    assert batch.group_ids.tolist() == [0, 0, 1]
    assert samples.response_length.tolist() == [3, 1, 2]
    assert samples.total_length.tolist() == [5, 3, 6]
    assert samples.image_num == [2, 2, 0]
    assert samples.prompts == ["a", "a", "b"]
    assert samples.references == ["reference of a", "reference of a", "reference of b"]
    assert samples.labels == ["label of a", "label of a", "label of b"]
    assert samples.output_texts == ["text of [10, 11, 12]", "text of [13]", "text of [14, 15]"]
    assert samples.pixel_values is None


def test_models_get_the_groups_tokens() -> None:
    first, second = RolloutBatch.of(_GROUPS, _PAD).tokens
    assert first.prompt_ids.tolist() == [1, 2]
    assert [response.tolist() for response in first.responses] == [[10, 11, 12], [13]]
    assert second.media is None


def test_results_per_token_round_trip() -> None:
    batch = RolloutBatch.of(_GROUPS, _PAD)
    flat = np.arange(1, 7, dtype=np.float32)
    padded = batch.padded(flat)
    assert padded.tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    assert padded[response_mask(batch.samples)].tolist() == flat.tolist()
    padded.zero_()
    assert flat.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_may_be_read_only_and_of_any_float_type(dtype: type) -> None:
    """Arrays from the object store cannot be written to."""
    flat = np.arange(6, dtype=dtype)
    flat.flags.writeable = False
    assert RolloutBatch.of(_GROUPS, _PAD).padded(flat).dtype == torch.float32


def test_rollout_log_probs() -> None:
    log_probs = RolloutBatch.of(_GROUPS, _PAD).rollout_log_probs
    expected = [[-0.10, -0.11, -0.12], [-0.13, 0, 0], [-0.14, -0.15, 0]]
    torch.testing.assert_close(log_probs, torch.tensor(expected))


def test_truncated_responses() -> None:
    groups = [rollout_group("a", [1], [sample([2], is_truncated=True), sample([3])])]
    assert RolloutBatch.of(groups, _PAD).is_truncated.tolist() == [True, False]


def test_packed_samples_have_no_response_mask() -> None:
    with pytest.raises(ValueError, match="packed"):
        response_mask(SamplesVL(torch.zeros(1, 3)))
