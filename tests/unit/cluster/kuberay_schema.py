"""KubeRay's fields (ray.io/v1, API reference of KubeRay 1.6) as far as manifests here may use them.

No package brings the custom resource definitions, so this is written by hand. Unknown names are
errors on every level, as with the operator's own definitions under `kubectl apply --validate`.
"""

TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
# Kubernetes has quantities as text; YAML would read an unquoted 8 as a number.
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required: list[str], **properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def _list(items: object) -> dict[str, object]:
    return {"type": "array", "items": items, "minItems": 1}


METADATA = _object(["name"], name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
CONTAINER = _object(
    ["name", "image", "resources"],
    name=TEXT,
    image=TEXT,
    command=_list(TEXT),
    args=_list(TEXT),
    env=_list({"type": "object"}),
    ports=_list(_object(["containerPort"], containerPort=COUNT, name=TEXT)),
    resources=_object(["requests", "limits"], requests=TEXTS, limits=TEXTS),
    volumeMounts=_list(_object(["mountPath", "name"], mountPath=TEXT, name=TEXT)),
)
VOLUME = _object(
    ["name"],
    name=TEXT,
    emptyDir=_object([], medium={"enum": ["", "Memory"]}, sizeLimit=TEXT),
    persistentVolumeClaim=_object(["claimName"], claimName=TEXT),
)
TOLERATION = _object(
    ["key", "operator"],
    key=TEXT,
    operator={"enum": ["Exists", "Equal"]},
    value=TEXT,
    effect={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
)
POD_TEMPLATE = _object(
    ["spec"],
    metadata=METADATA,
    spec=_object(
        ["containers"],
        containers=_list(CONTAINER),
        volumes=_list(VOLUME),
        tolerations=_list(TOLERATION),
        nodeSelector=TEXTS,
    ),
)
HEAD_GROUP = _object(
    ["template"],
    rayStartParams=TEXTS,
    template=POD_TEMPLATE,
    serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
)
WORKER_GROUP = _object(
    ["groupName", "minReplicas", "maxReplicas", "template"],
    groupName=TEXT,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    numOfHosts=COUNT,
    rayStartParams=TEXTS,
    template=POD_TEMPLATE,
)
CLUSTER_SPEC = _object(
    ["headGroupSpec"],
    rayVersion=TEXT,
    authOptions=_object([], mode={"enum": ["disabled", "token"]}, secretName=TEXT),
    enableInTreeAutoscaling={"type": "boolean"},
    headGroupSpec=HEAD_GROUP,
    workerGroupSpecs=_list(WORKER_GROUP),
)
JOB_SPEC = _object(
    ["entrypoint", "rayClusterSpec"],
    entrypoint=TEXT,
    runtimeEnvYAML=TEXT,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
    metadata=TEXTS,
    activeDeadlineSeconds=COUNT,
    backoffLimit=COUNT,
    shutdownAfterJobFinishes={"type": "boolean"},
    ttlSecondsAfterFinished=COUNT,
    rayClusterSpec=CLUSTER_SPEC,
)


def manifest_schema(kind: str) -> dict[str, object]:
    """JSON schema of a whole manifest: RayCluster or RayJob."""
    spec = {"RayCluster": CLUSTER_SPEC, "RayJob": JOB_SPEC}[kind]
    return _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "ray.io/v1"},
        kind={"const": kind},
        metadata=METADATA,
        spec=spec,
    )
