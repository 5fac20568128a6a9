"""A small kind of job with roles, as operators of training jobs have them: a master and workers that start together.

It succeeds with its master, fails with the first replica that fails, and starts a failed one again as often as
`spec.restarts` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from katib.engine.runtime.objects import Kind, Object
from katib.model.types import format_time
from katib.places.machine.findings import Part, mapping
from katib.places.machine.jobs.conditions import conditions_of, end_of, with_condition
from katib.places.machine.jobs.kind import NewPod, ObservedJob, Plan, PodLabels, PodStart, Wiring
from katib.places.machine.pods.records import PodPhase, PodRecord

GANG = Kind("kubeflow.org/v1", "PyTorchJob")
LABELS = "training.kubeflow.org"


class GangKind:
    """A kind of job for tests. Fits `katib.places.machine.jobs.kind.JobKind`."""

    kind = GANG

    def plan(self, observed: ObservedJob) -> Plan:
        """Decide what follows for a job."""
        spec, status = observed.job["spec"], dict(observed.job.get("status") or {})
        pods, now = observed.pods, observed.moment.wall
        unfinished = tuple(pod.name for pod in pods if not pod.is_finished)
        if end_of(status):
            return Plan(status, stop=unfinished)
        newest = {(pod.role, pod.index): pod for pod in pods}
        failed = [pod for pod in newest.values() if pod.phase is PodPhase.FAILED and not pod.stopping]
        again = [pod for pod in failed if not pod.cannot_start]
        restarts = len(pods) - len(newest) + len(again)
        master = newest.get(("Master", 0))
        is_lost = bool(failed) and (len(again) < len(failed) or restarts > spec.get("restarts", 0))
        is_done = master is not None and master.phase is PodPhase.SUCCEEDED
        if (is_lost or is_done) and unfinished:
            return Plan(status, stop=unfinished)
        if is_lost:
            type_, message = "Failed", failed[0].message
        elif is_done:
            type_, message = "Succeeded", ""
        else:
            is_running = any(pod.phase is PodPhase.RUNNING for pod in newest.values())
            type_, message = "Running" if is_running else "Created", ""
        reason = f"PyTorchJob{type_}"
        conditions = with_condition(conditions_of(status), type_, reason=reason, message=message, now=now)
        status = {"startTime": format_time(now), **status, "conditions": list(conditions)}
        starts = [_start(pod) for pod in again] if newest else _starts(spec)
        return Plan(status, start=() if end_of(status) else tuple(starts))

    def pod(self, job: Object, start: PodStart, wiring: Wiring) -> NewPod:
        """Describe a replica: it knows its master's address."""
        role, name = start.role.lower(), job["metadata"]["name"]
        template = job["spec"]["pytorchReplicaSpecs"][start.role]["template"]
        address = wiring.address(f"{name}-master-0", 23456)
        own = {f"{LABELS}/job-role": "master"} if start.role == "Master" else {}
        return NewPod(
            name=f"{name}-{role}-{start.index}",
            template=template,
            path=f"spec.pytorchReplicaSpecs.{start.role}.template",
            labels={f"{LABELS}/replica-type": role, f"{LABELS}/replica-index": str(start.index), **own},
            defaults={"MASTER_ADDR": address.host, "MASTER_PORT": str(address.port)},
            restarts_on_failure=template["spec"].get("restartPolicy") == "OnFailure",
        )

    def check(self, job: Part) -> None:
        """Find nothing."""

    def pod_labels(self, _job: Object) -> Sequence[PodLabels]:
        """Return nothing: too little is known."""
        return ()

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the template of each role."""
        specs = mapping(mapping(job.get("spec")).get("pytorchReplicaSpecs"))
        return {
            f"spec.pytorchReplicaSpecs.{role}.template": (mapping(mapping(spec).get("template")), _count(mapping(spec)))
            for role, spec in specs.items()
        }


def gang(
    master: str,
    worker: str,
    *,
    name: str = "j",
    workers: int = 2,
    container: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a job of a master and workers that run shell scripts; keywords go to its spec."""

    def role(script: str, count: int) -> dict[str, Any]:
        main = {"name": "main", "image": "none", "command": ["sh", "-c", script], **(container or {})}
        return {"replicas": count, "template": {"spec": {"containers": [main]}}}

    roles = {"Master": role(master, 1), "Worker": role(worker, workers)}
    metadata = {"name": name, "namespace": "ns"}
    kind = {"apiVersion": GANG.api_version, "kind": GANG.kind}
    return {**kind, "metadata": metadata, "spec": {**spec, "pytorchReplicaSpecs": roles}}


def _starts(spec: Mapping[str, Any]) -> list[PodStart]:
    roles = spec["pytorchReplicaSpecs"].items()
    return [PodStart(index, role) for role, each in roles for index in range(_count(each))]


def _start(pod: PodRecord) -> PodStart:
    return PodStart(pod.index, pod.role)


def _count(spec: Mapping[str, Any]) -> int:
    return int(spec.get("replicas") or 1)
