"""Which pods and which containers metrics are collected from."""

from __future__ import annotations

from typing import Any

from katib.api.types import Trial
from katib.runtime.objects import Object


def is_primary(pod: Object, trial: Trial) -> bool:
    """Return whether the pod carries all primary pod labels of the trial; without any, every pod does."""
    labels = pod.get("metadata", {}).get("labels") or {}
    return trial.spec.primary_pod_labels.items() <= labels.items()


def primary_index(pod: Object, trial: Trial) -> int | None:
    """Return the position of the primary container among the pod's containers; None when it is not there."""
    names = [container.get("name") for container in containers(pod)]
    name = trial.spec.primary_container_name
    return names.index(name) if name in names else None


def containers(pod: Object) -> list[dict[str, Any]]:
    """Return the containers of a pod, without init containers."""
    return list(pod.get("spec", {}).get("containers") or ())


def missing_primary_container(pod: Object, trial: Trial) -> str:
    """Return one sentence on a primary pod without the primary container; empty when nothing is wrong.

    Such a pod runs without collector. That is right for the side steps of a pipeline and wrong for a misspelt name,
    and only the user can distinguish them.
    """
    if not is_primary(pod, trial) or primary_index(pod, trial) is not None:
        return ""
    found = ", ".join(str(container.get("name")) for container in containers(pod))
    return (
        f"no metrics are collected from a pod of trial {trial.name}: it has no container "
        f"{trial.spec.primary_container_name!r}, only {found}; if metrics come from it, fix "
        "spec.trialTemplate.primaryContainerName, else narrow primaryPodLabels"
    )
