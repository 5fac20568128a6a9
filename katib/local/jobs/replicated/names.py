"""Labels of the pods of training jobs, as the operators set them and others look for them."""

from __future__ import annotations

from collections.abc import Mapping

from katib.local.jobs.kind import LabelValues

_GROUP = "training.kubeflow.org"
OPERATOR_NAME = f"{_GROUP}/operator-name"
JOB_NAME = f"{_GROUP}/job-name"
REPLICA_TYPE = f"{_GROUP}/replica-type"
REPLICA_INDEX = f"{_GROUP}/replica-index"
JOB_ROLE = f"{_GROUP}/job-role"
MASTER = "master"


def role_labels(kind: str, job: str, role: str) -> dict[str, str]:
    """Return the labels that all pods of a role have."""
    return {OPERATOR_NAME: f"{kind.lower()}-controller", JOB_NAME: job, REPLICA_TYPE: role}


def older_labels(prefix: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by which operators before these ones marked the same pods.

    The training operator called them the same without a group until 1.7, and the operators that it took the place of
    put the framework before them.

    Args:
        prefix: The framework, as `tf`; empty where it had no operator of its own.
        labels: Those of today.
    """
    same = (JOB_NAME, REPLICA_TYPE, REPLICA_INDEX, JOB_ROLE)
    plain = {name.removeprefix(f"{_GROUP}/"): labels[name] for name in same if name in labels}
    found = {"group-name": "kubeflow.org", **plain}
    if prefix:
        own = {f"{prefix}-{name}": value for name, value in plain.items()}
        job = labels[JOB_NAME]
        found |= {
            "controller-name": f"{prefix}-operator",
            **own,
            "group_name": "kubeflow.org",
            f"{prefix}_job_name": job,
        }
    return found


def before_the_run(labels: Mapping[str, str], indexes: range | None) -> dict[str, LabelValues]:
    """Return the labels of pods that differ in their index, without what only a run knows: the name of its job.

    Args:
        labels: Those of one of them.
        indexes: Theirs; None where that is not known.
    """
    values: dict[str, LabelValues] = dict(labels)
    for name in labels:
        if name.endswith("replica-index"):
            values[name] = indexes
        elif name.endswith(("job-name", "job_name")):
            values[name] = None
    return values
