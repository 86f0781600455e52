"""Starting and ending a run's workers."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import cast

import ray
from ray import ObjectRef
from ray.actor import ActorClass, ActorHandle
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from lightrft_ray.config import InfrastructureError, RunConfig
from lightrft_ray.driver.placement import Placement, Resources, RoleDemand
from lightrft_ray.driver.preflight import RunInputs
from lightrft_ray.workers.actor_group import ActorGroup, wait_for
from lightrft_ray.workers.critic import CriticLearner
from lightrft_ray.workers.deepspeed_engine import ProcessGroup
from lightrft_ray.workers.engine_environment import engine_environment
from lightrft_ray.workers.generator import Generator
from lightrft_ray.workers.learner import PolicyLearner
from lightrft_ray.workers.reference import ReferenceWorker
from lightrft_ray.workers.reward import RewardWorker

START_TIMEOUT = 900.0  # s: large checkpoints load slowly
_STOP_TIMEOUT = 15.0  # s


@dataclass(frozen=True)
class Workers:
    """The actor groups of a run; None for a role that the run does not have."""

    learner: ActorGroup
    generator: ActorGroup
    reward: ActorGroup
    reference: ActorGroup | None
    critic: ActorGroup | None

    def by_role(self) -> dict[str, ActorGroup]:
        """The groups that there are."""
        groups = {field.name: getattr(self, field.name) for field in fields(self)}
        return {role: group for role, group in groups.items() if group is not None}

    def resident_mb(self) -> dict[str, float]:
        """Memory of each role in MB: of the largest of its workers."""
        pending = {role: group.start("resident_mb") for role, group in self.by_role().items()}
        return {role: max(self.by_role()[role].wait(refs)) for role, refs in pending.items()}

    def stop(self) -> None:
        """End the engines' processes, then all actors; never raises, whatever state they are in."""
        _stop(self.generator, self.by_role().values())


@dataclass(frozen=True)
class EvaluationWorkers:
    """What evaluating a policy needs."""

    generator: ActorGroup
    reward: ActorGroup

    def stop(self) -> None:
        """As `Workers.stop`."""
        _stop(self.generator, [self.generator, self.reward])


def start_evaluation_workers(
    config: RunConfig, inputs: RunInputs, demands: Sequence[RoleDemand], placement: Placement
) -> EvaluationWorkers:
    """Start generators, with the weights of `model.pretrain`, and reward workers."""
    starter = _Starter(config, placement, {demand.role: demand.bundles for demand in demands})
    workers = EvaluationWorkers(starter.generator(inputs), starter.reward())
    _wait_until_ready({"generator": workers.generator, "reward": workers.reward})
    return workers


def start_workers(
    config: RunConfig, inputs: RunInputs, demands: Sequence[RoleDemand], placement: Placement
) -> Workers:
    """Start all workers side by side; returns when every model is loaded."""
    starter = _Starter(config, placement, {demand.role: demand.bundles for demand in demands})
    timeout = config.trainer.learner_timeout
    model_arguments = (config, inputs.sampling, inputs.pad_token_id)
    workers = Workers(
        generator=starter.generator(inputs),
        learner=starter.create("learner", PolicyLearner, model_arguments, timeout),
        reward=starter.reward(),
        reference=starter.create("reference", ReferenceWorker, model_arguments, timeout)
        if config.uses_reference
        else None,
        critic=starter.create("critic", CriticLearner, (config, inputs.pad_token_id), timeout)
        if config.uses_critic
        else None,
    )
    _wait_until_ready(workers.by_role())
    return workers


def _stop(generator: ActorGroup, groups: Iterable[ActorGroup]) -> None:
    with contextlib.suppress(InfrastructureError):
        wait_for(generator.start("stop"), _STOP_TIMEOUT, "the generator")
    for group in groups:
        for actor in group.actors:
            ray.kill(actor)


@dataclass(frozen=True)
class _Starter:
    """Creates actors inside their role's placement group, one a bundle."""

    config: RunConfig
    placement: Placement
    bundles: Mapping[str, Sequence[Resources]]

    def generator(self, inputs: RunInputs) -> ActorGroup:
        """The generators."""
        arguments = (self.config, inputs.sampling.forbidden_token_ids, inputs.max_images)
        timeout = self.config.rollout.generate_timeout
        return self.create("generator", Generator, arguments, timeout)

    def reward(self) -> ActorGroup:
        """The reward workers."""
        reward = self.config.reward
        return self.create("reward", RewardWorker, (reward.reward_fn,), reward.reward_timeout)

    def create(
        self, role: str, actor: type, arguments: Sequence[object], timeout: float
    ) -> ActorGroup:
        """All actors of a role; `actor` is what `ray.remote` made of its class."""

        def spawn(index: int) -> ActorHandle:
            bundle = self.bundles[role][index]
            created = cast(ActorClass, actor).options(
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=self.placement[role], placement_group_bundle_index=index
                ),
                runtime_env={"env_vars": _environment(self.config, role)},
            )
            return cast(ActorHandle, created.remote(*arguments))

        handles = [spawn(index) for index in range(len(self.bundles[role]))]
        return ActorGroup(role, handles, timeout, spawn)


def _environment(config: RunConfig, role: str) -> dict[str, str]:
    """Variables that must be set before a worker's libraries are imported.

    OpenMP's threads wait for each other by spinning. Where anything else runs on the cores, a
    model's pass then takes several times as long; waiting passively costs a third at most.
    """
    threads = {
        "OMP_NUM_THREADS": str(config.placement.cpu_threads_per_worker),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    return threads | (engine_environment(config) if role == "generator" else {})


def _wait_until_ready(groups: Mapping[str, ActorGroup]) -> None:
    """Wait for all roles at once, so that the first to fail is the one that is reported."""
    starting: dict[ObjectRef, str] = {}
    for role, group in groups.items():
        connects = role in ("learner", "critic")
        references = _connect(group) if connects else group.start("ready")
        starting.update(dict.fromkeys(references, role))
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
