"""The spec of a training job with the operator's defaults, read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from katib.runtime.objects import Object

if TYPE_CHECKING:
    from katib.local.jobs.replicated.training_kind import TrainingKind

OPERATOR = "kubeflow.org/training-operator"


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """The replicas of one type.

    Attributes:
        type: As the API writes it, as `Worker`.
        key: As the user wrote it; where the replicas stand in the spec.
        count: How many there are.
        restart_policy: Never, OnFailure or ExitCode.
        template: Their pod template.
    """

    type: str
    key: str
    count: int
    restart_policy: str
    template: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """What a training job asks for.

    Attributes:
        roles: Replicas by role (the type in lower case), in the order of the kind.
        backoff_limit: None: restarts are not limited by the user.
        fields: The spec as written, for what is a kind's own.
    """

    roles: Mapping[str, ReplicaSpec]
    backoff_limit: int | None
    active_deadline_seconds: int | None
    ttl_seconds_after_finished: int | None
    suspend: bool
    managed_elsewhere: bool
    fields: Mapping[str, Any]

    @property
    def total(self) -> int:
        """Number of all replicas."""
        return sum(replica.count for replica in self.roles.values())

    @property
    def wanted(self) -> tuple[tuple[str, int], ...]:
        """Role and index of every replica, in order."""
        return tuple((role, i) for role, replica in self.roles.items() for i in range(replica.count))

    def count(self, role: str) -> int:
        """Return the number of replicas of a role, 0 when the job has none."""
        return self.roles[role].count if role in self.roles else 0

    def restarts_in_place(self, role: str) -> bool:
        """Return whether a program that failed is started again in its pod; a limit of 0 allows no such try."""
        return self.roles[role].restart_policy == "OnFailure" and self.backoff_limit != 0

    @classmethod
    def of(cls, job: Object, kind: TrainingKind) -> TrainingSpec:
        """Read the spec of a job that passed admission."""
        spec: Mapping[str, Any] = job.get("spec") or {}
        policy: Mapping[str, Any] = spec.get("runPolicy") or {}
        given = replicas_by_type(spec.get(kind.replicas_field) or {}, kind.types)
        roles = {type_.lower(): _replica_spec(type_, *given[type_], kind) for type_ in kind.types if type_ in given}
        return cls(
            roles=roles,
            backoff_limit=_number(policy.get("backoffLimit")),
            active_deadline_seconds=_number(policy.get("activeDeadlineSeconds")),
            ttl_seconds_after_finished=_number(policy.get("ttlSecondsAfterFinished")),
            suspend=policy.get("suspend") is True,
            managed_elsewhere=policy.get("managedBy", OPERATOR) != OPERATOR,
            fields=spec,
        )


def replicas_by_type(given: Mapping[str, Any], types: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return for each known type how the user wrote it and what stands there; letter case does not count."""
    by_lower = {type_.lower(): type_ for type_ in types}
    return {by_lower[str(key).lower()]: (key, value) for key, value in given.items() if str(key).lower() in by_lower}


def _replica_spec(type_: str, key: str, replica: Mapping[str, Any], kind: TrainingKind) -> ReplicaSpec:
    count = _number(replica.get("replicas"))
    return ReplicaSpec(
        type=type_,
        key=key,
        count=kind.default_replicas(type_.lower()) if count is None else count,
        restart_policy=replica.get("restartPolicy") or kind.restart_policy,
        template=replica.get("template") or {},
    )


def _number(value: object) -> int | None:
    """Return a number; a value that a placeholder stood for may be text."""
    return None if value is None else int(str(value))
