"""Workers for another attempt: those that are well stay, as starting them takes long."""

from lightrft_ray.config import InfrastructureError, WorkerDied
from lightrft_ray.driver.workers import Workers, wait_until_ready
from lightrft_ray.workers.actor_group import ActorGroup

_ABANDON_TIMEOUT = 30.0  # s


def repair(workers: Workers, silence: float, *, from_start: bool) -> list[str]:
    """Replace the workers that do not answer within `silence` seconds; what was replaced.

    What is left of work that nobody waits for any more is given up. Ranks that train together are
    replaced together. The state of learner and critic is to be restored then; `from_start` replaces
    them in any case, where there is none to restore. Raises WorkerDied where it does not succeed.
    """
    groups = workers.by_role().values()
    lost = {group: set(group.silent(silence)) for group in groups}
    for group in (workers.learner, workers.critic):
        if group is not None and (from_start or lost[group]):
            lost[group] = _all(group)
    lost[workers.generator] |= set(workers.generator.silent(_ABANDON_TIMEOUT, "abandon"))
    if any(lost[group] for group in workers.reward_models.values()):
        lost[workers.reward] = _all(workers.reward)  # it knows their actors from its start
    replaced = {group: sorted(places) for group, places in lost.items() if places}
    for group, places in replaced.items():
        for place in places:
            group.respawn(place)
    try:
        wait_until_ready(replaced)
    except InfrastructureError as error:
        raise WorkerDied(str(error)) from error
    return [f"{group.role} {place}" for group, places in replaced.items() for place in places]


def _all(group: ActorGroup) -> set[int]:
    return set(range(len(group)))
