"""The kinds of objects that serve an experiment, and the names and labels by which they are found."""

from __future__ import annotations

from katib.runtime.objects import Kind

DEPLOYMENT = Kind("apps/v1", "Deployment")
SERVICE = Kind("v1", "Service")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding")
VOLUME_CLAIM = Kind("v1", "PersistentVolumeClaim")
VOLUME = Kind("v1", "PersistentVolume")
POD = Kind("v1", "Pod")

DEPLOYMENT_LABEL = "katib.kubeflow.org/deployment"
EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
SUGGESTION_LABEL = "katib.kubeflow.org/suggestion"

SERVICE_SELECTORS = {DEPLOYMENT: SUGGESTION_LABEL, SERVICE: SUGGESTION_LABEL}
"""Label selectors of the kinds that are watched, so that a store can leave foreign objects out of watches and lists."""

SUGGESTION_PORT = 6789
EARLY_STOPPING_PORT = 6788


def object_name(suggestion: str, algorithm: str) -> str:
    """Return the name of all objects that serve a suggestion."""
    return f"{suggestion}-{algorithm}"
