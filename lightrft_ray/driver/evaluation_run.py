"""A run that evaluates a policy and trains nothing."""

import json
import tempfile
from pathlib import Path

from lightrft_ray.config import RunConfig
from lightrft_ray.driver.evaluation import Evaluator
from lightrft_ray.driver.export import export_checkpoint
from lightrft_ray.driver.placement import placed, role_demands
from lightrft_ray.driver.preflight import check_inputs, resolve_checkpoints
from lightrft_ray.driver.ray_session import ray_session
from lightrft_ray.driver.resume import checkpoint_at
from lightrft_ray.driver.workers import start_evaluation_workers
from lightrft_ray.observe.run_folder import RunFolder


def evaluate(config: RunConfig) -> tuple[Path, dict[str, float]]:
    """Evaluate a checkpoint's policy, or the one to train; the file with its metrics, and those.

    Errors are those of `run`. Nothing but evaluation.json is written to `output_dir`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        step, judged = _policy_to_evaluate(config, Path(scratch) / "policy")
        resolved = resolve_checkpoints(judged)
        inputs = check_inputs(resolved)
        file = RunFolder.reopen(config.output_dir).evaluation
        needed = ("generator", "reward", "reward_model")
        demands = [d for d in role_demands(resolved) if d.role.partition(".")[0] in needed]
        with (
            ray_session() as session,
            placed(resolved, demands, is_local=session.is_local) as placement,
        ):
            workers = start_evaluation_workers(resolved, inputs, demands, placement)
            try:
                evaluator = Evaluator(resolved, inputs, workers.generator, workers.reward)
                record = {"step": float(step), **evaluator.evaluate()}
            finally:
                workers.stop()
    file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return file, record


def _policy_to_evaluate(config: RunConfig, folder: Path) -> tuple[int, RunConfig]:
    """The step that the policy is of, and the configuration with it as model.pretrain."""
    wish = config.checkpoint.resume
    if wish == "never":
        return 0, config
    place = config.checkpoint_url if wish == "auto" else wish
    checkpoint = checkpoint_at(place, print)
    export_checkpoint(checkpoint, folder)
    model = config.model.model_copy(update={"pretrain": str(folder)})
    return checkpoint.step, config.model_copy(update={"model": model})
