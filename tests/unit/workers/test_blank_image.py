"""The blank image of ranks that got none: it takes part and counts nothing."""

import pytest
import torch
from transformers import PreTrainedModel

from lightrft_ray.config import ModelConfig, RunConfig
from lightrft_ray.data.tiny_vlm import build_tiny_qwen_vl
from lightrft_ray.models.loading import ModelSource, load_policy
from lightrft_ray.models.positions import position_rule
from lightrft_ray.models.rows import PromptGroup, RowLayout
from lightrft_ray.models.token_models import Sampling, TokenCritic, TokenPolicy
from lightrft_ray.workers.batches import RowBuilder
from lightrft_ray.workers.blank_image import blank_image_group

_TEXT = [
    PromptGroup(torch.tensor([3, 4, 5]), [torch.tensor([6, 7]), torch.tensor([8])], {}),
    PromptGroup(torch.tensor([9]), [torch.tensor([7, 7, 7])], {}),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("vlm")
    build_tiny_qwen_vl(folder)
    return RunConfig(model=ModelConfig(pretrain=str(folder)))


@pytest.fixture(scope="module")
def model(config: RunConfig) -> PreTrainedModel:
    return load_policy(ModelSource(config.model.pretrain)).eval()


@pytest.mark.parametrize("layout", ["shared_prefix", "padded"])
def test_the_tower_runs_and_has_gradients_of_zero(
    layout: RowLayout, model: PreTrainedModel, config: RunConfig
) -> None:
    blank = blank_image_group(model, config, ranks=2)
    assert blank is not None
    builder = (layout, position_rule(model.config), 0, torch.device("cpu"))
    plain, with_blank = RowBuilder(*builder), RowBuilder(*builder, blank)
    for module, arguments in (
        (TokenPolicy(model), (Sampling(),)),
        (TokenCritic(model.base_model, seed=0), ()),
    ):
        results = []
        for rows in (plain.lay_out(_TEXT), with_blank.lay_out(_TEXT)):
            module.zero_grad()
            output = module(rows, *arguments)
            values = output[0] if isinstance(output, tuple) else output
            values.sum().backward()
            results.append((values, model.model.language_model.norm.weight.grad.clone()))
        torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-5)
        tower = [weight.grad for weight in model.model.visual.parameters()]
        assert all(grad is not None and (grad == 0).all() for grad in tower)


def test_a_batch_with_an_image_needs_no_blank_one(
    model: PreTrainedModel, config: RunConfig
) -> None:
    blank = blank_image_group(model, config, ranks=2)
    assert blank is not None
    builder = RowBuilder("padded", position_rule(model.config), 0, torch.device("cpu"), blank)
    assert len(builder.lay_out(_TEXT).input_ids) == 4
    assert len(builder.lay_out([*_TEXT, blank]).input_ids) == 4
    assert blank_image_group(model, config, ranks=1) is None
    assert blank_image_group(model.model.language_model, config, ranks=2) is None
