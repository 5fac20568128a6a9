"""The structure of JobSets, TrainJobs and training runtimes, and the strict comparison of an object with it. Pure.

Text with a placeholder fits anywhere, since its value is not known yet, and null counts as not given. The batch Jobs
and pods inside of them have the schema of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from katib.api.wording import closest, path_to, shown
from katib.local.findings import Findings
from katib.templates import has_placeholder
from katib.templates.job_schema import check_job_schema

Structure = Mapping[str, Any]
"""Fields of a part: `text`, `integer`, `boolean`, `texts`, `map`, `any`, `env`, a part, or a list with a part."""

_WORDS: Final = {
    "text": (str, "text", "write it in quotes"),
    "integer": (int, "a whole number", "give a whole number"),
    "boolean": (bool, "true or false", "give true or false"),
    "map": (Mapping, "a mapping", "give a mapping"),
    "texts": (list, "a list", "give a list"),
}

_METADATA: Final[Structure] = {"labels": "map", "annotations": "map"}
_TARGETS: Final[Structure] = {"name": "text"}

JOB_SET_SPEC: Final[Structure] = {
    "replicatedJobs": [
        {
            "name": "text",
            "groupName": "text",
            "replicas": "integer",
            "template": "any",
            "dependsOn": [{"name": "text", "status": "text"}],
        }
    ],
    "network": {"enableDNSHostnames": "boolean", "subdomain": "text", "publishNotReadyAddresses": "boolean"},
    "successPolicy": {"operator": "text", "targetReplicatedJobs": "texts"},
    "failurePolicy": {
        "maxRestarts": "integer",
        "restartStrategy": "text",
        "rules": [
            {
                "name": "text",
                "action": "text",
                "onJobFailureReasons": "texts",
                "onJobFailureMessagePatterns": "texts",
                "targetReplicatedJobs": "texts",
            }
        ],
    },
    "startupPolicy": {"startupPolicyOrder": "text"},
    "suspend": "boolean",
    "coordinator": {"replicatedJob": "text", "jobIndex": "integer", "podIndex": "integer"},
    "managedBy": "text",
    "ttlSecondsAfterFinished": "integer",
    "volumeClaimPolicies": "any",
}

_JOB_SET_TEMPLATE: Final[Structure] = {"metadata": _METADATA, "spec": JOB_SET_SPEC}
_INITIALIZER: Final[Structure] = {"storageUri": "text", "env": "env", "secretRef": {"name": "text"}}
_POD_PARTS: Final[Structure] = {
    "serviceAccountName": "text",
    "nodeSelector": "map",
    "affinity": "any",
    "tolerations": "any",
    "volumes": "any",
    "initContainers": "any",
    "containers": "any",
    "schedulingGates": "any",
    "imagePullSecrets": "any",
    "securityContext": "any",
    "priorityClassName": "text",
}

TRAIN_JOB_SPEC: Final[Structure] = {
    "runtimeRef": {"name": "text", "apiGroup": "text", "kind": "text"},
    "initializer": {"dataset": _INITIALIZER, "model": _INITIALIZER},
    "trainer": {
        "image": "text",
        "command": "texts",
        "args": "texts",
        "env": "env",
        "numNodes": "integer",
        "numProcPerNode": "any",
        "resourcesPerNode": "any",
    },
    "labels": "map",
    "annotations": "map",
    "runtimePatches": [
        {
            "manager": "text",
            "time": "text",
            "trainingRuntimeSpec": {
                "template": {
                    "metadata": _METADATA,
                    "spec": {
                        "replicatedJobs": [
                            {
                                "name": "text",
                                "template": {
                                    "metadata": _METADATA,
                                    "spec": {"template": {"metadata": _METADATA, "spec": _POD_PARTS}},
                                },
                            }
                        ]
                    },
                }
            },
        }
    ],
    "podTemplateOverrides": [
        {"targetJobs": [_TARGETS], "metadata": _METADATA, "spec": _POD_PARTS, "manager": "text"},
    ],
    "podSpecOverrides": [{"targetJobs": [_TARGETS], **_POD_PARTS}],
    "suspend": "boolean",
    "managedBy": "text",
    "activeDeadlineSeconds": "integer",
}

RUNTIME_SPEC: Final[Structure] = {
    "mlPolicy": {
        "numNodes": "integer",
        "torch": {"numProcPerNode": "any", "elasticPolicy": "any", "envInjection": "any"},
        "mpi": {
            "numProcPerNode": "integer",
            "mpiImplementation": "text",
            "sshAuthMountPath": "text",
            "runLauncherAsNode": "boolean",
        },
        "jax": {},
        "xgboost": {},
        "flux": "any",
    },
    "podGroupPolicy": "any",
    "template": _JOB_SET_TEMPLATE,
}


RUNTIME: Final[Structure] = {
    "apiVersion": "text",
    "kind": "text",
    "metadata": "any",
    "spec": RUNTIME_SPEC,
    "status": "any",
}


def check_structure(value: object, structure: Any, path: str, findings: Findings, of_what: str) -> None:
    """Find unknown fields and values of the wrong type.

    Args:
        value: What is there.
        structure: What it should be.
        path: Where it stands.
        findings: Takes what is found.
        of_what: What to call the object that it is a part of.
    """
    if value is None or structure == "any" or has_placeholder(value):
        return
    if isinstance(structure, Mapping):
        _check_part(value, structure, path, findings, of_what)
    elif isinstance(structure, list):
        _check_parts(value, structure[0], path, findings, of_what)
    elif structure == "env":
        _check_env(value, path, findings)
    elif _has_type(value, structure, path, findings) and structure == "texts":
        for i, item in enumerate(value if isinstance(value, list) else ()):
            if not has_placeholder(item):
                _has_type(item, "text", f"{path}[{i}]", findings)


def _check_parts(value: object, structure: Any, path: str, findings: Findings, of_what: str) -> None:
    if not _has_type(value, "texts", path, findings) or not isinstance(value, list):
        return
    for i, item in enumerate(value):
        if item is None:
            findings.error(f"{path}[{i}]", "null is not a mapping", "give a mapping", "job-field-type")
        check_structure(item, structure, f"{path}[{i}]", findings, of_what)


def _check_part(value: object, structure: Structure, path: str, findings: Findings, of_what: str) -> None:
    if not _has_type(value, "map", path, findings) or not isinstance(value, Mapping):
        return
    for key, child in value.items():
        place = path_to(path, str(key))
        if key in structure:
            check_structure(child, structure[key], place, findings, of_what)
        elif not has_placeholder(key):
            close = closest(str(key), structure)
            remedy = f"did you mean {close}" if close else f"remove it: a {of_what} has no such field there"
            findings.error(place, "unknown field", remedy, "job-field-unknown")


def _has_type(value: object, kind: str, path: str, findings: Findings) -> bool:
    type_, wanted, remedy = _WORDS[kind]
    if isinstance(value, type_) and not (kind == "integer" and isinstance(value, bool)):
        return True
    findings.error(path, f"{shown(value)} is not {wanted}", remedy, "job-field-type")
    return False


def _check_env(value: object, path: str, findings: Findings) -> None:
    """Check a list of variables as that of a container."""
    container = {"name": "node", "env": value}
    check_job_part({"template": {"spec": {"containers": [container]}}}, f"{_CONTAINER}.env", path, findings)


_CONTAINER: Final = "job.spec.template.spec.containers[0]"


def check_resources(value: object, path: str, findings: Findings) -> None:
    """Check resources as those of a container."""
    container = {"name": "node", "resources": value}
    check_job_part({"template": {"spec": {"containers": [container]}}}, f"{_CONTAINER}.resources", path, findings)


def check_job_template(template: object, path: str, findings: Findings) -> None:
    """Check the template of batch Jobs, but for the pod template in it."""
    if template is None or not _has_type(template, "map", path, findings) or not isinstance(template, Mapping):
        return
    for key in template:
        if key not in {"metadata", "spec"}:
            findings.error(
                path_to(path, str(key)), "unknown field", "give metadata and spec, or remove it", "job-field-unknown"
            )
    spec = template.get("spec")
    if spec is None or not _has_type(spec, "map", f"{path}.spec", findings) or not isinstance(spec, Mapping):
        return
    pod = {"template": {"spec": {"containers": [{"name": "node"}]}}}
    check_job_part({**spec, **pod}, "job.spec", f"{path}.spec", findings)


def check_job_part(spec: Mapping[str, Any], place: str, path: str, findings: Findings) -> None:
    """Check the spec of a Job, and take what is found at a place in it as if it stood at a path."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec}
    for error in check_job_schema(job, "job"):
        if error.path.startswith(place):
            findings.error(path + error.path.removeprefix(place), error.cause, error.remedy, error.origin)
