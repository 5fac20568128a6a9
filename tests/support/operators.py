"""Stand-ins for the operators of kinds that are not part of Kubernetes: they make pods, and write the status.

They differ from the real ones in everything that a trial does not look at: no services, no environment, no restarts,
no clean-up. A job succeeds with its first pod, and fails with it. One that is suspended has no pods. As Kubeflow
Trainer does, they make what is missing for as long as a job is there and has not ended, also while it is being deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from katib.model.job_kinds import suspended_at
from tests.support.pod_cluster import Json, PodCluster, Room, is_true, wait_for
from tests.support.server_kinds import definition_of
from tests.support.stores import owned_by

GRACE_SECONDS = 5
"""Of the pods of a TrainJob."""

Children = Callable[[Json], list[Json]]
"""Returns the objects that a job is made of; their names are the same each time."""


class Operator:
    """Works on the objects of one kind in one namespace while it is entered.

    Args:
        room: The namespace.
        plural: What the kind is called in paths, with its group: `pytorchjobs.kubeflow.org`.
        children: What an object is made of.
        watched: Kind of the first child, whose end is the object's: `pods` or something with conditions.
        succeeded: Type of the condition that the object gets when its child succeeded.
    """

    def __init__(self, room: Room, plural: str, children: Children, *, watched: str = "pods", succeeded: str) -> None:
        self._room = room
        self._plural = plural
        self._children = children
        self._watched = watched
        self._succeeded = succeeded
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=plural, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(0.5):
            for obj in self._room.cluster.items(self._plural, self._room.namespace):
                with suppress(AssertionError):  # it was deleted meanwhile
                    self._step(obj)

    def _step(self, obj: Json) -> None:
        children = self._children(obj)
        first = self._room.cluster.find(self._watched, children[0]["metadata"]["name"], self._room.namespace)
        if suspended_at(obj):
            self._suspend(obj, children)
            return
        if not _has_ended(obj):
            owners = [{**owner, "controller": True, "blockOwnerDeletion": True} for owner in owned_by(obj)]
            for child in children:
                if self._room.cluster.find(self._watched, child["metadata"]["name"], self._room.namespace) is None:
                    self._room.apply({**child, "metadata": {**child["metadata"], "ownerReferences": owners}})
        if first is not None and "deletionTimestamp" in first["metadata"]:
            return
        if is_true(obj, "Suspended"):
            self._say(obj, "Running", "JobRunning", "it continues")
        elif first is not None and not _has_ended(obj) and (end := _end_of(first)):
            kind = self._succeeded if end == "Succeeded" else "Failed"
            self._say(obj, kind, f"Pod{end}", f"the pod has {end.lower()}")

    def _suspend(self, obj: Json, children: list[Json]) -> None:
        if not is_true(obj, "Suspended"):
            self._say(obj, "Suspended", "JobSuspended", "it is suspended")
        for name in (child["metadata"]["name"] for child in children):
            if self._room.cluster.find(self._watched, name, self._room.namespace):
                where = f"--namespace={self._room.namespace}"
                self._room.cluster.run("delete", self._watched, name, where, "--ignore-not-found", "--wait=false")

    def _say(self, obj: Json, type_: str, reason: str, message: str) -> None:
        condition = {"type": type_, "status": "True", "reason": reason, "message": message}
        self._room.cluster.set_status(self._plural.split(".", maxsplit=1)[0], obj, {"conditions": [condition]})


def _has_ended(obj: Json) -> bool:
    return any(is_true(obj, end) for end in ("Complete", "Completed", "Succeeded", "Failed"))


def _end_of(child: Json) -> str:
    status = child.get("status", {})
    if child["kind"] == "Pod":
        phase: str = status.get("phase", "")
        return phase if phase in {"Succeeded", "Failed"} else ""
    ends = {"Complete": "Succeeded", "Completed": "Succeeded", "Failed": "Failed"}
    return next((ends[c["type"]] for c in status.get("conditions", []) if c["type"] in ends), "")


def install_kind(cluster: PodCluster, api_version: str, kind: str) -> str:
    """Install a kind that takes any content; return its name in paths with its group."""
    definition = definition_of(api_version, kind)
    group, name = definition["spec"]["group"], definition["metadata"]["name"]
    cluster.apply(definition)
    wait_for(lambda: name in cluster.run("api-resources", f"--api-group={group}", "-o", "name"), f"{kind}")
    return str(name)


def remove_kind(cluster: PodCluster, plural: str) -> None:
    """Take a kind away with all its objects."""
    cluster.run("delete", "crd", plural, "--ignore-not-found", "--timeout=60s", check=False)


def pod(name: str, template: Json, labels: dict[str, str]) -> Json:
    """Return a pod of a template."""
    metadata = template.get("metadata", {})
    spec: dict[str, Any] = {"restartPolicy": "Never", **template["spec"]}
    found = {**metadata, "name": name, "labels": {**metadata.get("labels", {}), **labels}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": found, "spec": spec}


def training_pods(job: Json) -> list[Json]:
    """Return the pods of a PyTorchJob or an XGBoostJob, the master first, as the training operator labels them."""
    pods = []
    specs = next(specs for field, specs in job["spec"].items() if field.endswith("ReplicaSpecs"))
    for role, replicas in sorted(specs.items()):  # Master before Worker
        for index in range(replicas.get("replicas", 1)):
            name = f"{job['metadata']['name']}-{role.lower()}-{index}"
            labels = {
                "training.kubeflow.org/job-name": job["metadata"]["name"],
                "training.kubeflow.org/operator-name": f"{job['kind'].lower()}-controller",
                "training.kubeflow.org/replica-index": str(index),
                "training.kubeflow.org/replica-type": role.lower(),
                **({"training.kubeflow.org/job-role": "master"} if role == "Master" else {}),
            }
            pods.append(pod(name, replicas["template"], labels))
    return pods


def job_set(train_job: Json) -> list[Json]:
    """Return the JobSet of a TrainJob: one replicated job of the name `node`."""
    trainer = train_job["spec"]["trainer"]
    container = {
        "name": "node",
        "image": trainer["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": trainer["command"],
        "env": trainer.get("env", []),
    }
    spec = {"replicatedJobs": [{"name": "node", "containers": [container]}]}
    name = train_job["metadata"]["name"]
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}]


def node_job(job_set: Json) -> list[Json]:
    """Return the Job of a JobSet, whose pods the cluster's own controller makes."""
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": "0"}
    containers = job_set["spec"]["replicatedJobs"][0]["containers"]
    pod_spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE_SECONDS, "containers": containers}
    spec = {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod_spec}}
    name = f"{job_set['metadata']['name']}-node-0"
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}]
