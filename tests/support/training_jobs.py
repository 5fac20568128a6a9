"""Training jobs for tests: objects, and a job on a virtual clock whose pods end as the test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from katib.engine.runtime.objects import Object
from katib.places.machine.jobs.kind import Address, PodStart
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.training_kind import Peers, spec_of
from katib.places.machine.pods.records import PodRecord
from tests.support.planned_jobs import PlannedJob


def replica(count: int | None = None, *containers: Mapping[str, Any], policy: str = "", **pod: Any) -> dict[str, Any]:
    """Return a replica spec."""
    found: dict[str, Any] = {"template": {"spec": {"containers": list(containers), **pod}}}
    if count is not None:
        found["replicas"] = count
    return {**found, "restartPolicy": policy} if policy else found


def training_job(
    kind: ReplicatedJob, *, name: str = "j", policy: Mapping[str, Any] | None = None, fields: Any = None, **roles: Any
) -> dict[str, Any]:
    """Return a job of a kind.

    Args:
        kind: The kind.
        name: Of the job.
        policy: Its runPolicy.
        fields: Further fields of the spec.
        roles: For each type the number of its replicas, or a replica spec.
    """
    program = {"name": kind.container, "image": "none", "command": ["x"]}
    replicas = {type_: replica(given, program) if isinstance(given, int) else given for type_, given in roles.items()}
    spec = {**({"runPolicy": dict(policy)} if policy else {}), kind.replicas_field: replicas, **(fields or {})}
    return {
        "apiVersion": kind.kind.api_version,
        "kind": kind.kind.kind,
        "metadata": {"name": name, "namespace": "n"},
        "spec": spec,
    }


class ClusterWiring:
    """Addresses as a cluster has them: the name that the operator tells and the port of the template."""

    def address(self, name: str, port: int, _port_name: str = "") -> Address:
        return Address(name, port)

    def host(self, name: str) -> str:
        return name


def variables_of(kind: ReplicatedJob, job: Object, role: str, index: int, wiring: Any = None) -> dict[str, str]:
    """Return the variables of a replica."""
    peers = Peers(job, spec_of(job, kind), kind.port, kind.container, wiring or ClusterWiring())
    return dict(kind.variables(peers, role, index))


class Training(PlannedJob):
    """A training job on a virtual clock, whose pods have the names of replicas."""

    def __init__(self, kind: ReplicatedJob, job: dict[str, Any]) -> None:
        self.kind = kind
        super().__init__(job, kind.plan, kind.container)

    @property
    def running(self) -> list[str]:
        """Names of the pods that run and were not asked to end."""
        return [p.name for p in self.unstopped]

    def name_of(self, start: PodStart) -> str:
        return f"{self.job['metadata']['name']}-{start.role}-{start.index}"

    def end(self, name: str, code: int = 0, *, in_use: bool = False, steps: bool = True, **changes: Any) -> None:
        """End a pod, and step."""
        self.finish(self.newest(name), code, address_in_use=in_use, last_output=changes.pop("output", ""), **changes)
        if steps:
            self.step()

    def restart(self, name: str, *, output: str = "", in_use: bool = False, code: int = 1) -> None:
        """Let a program fail and start again in its pod."""
        pod = self.newest(name)
        message = f'container "{self.kind.container}" of pod {name} exited with {code}'
        counts = {"restarts": pod.restarts + 1, "failures": pod.failures + 1}
        self.change(name, **counts, message=message, last_output=output, address_in_use=in_use)

    def newest(self, name: str) -> PodRecord:
        return next(p for p in reversed(self.pods) if p.name == name and not p.is_finished)

    def holding(self) -> dict[str, str]:
        """Return the reasons of what holds, by type."""
        return {c["type"]: c["reason"] for c in self.status["conditions"] if c["status"] == "True"}

    def counts(self, type_: str) -> dict[str, int]:
        """Return the counts of a replica type."""
        status = self.status["replicaStatuses"][type_]
        return {name: value for name, value in status.items() if name != "selector"}


def started(kind: ReplicatedJob, job: dict[str, Any]) -> Training:
    """Return a job whose replicas run."""
    training = Training(kind, job)
    training.step()
    return training


RUNTIMES = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine}
spec: {mlPolicy: {numNodes: NODES}, template: {spec: {replicatedJobs: [JOB]}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: shared}
spec: {mlPolicy: {numNodes: 2}, template: {spec: {replicatedJobs: [JOB]}}}
""".replace("JOB", "{name: node, template: {spec: {template: {spec: {containers: [{name: node}]}}}}}")
"""A file of two runtimes; NODES stands for the number of nodes of the first."""
