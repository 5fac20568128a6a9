"""Labels of the pods of training jobs, as the operators set them and others look for them."""

from __future__ import annotations

OPERATOR_NAME = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
MASTER = "master"


def role_labels(kind: str, job: str, role: str) -> dict[str, str]:
    """Return the labels that all pods of a role have."""
    return {OPERATOR_NAME: f"{kind.lower()}-controller", JOB_NAME: job, REPLICA_TYPE: role}


def selector(labels: dict[str, str]) -> str:
    """Return labels as text that selects the pods which have them."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
