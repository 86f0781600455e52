"""Masks of generated sequences, and the padded and packed layouts."""

from typing import Any

import pytest
import torch
from golden_cases import Case, load, run
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lightrft_ray.models.sequences import SequenceLayout, process_sequences, until_stop

_PAD, _STOP = 0, (2, 7)


def _layout(case: Case) -> dict[str, Any]:
    prompts, responses = case.integers("prompt_lens"), case.integers("response_lens")
    layout = SequenceLayout.of_lengths(prompts, responses)
    flat = torch.arange(layout.attention_mask.numel()).view(layout.attention_mask.shape)
    multiple = case.param("pad_packed_to_multiple_of") or 1
    total = len(layout.sample_index)
    return {
        "padded_shape": layout.attention_mask.shape,
        "action_shape": layout.action_mask.shape,
        "attention_mask": layout.attention_mask,
        "action_mask": layout.action_mask,
        "padded_logit_column": layout.padded_actions,
        "right_padded_logit_column": _right_padded(layout),
        "cu_seqlens": layout.boundaries,
        "packed_total": total,
        "packed_padded_len": total + -total % multiple,
        "packed_position_ids": layout.packed_positions,
        "packed_sequence_index": layout.sample_index,
        "packed_to_padded_flat": layout.pack(flat),
        "packed_logit_index": layout.packed_actions,
        "action_log_probs": layout.at_actions(case.floats("packed_logp")),
    }


def _right_padded(layout: SequenceLayout) -> Tensor:
    """Rows that start with the prompt: the packed columns, less where each sample starts."""
    columns = layout.packed_actions - layout.boundaries[:-1, None]
    return columns.masked_fill(~layout.action_mask, -1)


@pytest.mark.parametrize("case", load("packing"), ids=str)
def test_golden_packing(case: Case) -> None:
    run(case, torch.float32, {"layout": _layout})


def _from_token_lists(case: Case) -> dict[str, Any]:
    """The lengths decide: values are laid out by the layout and scattered back from it."""
    prompts, responses = case.raw_input("prompts"), case.raw_input("responses")
    pad, stop = case.param("pad_token_id"), case.param("stop_token_ids")
    assert case.param("eos_token_id") in stop
    assert (case.param("prompt_padding"), case.param("response_padding")) == ("left", "right")
    layout = SequenceLayout.of_lengths(
        torch.tensor([len(prompt) for prompt in prompts]),
        torch.tensor([len(response) for response in responses]),
    )
    packed = [
        token for pair in zip(prompts, responses, strict=True) for row in pair for token in row
    ]
    sequences = layout.unpack(torch.tensor(packed), fill=pad)
    places = layout.packed_positions.split(layout.total_lengths.tolist())
    truncated = case.integers("truncated")
    ended = [int(bool(response) and response[-1] in stop) for response in responses]
    return {
        "sequences": sequences,
        "attention_mask": layout.attention_mask.long(),
        "action_mask": layout.action_mask.long(),
        "response_length": layout.response_lengths,
        "total_length": layout.total_lengths,
        "position_ids_of_real_tokens": [place.tolist() for place in places],
        "ended_with_stop": ended,
        "truncated": truncated,
    }


def _from_stop_ids(case: Case) -> dict[str, Any]:
    stop, responses = case.param("stop_token_ids"), case.integers("response_ids")
    mask = until_stop(responses, stop)
    last = responses.gather(1, mask.sum(dim=1, keepdim=True) - 1)
    return {
        "action_mask": mask.long(),
        "response_length": mask.sum(dim=1),
        "ended_with_stop": torch.isin(last[:, 0], torch.tensor(stop)).long(),
    }


@pytest.mark.parametrize("case", load("sequence_masks"), ids=str)
def test_golden_sequence_masks(case: Case) -> None:
    adapters = {"from_token_lists": _from_token_lists, "from_stop_ids": _from_stop_ids}
    run(case, torch.float32, adapters)


# Only lengths can tell a stop token that was ignored from the end of a response.
_TOLD_BY_IDS = [
    case
    for case in load("sequence_masks")
    if case.kind == "from_token_lists" and "ignore-eos" not in case.raw["tags"]
]


@pytest.mark.parametrize("case", _TOLD_BY_IDS, ids=str)
def test_process_sequences_finds_the_golden_masks(case: Case) -> None:
    expected, params = case.raw["expected"], case.raw["params"]
    attention_mask = torch.tensor(expected["attention_mask"])
    action_mask = torch.tensor(expected["action_mask"])
    width = attention_mask.shape[1] - action_mask.shape[1]
    sequences = torch.tensor(expected["sequences"])
    got = process_sequences(
        sequences,
        width,
        params["stop_token_ids"],
        params["pad_token_id"],
        attention_mask[:, :width],
    )
    assert torch.equal(got[0], sequences)
    assert torch.equal(got[1], attention_mask)
    assert torch.equal(got[2], action_mask.bool())


def _process(row: list[int], input_len: int, stop: Any = _STOP, pad: int = _PAD) -> Any:
    sequences, attention, action = process_sequences(torch.tensor([row]), input_len, stop, pad)
    return sequences[0].tolist(), attention[0].tolist(), action[0].int().tolist()


def test_a_truncated_response_keeps_its_last_token_and_gets_no_stop() -> None:
    row = [5, 6, 11, 12, 13]
    assert _process(row, 2) == (row, [1, 1, 1, 1, 1], [1, 1, 1])


def test_what_follows_the_first_stop_token_is_padding() -> None:
    assert _process([5, 11, 7, 12, 2], 1) == ([5, 11, 7, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 0])


def test_one_stop_id_may_be_given_as_an_integer() -> None:
    assert _process([5, 11, 7, 2, 0], 1, stop=2)[2] == [1, 1, 1, 0]


def test_padding_that_equals_the_stop_token() -> None:
    assert _process([2, 5, 11, 2, 2], 2, stop=2, pad=2)[1:] == ([0, 1, 1, 1, 0], [1, 1, 0])
    assert _process([2, 5, 11, 12, 13], 2, stop=2, pad=2)[2] == [1, 1, 1]


def test_an_empty_response() -> None:
    assert _process([5, 6], 2) == ([5, 6], [1, 1], [])
    assert _process([5, 6, 0, 0], 2)[1:] == ([1, 1, 0, 0], [0, 0])


def test_a_sampled_pad_token_is_an_action() -> None:
    assert _process([5, 11, 0, 12, 13], 1)[1:] == ([1, 1, 1, 1, 1], [1, 1, 1, 1])


def test_shorter_limits_leave_padding_behind_a_truncated_response() -> None:
    assert _process([5, 11, 12, 0, 0], 1)[2] == [1, 1, 0, 0]


def test_special_ids_in_a_prompt_are_ordinary_tokens() -> None:
    assert _process([0, 2, 0, 7, 11, 2], 4)[1:] == ([0, 1, 1, 1, 1, 1], [1, 1])
    assert _process([0, 0, 11], 2)[1] == [0, 1, 1]


def test_a_prompts_own_mask_tells_a_leading_pad_token_from_padding() -> None:
    sequences = torch.tensor([[0, 0, 5, 11]])
    mask = torch.tensor([[0, 1, 1]])
    assert process_sequences(sequences, 3, _STOP, _PAD, mask)[1].tolist() == [[0, 1, 1, 1]]


class _Operations(TorchDispatchMode):
    """Counts the tensor operations."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def _operations(rows: int, width: int) -> int:
    sequences = torch.randint(0, 9, (rows, width))
    with _Operations() as operations:
        process_sequences(sequences, width // 2, [1, 2], 0)
    return operations.count


def test_no_loop_over_rows_or_tokens() -> None:
    assert _operations(2, 8) == _operations(50, 8) == _operations(2, 300)


@pytest.mark.parametrize("input_len", [0, 3])
def test_an_impossible_prompt_length_is_refused(input_len: int) -> None:
    with pytest.raises(ValueError, match=f"input_len {input_len}"):
        process_sequences(torch.tensor([[5, 6]]), input_len, 2, 0)


def test_a_prompt_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prompt_mask is \(1, 2\), for prompts \(1, 1\)"):
        process_sequences(torch.tensor([[5, 6]]), 1, 2, 0, torch.ones(1, 2))


_LENGTHS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=50)
@given(_LENGTHS, st.integers(0, 3), st.integers(0, 3))
def test_layouts_convert_both_ways_without_loss(
    lengths: list[tuple[int, int]], wider: int, longer: int
) -> None:
    prompts, responses = torch.tensor(lengths).T
    narrow = SequenceLayout.of_lengths(prompts, responses)
    layout = SequenceLayout(
        prompts, responses, narrow.prompt_width + wider, narrow.response_width + longer
    )
    values = torch.arange(1, int(layout.total_lengths.sum()) + 1)
    padded = layout.unpack(values)
    assert torch.equal(layout.pack(padded), values)
    again = SequenceLayout.of_mask(padded > 0, layout.response_width)
    assert torch.equal(again.prompt_lengths, prompts)
    assert torch.equal(again.response_lengths, responses)
    packed = SequenceLayout.of_packed(layout.total_lengths, responses)
    assert torch.equal(packed.boundaries, layout.boundaries)
    assert torch.equal(
        layout.at_actions(values), padded.gather(1, _columns(layout)) * layout.action_mask
    )


def _columns(layout: SequenceLayout) -> Tensor:
    return layout.padded_actions.clamp(min=0)


def test_masks_with_padding_at_the_wrong_end_are_refused() -> None:
    for mask in ([[1, 0, 1]], [[0, 1, 0], [1, 0, 1]], [[1, 1, 0, 1]]):
        with pytest.raises(ValueError, match="attention_mask of sample"):
            SequenceLayout.of_mask(torch.tensor(mask), len(mask[0]) - 2)


def test_more_actions_than_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match=r"packed_seq_lens \[2\] do not fit num_actions \[3\]"):
        SequenceLayout.of_packed(torch.tensor([2]), torch.tensor([3]))
