"""The matrix of families, without a generator: each from a checkpoint that is built here.

`tests/integration/test_families.py` has the generator's half.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import torch
from families.text import TEXT_FAMILIES, build_text
from families.vision import VISION_FAMILIES, build_vision
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.processing import PromptEncoder, load_processor
from lightrft_ray.data.prompts import Prompt
from lightrft_ray.models.actor_language import ActorLanguage
from lightrft_ray.models.actor_vl import ActorVL
from lightrft_ray.models.checkpoint_names import checkpoint_names
from lightrft_ray.models.families import PACKABLE, check_rows_of_many, forbidden_token_ids
from lightrft_ray.models.loading import (
    ModelSource,
    load_backbone,
    load_policy,
    policy_without_weights,
)
from lightrft_ray.models.log_probs import sampled_distribution, token_log_probs
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, RowLayout, build_rows, concatenate_padded
from lightrft_ray.models.sequences import SequenceLayout
from lightrft_ray.models.token_models import Sampling, TokenCritic, TokenPolicy
from lightrft_ray.sync.weight_source import published_weights

FAMILIES = (*TEXT_FAMILIES, *VISION_FAMILIES)
_LONGEST = 256
_TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")


@dataclass(frozen=True)
class Case:
    """A loaded checkpoint, and prompts with what transformers alone says of their responses."""

    folder: Path
    model: PreTrainedModel
    groups: list[PromptGroup]
    expected: Tensor  # log-probs of all response tokens
    sampling: Sampling


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    @cache
    def make(family: str) -> Case:
        return _case(family, tmp_path_factory.mktemp(family))

    return make


@pytest.fixture(params=FAMILIES)
def case(request: pytest.FixtureRequest, case_of: Callable[[str], Case]) -> Case:
    return case_of(request.param)


def _case(family: str, folder: Path) -> Case:
    (build_text if family in TEXT_FAMILIES else build_vision)(family, folder)
    model = load_policy(ModelSource(str(folder))).eval()
    sampling = Sampling(0.9, forbidden_token_ids(model.config))
    encoder = PromptEncoder(load_processor(folder), None, _LONGEST)
    sizes = [[], [(84, 56)], [(56, 84), (56, 56)]] if family in VISION_FAMILIES else [[], []]
    groups, expected = [], []
    for number, images in enumerate(sizes):
        group, types = _group(encoder, number, images)
        groups.append(group)
        expected += [_plain(model, group, types, each, sampling) for each in group.responses]
    return Case(folder, model, groups, torch.cat(expected), sampling)


def _group(
    encoder: PromptEncoder, number: int, sizes: list[tuple[int, int]]
) -> tuple[PromptGroup, dict[str, Tensor]]:
    """A prompt with gradients of these (width, height), and its token types."""
    images = [
        Image.radial_gradient("L").rotate(90 * i).crop((0, 0, 200, 256)).convert("RGB").resize(size)
        for i, size in enumerate(sizes)
    ]
    content = [{"type": "image"} for _ in images]
    content.append({"type": "text", "text": "what is this, and why? " * (number + 1)})
    names = tuple(f"{i}.png" for i in range(len(images)))
    encoded = encoder.encode(
        Prompt("p", ({"role": "user", "content": content},), names, Path(), "", ""), images
    )
    generator = torch.Generator().manual_seed(number)
    responses = [torch.randint(0, 250, (length,), generator=generator) for length in (4, 20, 1)]
    inputs = {k: v for k, v in encoded.mm_inputs.items() if k != "batch_num_images"}
    media = {name: value for name, value in inputs.items() if name not in _TOKEN_TYPES}
    types = {name: value for name, value in inputs.items() if name in _TOKEN_TYPES}
    return PromptGroup(encoded.expanded_ids, responses, media), types


@torch.no_grad()
def _plain(
    model: PreTrainedModel,
    group: PromptGroup,
    types: dict[str, Tensor],
    response: Tensor,
    sampling: Sampling,
) -> Tensor:
    """By transformers' own forward of the unpadded sample, with its processor's inputs."""
    ids = torch.cat([group.prompt_ids, response])[None]
    given = {
        name: torch.nn.functional.pad(value.reshape(1, -1), (0, len(response)))
        for name, value in types.items()
    }
    logits = model(input_ids=ids, **given, **group.media).logits[0, len(group.prompt_ids) - 1 : -1]
    distribution = sampled_distribution(
        logits, temperature=sampling.temperature, forbidden=sampling.forbidden_token_ids
    )
    return token_log_probs(distribution, response)


def test_rows_give_what_transformers_gives_one_by_one(case: Case) -> None:
    shares = case.model.config.model_type in PACKABLE
    for layout in get_args(RowLayout) if shares else ("padded",):
        rows = build_rows(case.groups, layout, position_rule(case.model.config), 0)
        with torch.no_grad():
            log_probs, _ = TokenPolicy(case.model)(rows, case.sampling)
        found = log_probs[rows.action_mask]
        torch.testing.assert_close(found, case.expected, rtol=0, atol=1e-5)
    assert case.expected.std() > 0.5


def test_a_family_whose_samples_cannot_share_a_row_says_so(case_of: Callable[[str], Case]) -> None:
    with pytest.raises(UserError, match=r"'gemma3' .*set it to padded"):
        check_rows_of_many(case_of("gemma3").model.config, "model.pretrain")


def test_a_checkpoint_is_saved_as_it_was_loaded(case: Case, tmp_path: Path) -> None:
    """The same names and numbers, with a processor that gives the same inputs."""
    case.model.save_pretrained(tmp_path)
    load_processor(case.folder).save_pretrained(tmp_path)
    before, after = (load_file(at / "model.safetensors") for at in (case.folder, tmp_path))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    sees = case.model.config.model_type in VISION_FAMILIES
    loader = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    assert type(loader.from_pretrained(tmp_path)) is type(case.model)
    encoder = PromptEncoder(load_processor(tmp_path), None, _LONGEST)
    group, _ = _group(encoder, 1, [(84, 56)] if sees else [])
    assert torch.equal(group.prompt_ids, case.groups[1].prompt_ids)
    for name, value in case.groups[1].media.items():
        assert torch.equal(group.media[name], value)


def test_weights_are_published_as_the_checkpoint_has_them(case: Case) -> None:
    """The same names, also of what is left out, and the same pieces: generators load those."""
    held = load_file(case.folder / "model.safetensors")
    published = dict(published_weights(case.model, gather_bytes=50_000))
    assert published.keys() == held.keys()
    assert all(torch.equal(published[name], held[name]) for name in held)
    skeleton = policy_without_weights(ModelSource(str(case.folder)))
    names = [name for name, _ in skeleton.named_parameters()]
    assert checkpoint_names(skeleton, names) == sorted(held)


def test_a_critic_gives_values_and_learns(case: Case) -> None:
    critic = TokenCritic(load_backbone(ModelSource(str(case.folder))), seed=0)
    rows = build_rows(case.groups, "padded", position_rule(case.model.config), 0)
    values = critic(rows)
    assert values.dtype == torch.float32
    assert (values[rows.action_mask] != 0).all()
    values.sum().backward()
    moved = [name for name, weight in critic.named_parameters() if _has_gradient(weight)]
    assert any("value_head" in name for name in moved)
    assert any("layers.0" in name for name in moved)
    if case.groups[-1].media:
        assert any("patch_embed" in name for name in moved)


def _has_gradient(weight: Tensor) -> bool:
    return weight.grad is not None and bool((weight.grad != 0).any())


def test_adapters_start_from_the_model_and_alone_learn(case: Case) -> None:
    """In the language model alone; all of them, whatever the family calls its layers."""
    sees = bool(case.groups[-1].media)
    model = load_policy(ModelSource(str(case.folder))).eval()
    actor = (ActorVL if sees else ActorLanguage)(model, lora_rank=2, temperature=0.9)
    group = case.groups[-1]
    ids = torch.cat([group.prompt_ids, group.responses[1]])[None]
    log_probs = actor(ids, 20, **group.media)
    torch.testing.assert_close(log_probs[0], case.expected[-21:-1], rtol=0, atol=1e-5)
    log_probs.sum().backward()
    adapters = {name: p for name, p in actor.named_parameters() if "lora_B" in name}
    assert adapters and all(_has_gradient(weight) for weight in adapters.values())
    assert all("lora_" in name for name, p in actor.named_parameters() if p.requires_grad)
    assert not any("vision" in name or "visual" in name for name in adapters)


def test_a_packed_batch_equals_its_samples_or_is_refused(case: Case) -> None:
    kind = ActorVL if case.groups[-1].media else ActorLanguage
    if case.model.config.model_type not in PACKABLE:
        with pytest.raises(UserError, match="cannot be packed"):
            kind(case.model, packing_samples=True)
        return
    pairs = [(group, each) for group in case.groups for each in group.responses]
    layout = SequenceLayout.of_lengths(
        torch.tensor([len(group.prompt_ids) for group, _ in pairs]),
        torch.tensor([len(response) for _, response in pairs]),
    )
    packed = torch.cat([part for group, each in pairs for part in (group.prompt_ids, each)])
    names = {name for group in case.groups for name in group.media}
    media = {
        name: concatenate_padded([group.media[name] for group, _ in pairs if name in group.media])
        for name in names
    }
    actor = kind(case.model, packing_samples=True, temperature=0.9)
    padded, mask = layout.unpack(packed), layout.attention_mask.long()
    with torch.no_grad():
        log_probs = actor(padded, layout.response_width, mask, **media)[layout.action_mask]
    torch.testing.assert_close(log_probs, case.expected, rtol=0, atol=1e-5)
