"""Manifests and images of cluster/ against their schemas and against each other."""

import copy
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml
from kuberay_schema import manifest_schema
from ray.autoscaler._private.util import fillout_defaults, validate_config

from lightrft_ray.config.load import load_config

ROOT = Path(__file__).parents[3]
CLUSTER = ROOT / "cluster"


def _read(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((CLUSTER / name).read_text(encoding="utf-8"))
    return manifest


@pytest.mark.parametrize("name", ["aws.yaml", "gcp.yaml"])
def test_ray_up_takes_it(name: str) -> None:
    """By the schema that Ray ships, and by its own further checks."""
    config = _read(name)
    schema_file = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(config, json.loads(schema_file.read_text(encoding="utf-8")))
    validate_config(fillout_defaults(copy.deepcopy(config)))


@pytest.mark.parametrize("name", ["aws.yaml", "gcp.yaml"])
def test_nodes_of_ray_up_ask_for_the_token(name: str) -> None:
    config = _read(name)
    commands = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    starts = [command for command in commands if "ray start" in command]
    assert len(starts) == 2
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in starts)
    assert "~/.ray/auth_token" in config["file_mounts"]


@pytest.mark.parametrize(
    ("name", "kind"), [("raycluster.yaml", "RayCluster"), ("rayjob.yaml", "RayJob")]
)
def test_kubernetes_takes_it(name: str, kind: str) -> None:
    jsonschema.validate(_read(f"kubernetes/{name}"), manifest_schema(kind))


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "headGroupSpec", "template", "spec", "containers", 0),
        ("spec", "workerGroupSpecs", 0),
        ("spec",),
        (),
    ],
    ids=["container", "worker group", "spec", "top"],
)
def test_a_mistyped_field_is_found(path: tuple[str | int, ...]) -> None:
    manifest = copy.deepcopy(_read("kubernetes/raycluster.yaml"))
    place: Any = manifest
    for step in path:
        place = place[step]
    place["replicsa"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, manifest_schema("RayCluster"))


def _cluster_specs() -> Iterator[dict[str, Any]]:
    yield _read("kubernetes/raycluster.yaml")["spec"]
    yield _read("kubernetes/rayjob.yaml")["spec"]["rayClusterSpec"]


def test_manifests_name_the_ray_of_the_package() -> None:
    for spec in _cluster_specs():
        assert spec["rayVersion"] == ray.__version__


def test_pods_mount_what_they_have() -> None:
    for spec in _cluster_specs():
        groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
        for pod in (group["template"]["spec"] for group in groups):
            volumes = {volume["name"] for volume in pod["volumes"]}
            mounts = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
            assert mounts == volumes


def test_the_job_is_a_configuration_that_its_cluster_can_run() -> None:
    spec = _read("kubernetes/rayjob.yaml")["spec"]
    words = shlex.split(spec["entrypoint"])
    assert words[:2] == ["python", "launch/ppo_vl.py"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    overrides = [(name[2:], value) for name, value in options.items() if name != "--config"]
    config = load_config(ROOT / options["--config"], overrides)
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    gpus = group["replicas"] * int(container["resources"]["limits"]["nvidia.com/gpu"])
    assert config.learner_ranks + config.rollout.vllm_num_engines == gpus


@pytest.mark.parametrize("name", ["Dockerfile.gpu", "Dockerfile.cpu"])
def test_images_copy_what_there_is(name: str) -> None:
    text = (CLUSTER / name).read_text(encoding="utf-8").replace("\\\n", " ")
    instructions = [line.split() for line in text.splitlines() if line and line[0] not in " #"]
    assert {words[0] for words in instructions} <= {
        *("ARG", "CMD", "COPY", "ENV", "FROM", "RUN", "WORKDIR"),
    }
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [path for words in instructions if words[0] == "COPY" for path in words[1:-1]]
    assert {"pyproject.toml", "lightrft_ray", "launch"} <= set(copied)
    for path in copied:
        assert (ROOT / path).exists(), path
        assert path not in ignored
    for script in re.findall(r"(?:cluster|launch)/[\w.]+\.(?:sh|py)", text):
        assert (ROOT / script).is_file(), script


def test_the_gpu_image_has_the_vllm_of_the_package() -> None:
    (pinned,) = re.findall(r'gpu = \["(vllm==[\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert pinned in (CLUSTER / "Dockerfile.gpu").read_text(encoding="utf-8")
