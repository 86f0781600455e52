"""The names a step record may hold: one table, from which the glossary is made too.

A step record is a flat mapping from these names to numbers. Step 0 is the state before training:
its record holds the first evaluation and the first publish, and no reward. A name that is missing
here cannot be logged, so that every curve a person meets has a unit and a meaning.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

Record = Mapping[str, float]
Direction = Literal["up", "down", "none"]


class Metric(NamedTuple):
    """What one name of a step record means.

    `direction` is the way a healthy run moves it; "none" where no way is better.
    """

    unit: str
    meaning: str
    direction: Direction


PHASES = ("generate", "score", "assemble", "train", "publish", "eval", "save")
ROLES = ("driver", "generator", "reference", "critic", "reward", "reward_model", "learner")

WORK: dict[str, tuple[str, ...]] = {
    "generator": ("generate", "publish"),
    "reference": ("score",),
    "critic": ("score", "train", "save"),
    "reward": ("score",),
    "reward_model": ("score",),
    "learner": ("score", "train", "publish", "observe", "save"),
}
"""What the workers of each role do."""

_WITHOUT_GPU = ("reward",)  # it asks models and services; what has a model is a reward_model
_OF_A_SET = ("accuracy", "pass_at_k", "samples")
_TIMING_PREFIXES = ("time/", "speed/", "memory/", "busy/", "failures/", "reward/latency/")

_PARTICIPLES = {
    "generate": "generating",
    "score": "scoring",
    "train": "training",
    "publish": "publishing",
    "observe": "scoring trajectories",
    "save": "saving",
}

METRICS: dict[str, Metric] = {
    "step": Metric("steps", "training step; 0 is the state before training", "none"),
    "epoch": Metric("epochs", "pass over the prompts that this step's batch belongs to", "none"),
    "samples": Metric("samples", "samples trained on since the start of the run", "up"),
    "tokens": Metric("tokens", "response tokens trained on in this step", "none"),
    "rollout/response_length_mean": Metric("tokens", "mean response length", "none"),
    "rollout/response_length_min": Metric("tokens", "the shortest response", "none"),
    "rollout/response_length_max": Metric("tokens", "the longest response", "none"),
    "rollout/prompt_length_mean": Metric(
        "tokens", "mean prompt length over the groups, image tokens included", "none"
    ),
    "rollout/truncated_fraction": Metric(
        "fraction", "responses cut by the length limit before an end token", "down"
    ),
    "rollout/batches_drawn": Metric(
        "batches", "batches generated for the step where rewards select what is trained on", "down"
    ),
    "rollout/log_prob_gap_max": Metric(
        "nats", "largest absolute difference of a token's rollout and learner log-prob", "down"
    ),
    "rollout/mismatch_k1": Metric(
        "nats", "mean of rollout minus learner log-prob: KL between generator and learner", "none"
    ),
    "rollout/mismatch_k3": Metric(
        "nats", "the same KL by an estimate that is never negative", "down"
    ),
    "rollout/mismatch_ess": Metric(
        "fraction", "effective sample size of the learner's ratios to the generator; 1 is all", "up"
    ),
    "rollout/ratio_max": Metric(
        "1", "largest ratio of a token's learner and rollout probability", "down"
    ),
    "rollout/corrected_fraction": Metric(
        "fraction", "response tokens that the off-policy correction truncated or masked", "down"
    ),
    "rollout/correction_weight_mean": Metric(
        "1", "mean weight of a response token by the off-policy correction", "none"
    ),
    "staleness/mean": Metric(
        "versions", "mean over tokens of how much older the weights are that sampled them", "down"
    ),
    "staleness/max": Metric("versions", "the same of the oldest token", "down"),
    "staleness/spanning_fraction": Metric(
        "fraction", "responses whose tokens are of several versions of the weights", "none"
    ),
    "reward/mean": Metric("reward", "mean reward of the step's samples", "up"),
    "reward/std": Metric("reward", "standard deviation of the step's rewards", "none"),
    "reward/min": Metric("reward", "the smallest reward of the step", "none"),
    "reward/max": Metric("reward", "the largest reward of the step", "none"),
    "reward/informative_groups": Metric(
        "fraction", "prompts of the batch whose samples do not all have the same reward", "none"
    ),
    "reward/failed": Metric(
        "samples", "samples without a reward: masked out of the loss, never scored 0", "down"
    ),
    "reward/length_shaping_mean": Metric(
        "reward", "mean change of the rewards by length_shaping", "none"
    ),
    "reward/clipped_fraction": Metric("fraction", "rewards outside reward_clip_range", "down"),
    "reward/overlong_penalty_mean": Metric(
        "reward", "mean penalty of long responses, to be added to the reward", "up"
    ),
    "advantage/mean": Metric("reward", "mean advantage over the response tokens", "none"),
    "advantage/std": Metric(
        "reward", "standard deviation of the advantages over the response tokens", "none"
    ),
    "policy/loss": Metric("loss", "policy loss, all its terms included", "none"),
    "policy/clip_fraction": Metric(
        "fraction", "response tokens whose probability ratio was clipped", "none"
    ),
    "policy/clip_fraction_dual": Metric(
        "fraction", "response tokens of bad actions past the dual clip (ppo_dual_clip)", "none"
    ),
    "policy/approx_kl": Metric(
        "nats", "estimated KL between the policy before and after the step's updates", "none"
    ),
    "policy/entropy": Metric("nats", "mean entropy of the next-token distribution", "none"),
    "policy/ptx_loss": Metric(
        "nats", "mean -log-prob of a demonstrated token (pretrain_data), before ptx_coef", "down"
    ),
    "policy/aux_loss": Metric(
        "1",
        "load-balancing loss of the experts, before aux_loss_coef; balanced: experts a token",
        "down",
    ),
    "policy/grad_norm": Metric("norm", "policy gradient norm before clipping", "none"),
    "policy/learning_rate": Metric("1", "policy learning rate of the step's last update", "none"),
    "policy/skipped_updates": Metric(
        "updates", "optimizer updates left out because the loss or gradient was not finite", "down"
    ),
    "value/loss": Metric("loss", "value loss", "down"),
    "value/mean": Metric("reward", "mean of the critic's values over the response tokens", "none"),
    "value/return_mean": Metric("reward", "mean return over the response tokens", "none"),
    "value/clip_fraction": Metric("fraction", "values whose change was clipped", "none"),
    "value/grad_norm": Metric("norm", "critic gradient norm before clipping", "none"),
    "value/learning_rate": Metric("1", "critic learning rate of the step's last update", "none"),
    "value/skipped_updates": Metric(
        "updates", "critic updates left out because the loss or gradient was not finite", "down"
    ),
    "value/explained_variance": Metric(
        "fraction", "share of the returns' variance that the critic explains; 1 is perfect", "up"
    ),
    "kl/reference_mean": Metric(
        "nats", "mean per-token KL estimate between the policy and the reference model", "none"
    ),
    "kl/coef": Metric("1", "coefficient of the KL penalty", "none"),
    "publish/version": Metric("version", "weight version the generators hold after the step", "up"),
    "publish/bytes": Metric("bytes", "size of the published weights", "none"),
    "publish/canary_max_abs_diff": Metric(
        "nats",
        "largest log-prob difference of learner and generator on a fixed prompt, after a publish",
        "down",
    ),
    "data/skipped": Metric("prompts", "prompts skipped as unusable, since the start", "down"),
    "data/taken": Metric(
        "prompts",
        "prompts taken from the data: trained + filtered + cancelled + in flight + failed",
        "none",
    ),
    "data/trained": Metric("prompts", "prompts trained on, since the start", "up"),
    "data/filtered": Metric(
        "prompts",
        "prompts left out by dynamic sampling or without any reward, since the start",
        "none",
    ),
    "data/cancelled": Metric(
        "prompts", "prompts given up as the slowest of their step, since the start", "down"
    ),
    "data/failed": Metric("prompts", "prompts given up, since the start", "down"),
    "data/in_flight": Metric("prompts", "prompts being generated, scored or waiting", "none"),
    "data/begun_anew": Metric(
        "prompts", "times that a prompt was begun anew as too stale, since the start", "down"
    ),
    "data/passed_over": Metric(
        "prompts", "turns of prompts passed over as too easy or too hard, since the start", "none"
    ),
    "data/pass_rate_mean": Metric(
        "fraction", "mean over the prompts seen of their running share of correct samples", "up"
    ),
    "eval/accuracy": Metric("fraction", "held-out accuracy, decoded greedily", "up"),
    "eval/pass_at_k": Metric(
        "fraction",
        "held-out prompts of which one of the k samples passes: reward 0.5 or more",
        "up",
    ),
    "eval/samples": Metric("samples", "held-out samples evaluated", "none"),
    "eval/accuracy/LABEL": Metric("fraction", "held-out accuracy of the prompts of a label", "up"),
    "eval/SET/accuracy": Metric("fraction", "accuracy on a set of evaluation.eval_sets", "up"),
    "eval/SET/pass_at_k": Metric("fraction", "prompts of that set of which a sample passes", "up"),
    "eval/SET/samples": Metric("samples", "samples of that set", "none"),
    "eval/SET/accuracy/LABEL": Metric("fraction", "accuracy on a label's prompts of it", "up"),
    "time/generate": Metric("s", "waiting for rollouts", "down"),
    "time/score": Metric("s", "rewards, reference log-probs and values", "down"),
    "time/assemble": Metric("s", "making experience of scored samples", "down"),
    "time/train": Metric("s", "forward, backward and optimizer", "down"),
    "time/publish": Metric("s", "moving new weights to the generators", "down"),
    "time/publish_pause": Metric(
        "s", "of publishing, how long the slowest generator could not sample", "down"
    ),
    "time/eval": Metric("s", "evaluation on held-out prompts", "down"),
    "time/save": Metric("s", "copying what a checkpoint keeps; it is written later", "down"),
    "time/step": Metric("s", "the whole step by the wall clock, evaluation included", "down"),
    "time/observe": Metric(
        "s", "metrics and trajectories: of the driver, its threads and the learner", "down"
    ),
    "speed/samples_per_second": Metric("samples/s", "samples over the step's time", "up"),
    "speed/tokens_per_second": Metric("tokens/s", "response tokens over the step's time", "up"),
    "speed/tokens_per_second_per_device": Metric(
        "tokens/s", "the same, by GPU of the run, or by process of one without any", "up"
    ),
    "speed/generate_tokens_per_second_per_device": Metric(
        "tokens/s", "response tokens over the time of generating, by device of the generators", "up"
    ),
    "speed/train_tokens_per_second_per_device": Metric(
        "tokens/s", "response tokens trained on, each epoch anew, by device of the learner", "up"
    ),
    "failures/restarts": Metric(
        "restarts", "workers started again, alone or all together, since the start", "down"
    ),
    **{
        f"memory/{role}_mb": Metric(
            "MB", f"resident memory of a {role} with its child processes; the largest", "none"
        )
        for role in ROLES
    },
    **{
        f"memory/{role}/{phase}_mb": Metric(
            "MB", f"the same of a {role} at the end of {_PARTICIPLES[phase]}, now and then", "none"
        )
        for role, phases in WORK.items()
        for phase in phases
    },
    **{
        f"memory/{role}/{phase}_gpu_mb": Metric(
            "MB", f"GPU memory that a {role} takes while {_PARTICIPLES[phase]}; the largest", "none"
        )
        for role, phases in WORK.items()
        for phase in phases
        if role not in _WITHOUT_GPU
    },
    **{
        f"busy/{role}": Metric(
            "fraction", f"share of the step in which a {role} worked; the mean of all", "up"
        )
        for role in WORK
    },
}

_NAME = "NAME"

FAMILIES: dict[str, Metric] = {
    "staleness/share/NAME": Metric(
        "fraction", "samples whose oldest token is NAME versions old: the histogram", "none"
    ),
    "reward/component/NAME": Metric(
        "reward", "mean of one of a recipe's rewards, or of a part of it, without its weight", "up"
    ),
    "reward/failed_fraction/NAME": Metric(
        "fraction", "samples that this source of rewards failed on, since the start", "down"
    ),
    **{
        f"reward/latency/NAME/p{percent}": Metric(
            "ms", f"{percent} % of this source's answers took no longer", "down"
        )
        for percent in (50, 95, 99)
    },
}
"""Metrics of which a run has one for each of its rewards, whose name stands for NAME."""


def documented_as(name: str) -> str:
    """The name in the table of a metric whose own name holds that of a reward, a set or a label."""
    section, *parts = name.split("/")
    if name in METRICS:
        return name
    if section == "eval":
        return _of_evaluation(parts)
    return next((family for family in FAMILIES if _is_of(family, name)), name)


def _is_of(family: str, name: str) -> bool:
    head, tail = family.split(_NAME)
    longer = len(name) > len(head) + len(tail)
    return name.startswith(head) and name.endswith(tail) and longer


def _of_evaluation(parts: list[str]) -> str:
    if parts[0] not in _OF_A_SET:
        parts[0] = "SET"
    if parts[-2:-1] == ["accuracy"]:
        parts[-1] = "LABEL"
    return "/".join(["eval", *parts])


def in_table_order(names: Iterable[str]) -> list[str]:
    """The names as the tables have them, those of one entry by the alphabet."""
    places = {name: place for place, name in enumerate([*METRICS, *FAMILIES])}
    return sorted(names, key=lambda name: (places[documented_as(name)], name))


def is_timing(name: str) -> bool:
    """Whether `name` may differ between two runs with the same seed; all others must not."""
    return name.startswith(_TIMING_PREFIXES)


def check_record(record: Record) -> None:
    """Raise ValueError when `record` lacks "step" or holds a name the table does not explain."""
    if "step" not in record:
        raise ValueError("a step record needs the name 'step'")
    known = METRICS.keys() | FAMILIES.keys()
    unknown = [name for name in record if documented_as(name) not in known]
    if unknown:
        raise ValueError(f"undocumented metric names {unknown}: add them to observe/names.py")


def glossary() -> str:
    """Return the table as Markdown, one row a name, in table order."""
    better = {"up": "higher", "down": "lower", "none": ""}
    rows = [
        f"| `{name}` | {metric.unit} | {metric.meaning} | {better[metric.direction]} |"
        for name, metric in (METRICS | FAMILIES).items()
    ]
    return "\n".join(["| name | unit | meaning | better |", "|---|---|---|---|", *rows]) + "\n"
