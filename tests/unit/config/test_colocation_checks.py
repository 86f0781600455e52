"""What cannot share devices: each message names the settings and a remedy."""

import pytest
from pydantic import ValidationError

from lightrft_ray.config import RunConfig

_GPUS = {"actor_num_gpus_per_node": 2, "vllm_use_gpu": True, "colocate": "learner_generator"}
_TWO = {"vllm_num_engines": 2}
_SMALL = {"micro_train_batch_size": 16}
_KL = {"init_kl_coef": 0.1}


@pytest.mark.parametrize(
    ("sections", "parts"),
    [
        (
            {"placement": {"colocate": "all"}, "rollout": {"max_staleness": 1}},
            ["placement.colocate to none", "rollout.max_staleness to 0"],
        ),
        (
            {"placement": _GPUS | {"vllm_use_gpu": False}, "rollout": _TWO},
            ["placement.vllm_use_gpu to true", "placement.colocate to none"],
        ),
        ({"placement": _GPUS}, ["rollout.vllm_num_engines to 2", "placement.colocate to none"]),
        (
            {"placement": _GPUS, "rollout": {"vllm_tensor_parallel_size": 3}},
            ["rollout.vllm_tensor_parallel_size to a divisor"],
        ),
        (
            {"placement": _GPUS, "rollout": _TWO, "trainer": _SMALL | {"zero_stage": 3}},
            ["trainer.zero_stage to 1 or 2", "placement.colocate to none"],
        ),
        (
            {
                "placement": {"colocate": "learner_generator"},
                "trainer": {"enable_ema": True},
                "evaluation": {"eval_ema": True},
            },
            ["placement.colocate to none", "evaluation.eval_ema to false"],
        ),
        (
            {
                "placement": {
                    "colocate": "learner_generator",
                    "strategies": {"generator": "SPREAD"},
                }
            },
            ["placement.strategies", "placement.colocate to none"],
        ),
        (
            {
                "placement": {"colocate": "all", "cpu_ref_workers": 2},
                "algorithm": _KL,
            },
            ["placement.cpu_ref_workers to 1", "placement.colocate to learner_generator"],
        ),
        (
            {
                "placement": _GPUS | {"colocate": "all"},
                "rollout": _TWO,
                "trainer": _SMALL | {"zero_stage": 2},
                "algorithm": _KL,
            },
            ["placement.ref_num_gpus_per_node to 2", "placement.colocate to learner_generator"],
        ),
    ],
)
def test_contradictions(sections: dict[str, dict[str, object]], parts: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate({"trainer": _SMALL, **sections})
    (error,) = caught.value.errors()
    assert "\n" not in error["msg"]
    assert all(part in error["msg"] for part in parts), error["msg"]


def test_who_shares_what() -> None:
    run = RunConfig.model_validate({"placement": {"colocate": "all"}, "algorithm": _KL})
    assert run.guests == {"generator", "reference"}
    assert RunConfig().guests == set()
