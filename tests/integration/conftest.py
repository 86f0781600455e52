"""Fixtures of the real stack: embedded inputs, a local Ray, one generator for many tests."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.driver.preflight import RunInputs, check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.workers.engine_environment import engine_environment
from lightrft_ray.workers.generator import Generator

START_TIMEOUT = 180


@pytest.fixture(scope="session")
def config() -> RunConfig:
    """The embedded default with its checkpoint's path filled in."""
    return resolve_checkpoints(load_config(None, []))


@pytest.fixture(scope="session")
def inputs(config: RunConfig) -> RunInputs:
    """Prompts and tokens of the embedded default."""
    return check_inputs(config)


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """A local Ray for one module; modules that start whole runs need none beside theirs."""
    with ray_session():
        yield


@pytest.fixture(scope="module")
def generator(local_ray: None, config: RunConfig, inputs: RunInputs) -> Iterator[ActorHandle]:
    """A generator with the embedded checkpoint's weights, which can draw hot first tokens."""
    rollout = config.rollout.model_copy(update={"use_fire": True})
    config = config.model_copy(update={"rollout": rollout})
    actor = Generator.options(runtime_env={"env_vars": engine_environment(config)}).remote(
        config, inputs.sampling.forbidden_token_ids, 1
    )
    ray.get(actor.ready.remote(), timeout=START_TIMEOUT)
    yield actor
    with contextlib.suppress(RayActorError):  # a test may have killed it
        ray.get(actor.stop.remote(), timeout=30)


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """An empty folder for images."""
    folder = tmp_path / "images"
    folder.mkdir()
    return folder
