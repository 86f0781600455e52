"""Two ranks of DeepSpeed, without Ray: steps that are skipped, and averages of the weights."""

import math
import multiprocessing
import socket
from pathlib import Path

import pytest
import torch
from tiny_models import PAD, prompt_group, text_model
from torch import Tensor

from lightrft_ray.config import RunConfig
from lightrft_ray.models.positions import TextPositions
from lightrft_ray.models.rows import Rows, build_rows
from lightrft_ray.models.token_models import TokenCritic
from lightrft_ray.sync.weight_source import full_state_dict, named_weights
from lightrft_ray.trainer.aggregation import Denominators
from lightrft_ray.trainer.experience_types import ExperienceVL
from lightrft_ray.trainer.objectives import value_objective
from lightrft_ray.workers.deepspeed_engine import (
    ProcessGroup,
    StepResult,
    TrainableModel,
    join_process_group,
)
from lightrft_ray.workers.weight_average import WeightAverage

Weights = dict[str, Tensor]
Result = dict[str, object]

TIMEOUT = 180
RANKS = 2
STAGES = (0, 1, 2, 3)
BETA = 0.75
TOKENS = 3  # of each rank's response
STEPS = ("good", "infinite loss", "good", "NaN return", "good")
_BAD_RANK = 1


class _Critic:
    """A small critic under DeepSpeed with the average of its weights; each rank has a sample."""

    def __init__(self, rank: int, stage: int) -> None:
        self._rank = rank
        config = RunConfig.model_validate(
            {"trainer": {"zero_stage": stage}, "algorithm": {"advantage_estimator": "gae"}}
        )
        self._algorithm = config.algorithm
        self._module = TokenCritic(text_model().model, seed=0)
        self._trainable = TrainableModel(self._module, config, 1e-2, total_steps=10)
        self.average = WeightAverage(self._module, BETA)

    def step(self, kind: str) -> StepResult:
        """Two micro-batches; what is bad is on one rank alone, in the first of them."""
        spoils = self._rank == _BAD_RANK and kind
        returns = torch.full((1, TOKENS), math.nan if spoils == "NaN return" else 1.0)
        # An infinite constant leaves every gradient finite.
        extra = math.inf if spoils == "infinite loss" else 0.0
        plain = torch.full((1, TOKENS), -1.0)
        return self._trainable.step([(returns, extra), (plain, 0.0)], self._loss)

    def _loss(self, micro_batch: tuple[Tensor, float]) -> Tensor:
        returns, extra = micro_batch
        experience = ExperienceVL(
            torch.zeros(1, 0),
            values=torch.zeros(1, TOKENS),
            returns=returns,
            action_mask=torch.ones(1, TOKENS).bool(),
        )
        count = Denominators(2 * RANKS * TOKENS, 2 * RANKS)
        values = self._trainable.engine(self._rows())
        return value_objective(values, experience, self._algorithm, denominators=count)[0] + extra

    def _rows(self) -> Rows:
        group = prompt_group(self._rank, 4, [TOKENS])
        return build_rows([group], "shared_prefix", TextPositions(), PAD)

    def weights(self) -> Weights:
        return full_state_dict(named_weights(self._module, 10**4), keep=True)

    def swapped_weights(self) -> Weights:
        self.average.swap()
        return self.weights()


def _run_stage(rank: int, stage: int) -> Result:
    critic = _Critic(rank, stage)
    weights, results = [critic.weights()], []
    for kind in STEPS:
        results.append(critic.step(kind))
        if not results[-1].skipped:
            critic.average.update()
        weights.append(critic.weights())
    state = {name: part.clone() for name, part in critic.average.state_dict().items()}
    result: Result = {
        "weights": weights,
        "skipped": [each.skipped for each in results],
        "loss_is_finite": [each.loss_is_finite for each in results],
        "average": critic.swapped_weights(),
        "swapped_back": critic.swapped_weights(),
        "part_numel": sum(part.numel() for part in state.values()),
    }
    critic.average.update()
    critic.average.load_state_dict(state)
    return result | {"restored": critic.swapped_weights()}


def _run_rank(rank: int, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    group = ProcessGroup(rank, RANKS, "127.0.0.1", port)
    join_process_group(group, RunConfig(), torch.device("cpu"))
    torch.save({stage: _run_stage(rank, stage) for stage in STAGES}, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[int, Result]]:
    """Of each rank, by ZeRO stage. DeepSpeed leaves its process group and its hooks behind."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_run_rank, args=(rank, port, folder), daemon=True)
        for rank in range(RANKS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT)
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("stage", STAGES)
def test_a_step_that_is_bad_on_one_rank_is_skipped_on_all(
    results: list[dict[int, Result]], stage: int
) -> None:
    for of_rank in results:
        result = of_rank[stage]
        assert result["skipped"] == [False, True, False, True, False]
        assert result["loss_is_finite"] == [True, False, True, False, True]
        weights = result["weights"]
        for number, skipped in enumerate(result["skipped"]):
            before, after = weights[number], weights[number + 1]
            assert all(torch.equal(before[name], after[name]) for name in before) == skipped
            assert all(tensor.isfinite().all() for tensor in after.values())


@pytest.mark.parametrize("stage", STAGES[1:])
def test_nothing_of_a_skipped_step_is_left(results: list[dict[int, Result]], stage: int) -> None:
    """The stages keep gradients in buffers of their own, and must go on alike after a skip."""
    expected = results[0][0]["weights"][-1]
    for of_rank in results:
        for name, tensor in of_rank[stage]["weights"][-1].items():
            assert float((tensor - expected[name]).abs().median()) < 1e-5, name


@pytest.mark.parametrize("stage", STAGES)
def test_the_average_is_exact(results: list[dict[int, Result]], stage: int) -> None:
    """a ← β a + (1 − β) w, by the weights after the steps that were applied."""
    for of_rank in results:
        first, *others = of_rank[stage]["weights"]
        applied = [
            w
            for w, is_skipped in zip(others, of_rank[stage]["skipped"], strict=True)
            if not is_skipped
        ]
        for name, averaged in of_rank[stage]["average"].items():
            expected = first[name].double()
            for weights in applied:
                expected = BETA * expected + (1 - BETA) * weights[name].double()
            torch.testing.assert_close(averaged.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("stage", STAGES)
def test_swapping_back_is_exact(results: list[dict[int, Result]], stage: int) -> None:
    for of_rank in results:
        trained, back = of_rank[stage]["weights"][-1], of_rank[stage]["swapped_back"]
        assert all(torch.equal(trained[name], back[name]) for name in trained)
        average, restored = of_rank[stage]["average"], of_rank[stage]["restored"]
        assert all(torch.equal(average[name], restored[name]) for name in average)
        assert any(not torch.equal(trained[name], average[name]) for name in trained)


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_keeps_its_part_of_the_average_alone(
    results: list[dict[int, Result]], stage: int
) -> None:
    total = sum(tensor.numel() for tensor in results[0][stage]["weights"][0].values())
    for of_rank in results:
        assert total / 2 <= of_rank[stage]["part_numel"] < 0.51 * total
