"""The common part of all kinds of training jobs. Fits `katib.places.machine.jobs.kind.JobKind`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from katib.engine.runtime.objects import Object
from katib.places.machine.findings import integer, is_given, mapping, mapping_at
from katib.places.machine.jobs.batch.spec import INDEXED, UNLIMITED
from katib.places.machine.jobs.gang.plan import plan_gang
from katib.places.machine.jobs.gang.spec import Gang, GangGroup, Reasons, ReplicaFailures
from katib.places.machine.jobs.kind import (
    NewPod,
    ObservedJob,
    Plan,
    PodLabels,
    PodStart,
    Wiring,
    names_in_domain,
    template_labels,
)
from katib.places.machine.jobs.replicated.rules import check_peer_names, check_pod_name, check_training_job
from katib.places.machine.jobs.replicated.spec import TrainingSpec, replicas_by_type
from katib.places.machine.jobs.replicated.status import TrainingStatus
from katib.places.machine.jobs.replicated.training_kind import (
    JOB_ROLE,
    OPERATOR,
    REPLICA_INDEX,
    REPLICA_TYPE,
    Peers,
    TrainingKind,
    before_the_run,
    number,
    spec_of,
)

RENEWALS: Final = 2
"""How often a job gets new ports. Ports that are taken again and again are no accident."""


class ReplicatedJob(TrainingKind):
    """A kind of training job that runs on this machine: its own part, and the common one."""

    check = check_training_job
    check_peer_names = check_peer_names

    def plan(self, observed: ObservedJob) -> Plan:
        """Plan a training job: it is a gang whose pods share one fate."""
        job, spec = observed.job, spec_of(observed.job, self)
        name = str(job["metadata"]["name"])
        return plan_gang(self.gang(name, spec), observed, lambda now: TrainingStatus(self, name, spec, now).status())

    def gang(self, name: str, spec: TrainingSpec) -> Gang:
        kind, idle = self.kind.kind, self.idle(spec)
        policy: Mapping[str, Any] = spec.fields.get("runPolicy") or {}
        return Gang(
            groups=tuple(self._group(role, spec) for role in spec.roles if role not in idle),
            success=self.success(spec)._replace(late_seconds=self.late_seconds),
            failures=ReplicaFailures(spec.backoff_limit, self.container),
            reasons=Reasons(f"{kind}Succeeded", f"{kind}Failed", f"{kind}Failed", f"{kind}TooManyRestarts"),
            success_message=f"{kind} {name} is successfully completed",
            suspend=policy.get("suspend") is True,
            deadline_seconds=number(policy.get("activeDeadlineSeconds")),
            ttl_seconds_after_finished=number(policy.get("ttlSecondsAfterFinished")),
            managed_elsewhere=policy.get("managedBy", OPERATOR) != OPERATOR,
            renewals=RENEWALS,
            listeners=self.listeners(spec),
        )

    def _group(self, role: str, spec: TrainingSpec) -> GangGroup:
        count, can_be_replaced = spec.count(role), spec.roles[role].restart_policy == "ExitCode"
        job = {
            "completionMode": INDEXED,
            "completions": count,
            "parallelism": count,
            "backoffLimit": UNLIMITED if can_be_replaced else 0,
        }
        return GangGroup(role, job, (role,), after=self.waits_for(spec, role), is_endless=role in self.endless)

    def pod(self, job: Object, start: PodStart, wiring: Wiring) -> NewPod:
        """Describe the pod of a replica.

        Raises:
            InvalidError: The name of the job makes no name for this pod.
        """
        role, index = start.role, start.index or 0
        spec = spec_of(job, self)
        replica, name = spec.roles[role], self.pod_name(job, role, index)
        check_pod_name(job["metadata"]["name"], name, self.kind.kind)
        template = self.as_run({r: (s.template, s.count) for r, s in spec.roles.items()})[role][0]
        is_primary = (role, index) in self.primary(spec)
        labels = self.labels(job["metadata"]["name"], role, index, is_primary=is_primary)
        peers = Peers(job, spec, self.port, self.container, wiring)
        variables = dict(self.variables(peers, role, index))
        pod = NewPod(
            name=name,
            template=template,
            path=f"spec.{self.replicas_field}.{replica.key}.template",
            labels={**self._older_labels(labels, template), **labels},
            aliases=names_in_domain(name, job["metadata"]["namespace"]),
            variables=dict.fromkeys(self.receivers(template), variables),
            restarts_on_failure=spec.restarts_in_place(role),
        )
        return self.complete(pod, peers, role, index)

    def variables_with_addresses(self, _job: Object) -> str:
        """Return which variables hold the addresses of peers; empty when none do."""
        return self.address_variables if self.gives_ports else ""

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        """Return the pod template of each type of replicas; all replicas run together."""
        given = mapping_at(job, f"spec.{self.replicas_field}")
        places, roles = {}, {}
        for type_, (key, replica) in replicas_by_type(given, self.types).items():
            if "template" in mapping(replica):
                role, count = type_.lower(), integer(replica.get("replicas"))
                count = self.default_replicas(role) if count is None else max(count, 0)
                places[role] = f"spec.{self.replicas_field}.{key}.template"
                roles[role] = (mapping(replica["template"]), count)
        return {places[role]: pods for role, pods in self.as_run(roles).items()}

    def pod_labels(self, job: Object) -> Sequence[PodLabels]:
        """Return the labels of its replicas, of each type the first and all others; of those that run here."""
        given = mapping_at(job, f"spec.{self.replicas_field}")
        known = replicas_by_type(given, self.types)
        if len(known) < len(given):
            return ()
        replicas = {type_.lower(): mapping(replica) for type_, (_, replica) in known.items()}
        roles = {role: (mapping(r.get("template")), self._count_up_to_two(role, r)) for role, r in replicas.items()}
        spec = {self.replicas_field: {role: {"replicas": count} for role, (_, count) in roles.items()}}
        primary, found = self.primary(spec_of({"spec": spec}, self)), []
        for role, (template, count) in self.as_run(roles).items():
            for index in range(count):
                today = self.labels("", role, index, is_primary=(role, index) in primary)
                whole = integer(replicas[role].get("replicas"))
                indexes = range(1) if index == 0 else None if whole is None else range(1, whole)
                later = before_the_run({**self._older_labels(today, template), **today}, indexes)
                chosen = {name: later[name] for name in (JOB_ROLE, REPLICA_TYPE, REPLICA_INDEX) if name in later}
                found.append(PodLabels({**chosen, **template_labels(template)}, later))
        return found

    def _count_up_to_two(self, role: str, replica: Mapping[str, Any]) -> int:
        """Return how many replicas to look at: the second stands for all further ones."""
        count = replica.get("replicas")
        if not is_given(count) and count != 0:
            return min(self.default_replicas(role), 2)
        number = integer(count)
        return 2 if number is None else min(max(number, 0), 2)

    def _older_labels(self, labels: Mapping[str, str], template: Mapping[str, Any]) -> dict[str, str]:
        """Return the labels of earlier operators that the author of a template does not use for something else."""
        own = template_labels(template)
        return {name: value for name, value in self.older_labels(labels).items() if name not in own}
