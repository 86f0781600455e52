"""Starting and ending a run's workers."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import ray
from ray import ObjectRef
from ray.actor import ActorClass, ActorHandle
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lightrft_ray.config import InfrastructureError, RunConfig
from lightrft_ray.driver.colocation import Colocation
from lightrft_ray.driver.packing import RoleDemand
from lightrft_ray.driver.placement import Placement, reward_model_role, shares_of_hosts
from lightrft_ray.driver.preflight import RunInputs
from lightrft_ray.observe.structured_log import worker_variables
from lightrft_ray.workers.actor_group import ActorGroup, wait_for
from lightrft_ray.workers.critic import CriticLearner
from lightrft_ray.workers.deepspeed_engine import ProcessGroup
from lightrft_ray.workers.engine_environment import engine_environment
from lightrft_ray.workers.generator import Generator
from lightrft_ray.workers.judge import JudgeWorker
from lightrft_ray.workers.judge_settings import engine_config
from lightrft_ray.workers.learner import PolicyLearner
from lightrft_ray.workers.reference import ReferenceWorker
from lightrft_ray.workers.reward import RewardWorker
from lightrft_ray.workers.scalar_reward import ScalarRewardWorker

START_TIMEOUT = 900.0  # s: large checkpoints load slowly
_STOP_TIMEOUT = 15.0  # s
_REWARD_GRACE = 15.0  # s: the reward worker itself ends in time, and knows which samples failed
_REWARD_MODELS: Mapping[str, type] = {"scalar_model": ScalarRewardWorker, "judge": JudgeWorker}


@dataclass(frozen=True)
class Workers:
    """The actor groups of a run; None for a role that the run does not have."""

    learner: ActorGroup
    generator: ActorGroup
    reward: ActorGroup
    reference: ActorGroup | None
    critic: ActorGroup | None
    reward_models: Mapping[str, ActorGroup] = field(default_factory=dict)

    def by_role(self) -> dict[str, ActorGroup]:
        """The groups that there are."""
        groups: dict[str, ActorGroup | None] = {
            "learner": self.learner,
            "generator": self.generator,
            "reward": self.reward,
            "reference": self.reference,
            "critic": self.critic,
        }
        groups |= {reward_model_role(name): each for name, each in self.reward_models.items()}
        return {role: group for role, group in groups.items() if group is not None}

    def colocation(self, config: RunConfig) -> Colocation:
        """Turns of those that share devices."""
        scorers = {"reference": self.reference, "critic": self.critic}
        sharing = [group for role, group in scorers.items() if group and role in config.guests]
        return Colocation(self.learner, self.generator, sharing, is_on=bool(config.guests))

    @contextlib.contextmanager
    def meanwhile(self, work: Callable[[], None]) -> Iterator[None]:
        """Within the block, waits on all workers but generators do `work` again and again."""
        groups = [group for role, group in self.by_role().items() if role != "generator"]
        for group in groups:
            group.meanwhile = work
        try:
            yield
        finally:
            for group in groups:
                group.meanwhile = None

    def resident_mb(self) -> dict[str, float]:
        """Memory of each kind of role in MB: of the largest of its workers."""
        groups = self.by_role()
        pending = {role: group.start("resident_mb") for role, group in groups.items()}
        largest: dict[str, float] = {}
        for role, references in pending.items():
            kind = role.partition(".")[0]
            largest[kind] = max([largest.get(kind, 0.0), *groups[role].wait(references)])
        return largest

    def stop(self) -> None:
        """End the processes of engines and functions, then all actors.

        Never raises, whatever state they are in.
        """
        _stop(self.by_role())


@dataclass(frozen=True)
class EvaluationWorkers:
    """What evaluating a policy needs."""

    generator: ActorGroup
    reward: ActorGroup
    reward_models: Mapping[str, ActorGroup]

    def by_role(self) -> dict[str, ActorGroup]:
        """The groups by role."""
        own = {"generator": self.generator, "reward": self.reward}
        return own | {reward_model_role(name): each for name, each in self.reward_models.items()}

    def stop(self) -> None:
        """As `Workers.stop`."""
        _stop(self.by_role())


def start_evaluation_workers(
    config: RunConfig, inputs: RunInputs, demands: Sequence[RoleDemand], placement: Placement
) -> EvaluationWorkers:
    """Start generators, with the weights of `model.pretrain`, and what rewards need."""
    by_role = {demand.role: demand for demand in demands}
    starter = Starter(config, placement, by_role, run_id="evaluation")
    reward_models = starter.reward_models()
    workers = EvaluationWorkers(
        starter.generator(inputs), starter.reward(reward_models), reward_models
    )
    wait_until_ready({group: range(len(group)) for group in workers.by_role().values()})
    return workers


def start_workers(
    config: RunConfig,
    inputs: RunInputs,
    demands: Sequence[RoleDemand],
    placement: Placement,
    *,
    run_id: str = "unnamed",
) -> Workers:
    """Start all workers side by side; returns when every model is loaded.

    Their logs carry `run_id`.
    """
    by_role = {demand.role: demand for demand in demands} | shares_of_hosts(config)
    starter = Starter(config, placement, by_role, run_id)
    timeout = config.trainer.learner_timeout
    model_arguments = (config, inputs.sampling, inputs.pad_token_id)
    learner = starter.create("learner", PolicyLearner, model_arguments, timeout)
    starter.show_devices_of(learner)
    reward_models = starter.reward_models()
    workers = Workers(
        generator=starter.generator(inputs),
        learner=learner,
        reward=starter.reward(reward_models),
        reward_models=reward_models,
        reference=starter.create("reference", ReferenceWorker, model_arguments, timeout)
        if config.uses_reference
        else None,
        critic=starter.create("critic", CriticLearner, (config, inputs.pad_token_id), timeout)
        if config.uses_critic
        else None,
    )
    wait_until_ready({group: range(len(group)) for group in workers.by_role().values()})
    return workers


def _stop(groups: Mapping[str, ActorGroup]) -> None:
    stopping = [groups[role].start("stop") for role in ("generator", "reward")]
    for references in stopping:
        with contextlib.suppress(InfrastructureError):
            wait_for(references, _STOP_TIMEOUT, "a worker that is to stop")
    for group in groups.values():
        for actor in group.actors:
            ray.kill(actor)


@dataclass(frozen=True)
class Starter:
    """Creates actors inside their role's placement group, those of one bundle side by side."""

    config: RunConfig
    placement: Placement
    demands: Mapping[str, RoleDemand]
    run_id: str
    shown: list[str] = field(default_factory=list)
    """The GPU of each learner rank, where guests use them, too."""

    def show_devices_of(self, learner: ActorGroup) -> None:
        """Have guests see the GPUs of the learner's processes."""
        if self.config.guests and self.config.placement.actor_num_gpus_per_node > 0:
            self.shown[:] = wait_for(
                learner.start("device_number"), START_TIMEOUT, "the learner (while starting)"
            )

    def generator(self, inputs: RunInputs) -> ActorGroup:
        """The generators."""
        forbidden = inputs.sampling.forbidden_token_ids
        arguments = (self.config, forbidden, inputs.max_images, inputs.max_videos)
        timeout = self.config.rollout.generate_timeout
        return self.create("generator", Generator, arguments, timeout)

    def reward_models(self) -> dict[str, ActorGroup]:
        """The actors of each reward model, by its name."""
        config = self.config
        timeout = config.trainer.learner_timeout
        return {
            name: self.create(
                reward_model_role(name), _REWARD_MODELS[model.kind], (config, name), timeout
            )
            for name, model in config.reward.models.items()
        }

    def reward(self, models: Mapping[str, ActorGroup]) -> ActorGroup:
        """The reward workers, which ask the reward models."""
        arguments = (self.config, {name: group.actors for name, group in models.items()})
        timeout = self.config.reward.reward_timeout + _REWARD_GRACE
        return self.create("reward", RewardWorker, arguments, timeout)

    def create(
        self, role: str, actor: type, arguments: Sequence[object], timeout: float
    ) -> ActorGroup:
        """All actors of a role; `actor` is what `ray.remote` made of its class."""

        def spawn(index: int) -> ActorHandle:
            place, share = self.demands[role].of_process(index)
            about = worker_variables(self.run_id, f"{role}/{index}", self.config.logging.log_level)
            host = "learner" if role in self.config.guests else role
            created = cast(ActorClass, actor).options(
                num_cpus=share["CPU"],
                num_gpus=share.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=self.placement[host], placement_group_bundle_index=place
                ),
                runtime_env={
                    "env_vars": _environment(self.config, role) | self._devices(role, index) | about
                },
            )
            return cast(ActorHandle, created.remote(*arguments))

        handles = [spawn(index) for index in range(self.demands[role].processes)]
        return ActorGroup(role, handles, timeout, spawn)

    def _devices(self, role: str, index: int) -> dict[str, str]:
        """Variables that show a guest its GPUs, of which Ray gives it none."""
        if role not in self.config.guests or not self.shown:
            return {}
        width = self.config.rollout.vllm_tensor_parallel_size if role == "generator" else 1
        own = self.shown[index * width : (index + 1) * width]
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(own),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }


def _environment(config: RunConfig, role: str) -> dict[str, str]:
    """Variables that must be set before a worker's libraries are imported.

    OpenMP's threads wait for each other by spinning. Where anything else runs on the cores, a
    model's pass then takes several times as long; waiting passively costs a third at most.
    """
    threads = {
        "OMP_NUM_THREADS": str(config.placement.cpu_threads_per_worker),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if role == "generator":
        return threads | engine_environment(config)
    models = config.reward.models
    judge = models.get(role.partition(".")[2]) if role.startswith("reward_model.") else None
    if judge is None or judge.kind != "judge":
        return threads
    return threads | engine_environment(engine_config(config, judge))


def wait_until_ready(places: Mapping[ActorGroup, Sequence[int]]) -> None:
    """Have actors that were just made load their models; returns when all have.

    `places` are those of each group's actors; ranks that train together start together. Waits for
    all roles at once, so that the first to fail is the one that is reported.
    """
    starting: dict[ObjectRef, str] = {}
    for group, own in places.items():
        actors = [group.actors[place] for place in own]
        connects = group.role in ("learner", "critic")
        references = _connect(group) if connects else [actor.ready.remote() for actor in actors]
        starting.update(dict.fromkeys(references, group.role))
    pending = list(starting)
    while pending:
        done, pending = ray.wait(pending, timeout=START_TIMEOUT)
        who = f"the {starting[(done or pending)[0]]} (while starting)"
        wait_for(done or pending[:1], 0.1, who)


def _connect(group: ActorGroup) -> list[ObjectRef]:
    """Have the ranks of a learner meet at rank 0."""
    host, port = wait_for(
        [group.actors[0].address.remote()], START_TIMEOUT, f"the {group.role} (while starting)"
    )[0]
    places = [ProcessGroup(rank, len(group), host, port) for rank in range(len(group))]
    return group.start_each("connect", places)
