"""Attention by blocks equals attention under one dense mask, however the blocks are cut."""

from pathlib import Path

import pytest
import torch
from families.text import TEXT_FAMILIES, text_family
from tiny_models import PAD, prompt_group, text_model, vision_model
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from lightrft_ray.config.errors import UserError
from lightrft_ray.models import row_attention
from lightrft_ray.models.loading import ModelSource, load_backbone, load_policy
from lightrft_ray.models.positions import TextPositions
from lightrft_ray.models.row_attention import RowAttention
from lightrft_ray.models.rows import RowLayout, build_rows
from lightrft_ray.models.token_models import Sampling, TokenPolicy

_GROUPS = {
    "short": [(3, [2, 4, 1]), (5, [1]), (2, [3, 3])],
    "uneven": [(150, [90, 70, 3, 200]), (4, [1, 300]), (1, [1])],
    "packed": [(200, []), (3, []), (90, []), (1, [])],
}


def _kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None
    ).transpose(1, 2)


def _dense(attention: RowAttention, window: int | None, states: tuple[Tensor, ...]) -> Tensor:
    mask = attention.dense_mask(torch.float32) == 0
    if window is not None:
        mask = mask & (attention.positions[:, None] - attention.positions[None] < window)
    return scaled_dot_product_attention(*states, attn_mask=mask).transpose(1, 2)


@pytest.mark.parametrize("mask_elements", [None, 2000], ids=["whole", "cut"])
@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("name", _GROUPS)
def test_blocks_equal_a_dense_mask(
    name: str, window: int | None, mask_elements: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small bound on masks, long responses are cut into blocks of few queries."""
    if mask_elements is not None:
        monkeypatch.setattr(row_attention, "_MASK_ELEMENTS", mask_elements)
    attention = RowAttention.of_groups(_GROUPS[name])
    torch.manual_seed(0)
    shape = 1, 2, len(attention.positions), 8
    states = tuple(torch.randn(shape, requires_grad=True) for _ in range(3))
    upstream = torch.randn(1, shape[2], 2, 8)
    expected, own = _dense(attention, window, states), attention.attend(_kernel, states, window)
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(own, states, upstream),
        torch.autograd.grad(expected, states, upstream),
        rtol=0,
        atol=1e-5,
    )
    if mask_elements is not None and window is None:
        masks = [block.mask for block in attention.blocks if block.mask is not None]
        assert all(mask.numel() <= mask_elements or mask.shape[2] == 1 for mask in masks)


def test_masks_do_not_grow_with_the_number_of_samples() -> None:
    """A dense mask of this row would have 270 million elements."""
    attention = RowAttention.of_groups([(100, [500] * 8)] * 4)
    masks = [block.mask for block in attention.blocks if block.mask is not None]
    assert sum(mask.numel() for mask in masks) == 4 * 8 * 500 * 600
    assert max(mask.numel() for mask in masks) <= 2**24


def test_a_token_sees_its_prompt_and_itself() -> None:
    """The rule that FlexAttention's kernel is given."""
    attention = RowAttention.of_groups([(2, [1, 2]), (1, [1])])
    blocks = attention.block_mask()
    row = torch.arange(7)
    seen = blocks.mask_mod(torch.tensor(0), torch.tensor(0), row[:, None], row[None])
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 1],
    ]


def _with_short_windows(family: str) -> PreTrainedModel:
    """Shorter than prompts and responses, where the family has windows."""
    has_windows = family in ("mistral", "gemma3_text")
    return text_family(family, **({"sliding_window": 4} if has_windows else {}))


@pytest.mark.parametrize("layout", ["shared_prefix", "packed"])
@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_every_packable_family_keeps_samples_apart(family: str, layout: RowLayout) -> None:
    """Sliding windows included, which are shorter than prompts and responses here."""
    model = _with_short_windows(family)
    groups = [prompt_group(1, 6, [9, 2, 5]), prompt_group(2, 8, [1, 7])]
    results = []
    for kind in (layout, "padded"):
        rows = build_rows(groups, kind, TextPositions(), PAD)
        log_probs, _ = TokenPolicy(model)(rows, Sampling())
        results.append(log_probs)
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-5)
    assert results[0][results[0] != 0].std() > 0.1


def test_eager_attention_with_a_sliding_window_is_refused() -> None:
    """A mask that is given would be taken as it is, without the window."""
    model = _with_short_windows("mistral")
    model.set_attn_implementation("eager")
    rows = build_rows([prompt_group(1, 6, [9, 2])], "shared_prefix", TextPositions(), PAD)
    with pytest.raises(UserError, match="'eager' of the family 'mistral'"):
        TokenPolicy(model)(rows, Sampling())


def test_a_model_whose_layers_do_not_get_the_row_is_refused() -> None:
    model = text_model()
    policy = TokenPolicy(model)
    model.model.layers[1].self_attn.config = type(model.config)(attn_implementation="sdpa")
    rows = build_rows([prompt_group(1, 6, [9, 2])], "packed", TextPositions(), PAD)
    with pytest.raises(UserError, match="1 of 2 layers of the family 'qwen2'"):
        policy(rows, Sampling())


def test_other_uses_of_the_model_are_what_they_were() -> None:
    """Padded batches under a mask of padding, with and without a policy over rows."""
    tokens, mask = torch.randint(2, 60, (2, 9)), torch.ones(2, 9).long()
    mask[0, :4] = 0
    model = text_model()
    expected = model(tokens, attention_mask=mask).logits
    TokenPolicy(model)
    torch.testing.assert_close(model(tokens, attention_mask=mask).logits, expected)


def test_flex_attention_is_for_the_language_model_alone(tmp_path: Path) -> None:
    vision_model().save_pretrained(tmp_path)
    for load in (load_policy, load_backbone):
        model = load(ModelSource(str(tmp_path), attn_implementation="flex_attention"))
        assert model.get_decoder().config._attn_implementation == "flex_attention"
        assert model.config.vision_config._attn_implementation == "sdpa"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("layout", ["shared_prefix", "packed"])
def test_flex_attention_equals_sdpa(layout: RowLayout) -> None:
    groups = [prompt_group(1, 70, [90, 20, 5]), prompt_group(2, 8, [1, 7])]
    rows = build_rows(groups, layout, TextPositions(), PAD).to(torch.device("cuda"))
    results = []
    for attention in ("flex_attention", "sdpa"):
        model = text_model(attention).cuda()
        log_probs, _ = TokenPolicy(model)(rows, Sampling())
        log_probs.sum().backward()
        results.append((log_probs.detach(), [p.grad for p in model.parameters()]))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-4)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-3, atol=1e-3)
