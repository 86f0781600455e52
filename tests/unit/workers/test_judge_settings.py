"""A judge's engine in the terms of a run."""

from lightrft_ray.config import RunConfig
from lightrft_ray.workers.judge_settings import engine_config, verdict_rule


def _config(**judge: object) -> RunConfig:
    model = {"kind": "judge", "pretrain": "some/judge", "template": "{response}", **judge}
    reward = {"recipes": {"default": {"judge": 1}}, "models": {"judge": model}}
    return RunConfig.model_validate({"reward": reward, "data": {"system_prompt": "be brief"}})


def test_the_judge_takes_the_generators_place() -> None:
    config = _config(max_model_len=1000, max_new_tokens=100, gpus_per_worker=2, dtype="bfloat16")
    own = engine_config(config, config.reward.models["judge"])
    assert (own.model.pretrain, own.model.dtype) == ("some/judge", "bfloat16")
    assert (own.data.prompt_max_len, own.rollout.generate_max_len) == (900, 100)
    assert own.data.system_prompt is None
    assert own.rollout.vllm_tensor_parallel_size == 2
    assert own.placement.vllm_use_gpu
    assert not engine_config(_config(), _config().reward.models["judge"]).placement.vllm_use_gpu


def test_verdicts_are_words_or_numbers() -> None:
    words = verdict_rule(_config(verdict_scores={"yes": 1, "no": 0}).reward.models["judge"])
    assert words.parse("Verdict: Yes").score == 1
    numbers = verdict_rule(_config(verdict_pattern=r"^grade (\d)$").reward.models["judge"])
    assert numbers.parse("well\ngrade 4").score == 4
    assert numbers.parse("Verdict: 4").fault is not None
