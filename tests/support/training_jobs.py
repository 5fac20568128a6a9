"""Training jobs for tests: objects, and a job on a virtual clock whose pods end as the test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from katib.local.jobs.conditions import end_of
from katib.local.jobs.kind import Address, Moment, Observed, Plan
from katib.local.jobs.replicated.plan import plan
from katib.local.jobs.replicated.spec import TrainingSpec
from katib.local.jobs.replicated.training_kind import Peers, TrainingKind
from katib.local.pods.records import ContainerExit, Delays, Phase, PodRecord
from katib.runtime.objects import Object

START = datetime(2024, 1, 1, tzinfo=UTC)


def replica(count: int | None = None, *containers: Mapping[str, Any], policy: str = "", **pod: Any) -> dict[str, Any]:
    """Return a replica spec."""
    found: dict[str, Any] = {"template": {"spec": {"containers": list(containers), **pod}}}
    if count is not None:
        found["replicas"] = count
    return {**found, "restartPolicy": policy} if policy else found


def training_job(
    kind: TrainingKind, *, name: str = "j", policy: Mapping[str, Any] | None = None, fields: Any = None, **roles: Any
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


def variables_of(kind: TrainingKind, job: Object, role: str, index: int, wiring: Any = None) -> dict[str, str]:
    """Return the variables of a replica."""
    peers = Peers(job, TrainingSpec.of(job, kind), kind.port, kind.container, wiring or ClusterWiring())
    return dict(kind.variables(peers, role, index))


class Training:
    """A training job on a virtual clock: starts what the plan says, stops it at once, ends pods as the test says."""

    def __init__(self, kind: TrainingKind, job: dict[str, Any]) -> None:
        self.kind = kind
        self.job = job
        self.status: dict[str, Any] = {}
        self.pods: list[PodRecord] = []
        self.rewired: list[int] = []
        self.emptied: list[int] = []
        self.now = START
        self.polite = True
        self.deleted = False
        self._started_at: datetime | None = None
        self._memory: Mapping[str, Any] = {}

    @property
    def running(self) -> list[str]:
        """Names of the pods that run and were not asked to end."""
        return [p.name for p in self.pods if not p.is_finished and not p.stopping]

    @property
    def is_over(self) -> bool:
        return end_of(self.status) is not None

    def step(self) -> Plan:
        """Plan and act until nothing changes."""
        while True:
            decision = self.plan()
            self.status, self._started_at = decision.status, decision.started_at
            self._memory = decision.memory
            self.deleted = decision.delete
            self.emptied += [len(self.pods)] * decision.restarts_log
            if decision.new_addresses:
                self.rewired.append(len(self.pods))
            for start in decision.start:
                name = f"{self.job['metadata']['name']}-{start.role}-{start.index}"
                self.pods.append(PodRecord(name, start.index, Phase.RUNNING, role=start.role))
            for name in decision.stop:
                self._change(name, stopping=True)
                if self.polite:
                    self._change(name, phase=Phase.FAILED, finished_at=self.now)
            is_due = decision.wake_at is not None and decision.wake_at <= self.now
            if not decision.start and not decision.stop and not is_due:
                return decision

    def plan(self) -> Plan:
        job = {**self.job, "status": self.status}
        moment = Moment(self.now, self.now)
        observed = Observed(job, tuple(self.pods), moment, Delays(), started_at=self._started_at, memory=self._memory)
        return plan(self.kind, observed)

    def end(
        self,
        name: str,
        code: int = 0,
        *,
        output: str = "",
        in_use: bool = False,
        lost: bool = False,
        steps: bool = True,
    ) -> None:
        """End a pod, and step."""
        pod = self.newest(name)
        exit_ = ContainerExit(self.kind.container, code, f"exited with {code}", lost)
        self._change(
            pod.name,
            phase=Phase.SUCCEEDED if code == 0 else Phase.FAILED,
            finished_at=self.now,
            exits=(exit_,),
            message=f'container "{self.kind.container}" of pod {pod.name} {exit_.text}' if code else "",
            last_output=output,
            address_in_use=in_use,
        )
        if steps:
            self.step()

    def restart(self, name: str, *, output: str = "", in_use: bool = False, code: int = 1) -> None:
        """Let a program fail and start again in its pod."""
        pod = self.newest(name)
        message = f'container "{self.kind.container}" of pod {name} exited with {code}'
        self._change(
            name,
            restarts=pod.restarts + 1,
            failures=pod.failures + 1,
            message=message,
            last_output=output,
            address_in_use=in_use,
        )
        self.step()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.step()

    def change(self, name: str, **changes: Any) -> None:
        self._change(name, **changes)
        self.step()

    def newest(self, name: str) -> PodRecord:
        return next(p for p in reversed(self.pods) if p.name == name and not p.is_finished)

    def holding(self) -> dict[str, str]:
        """Return the reasons of what holds, by type."""
        return {c["type"]: c["reason"] for c in self.status["conditions"] if c["status"] == "True"}

    def message(self, type_: str) -> str:
        return str(next(c["message"] for c in self.status["conditions"] if c["type"] == type_))

    def counts(self, type_: str) -> dict[str, int]:
        """Return the counts of a replica type."""
        status = self.status["replicaStatuses"][type_]
        return {name: value for name, value in status.items() if name != "selector"}

    def _change(self, name: str, **changes: Any) -> None:
        number = max(i for i, p in enumerate(self.pods) if p.name == name and not p.is_finished)
        self.pods[number] = replace(self.pods[number], **changes)


def started(kind: TrainingKind, job: dict[str, Any]) -> Training:
    """Return a job whose replicas run."""
    training = Training(kind, job)
    training.step()
    return training
