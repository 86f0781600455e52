"""A generative judge under vLLM, in its actor."""

from collections.abc import Iterator
from io import BytesIO

import pytest
import ray
from PIL import Image
from ray.actor import ActorHandle

from lightrft_ray.config.load import load_config
from lightrft_ray.data.embedded import resolve_embedded
from lightrft_ray.rewards.sample import EncodedMedia, RewardSample
from lightrft_ray.workers.engine_environment import engine_environment
from lightrft_ray.workers.judge import JudgeWorker
from lightrft_ray.workers.judge_settings import engine_config
from tests.integration.conftest import START_TIMEOUT

_JUDGE = (
    "{{judge: {{kind: judge, pretrain: {path}, template: '{{prompt}} {{response}}', "
    "verdict_pattern: '{pattern}', max_new_tokens: 8, max_model_len: 256, max_images: 1}}}}"
)
_FIRST_DIGIT = r"^\D*(\d)"


@pytest.fixture(scope="module")
def judge(local_ray: None) -> Iterator[ActorHandle]:
    """The policy of the digits, which answers with a digit or with something that is none."""
    path = resolve_embedded("embedded:tiny-qwen2.5-vl")
    models = _JUDGE.format(path=path, pattern=_FIRST_DIGIT)
    config = load_config(None, [("recipes", "{default: {judge: 1}}"), ("models", models)])
    environment = engine_environment(engine_config(config, config.reward.models["judge"]))
    actor = JudgeWorker.options(runtime_env={"env_vars": environment}).remote(config, "judge")
    ray.get(actor.ready.remote(), timeout=START_TIMEOUT)
    yield actor
    ray.get(actor.stop.remote(), timeout=30)


def _samples() -> list[RewardSample]:
    """Every other one with an image."""
    buffer = BytesIO()
    Image.new("RGB", (56, 56), "white").save(buffer, format="PNG")
    images = (EncodedMedia(buffer.getvalue(), "image/png"),)
    return [
        RewardSample(
            sample_id=f"s{number}",
            prompt="Which digit?",
            messages=(),
            response=str(number),
            response_token_ids=[1],
            reference="",
            label="",
            images=images if number % 2 else (),
        )
        for number in range(6)
    ]


@pytest.mark.long
def test_a_judge_gives_a_verdict_or_a_reason(judge: ActorHandle) -> None:
    scores = ray.get(judge.score.remote(_samples()), timeout=60)
    assert [score.sample_id for score in scores] == [f"s{number}" for number in range(6)]
    assert any(score.score is not None for score in scores)
    for score in scores:
        assert (score.score is None) == (score.error is not None)
        assert score.score is None or score.score in range(10)
    assert ray.get(judge.score.remote(_samples()), timeout=60) == scores


@pytest.mark.long
def test_a_sample_that_cannot_be_judged_fails_alone(judge: ActorHandle) -> None:
    first, second, *_ = _samples()
    broken = EncodedMedia(b"no image", "image/png")
    scores = ray.get(
        judge.score.remote([first, RewardSample(**{**vars(second), "images": (broken,)})]),
        timeout=60,
    )
    assert scores[0] == ray.get(judge.score.remote([first]), timeout=60)[0]
    assert scores[1].score is None
    assert "image" in str(scores[1].error)
