"""The spec of a training job with the defaults of its operator. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """The replicas of one type.

    Attributes:
        type: As the API writes it, as `Worker`.
        key: As the user wrote it; the key of the replicas in the spec.
        restart_policy: Never, OnFailure or ExitCode.
    """

    type: str
    key: str
    count: int
    restart_policy: str
    template: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """The spec of a training job.

    Attributes:
        roles: Replicas by role (the type in lower case), in the order of the kind.
        backoff_limit: None: restarts are not limited by the user.
        fields: The spec as written, for a kind's own fields.
    """

    roles: Mapping[str, ReplicaSpec]
    backoff_limit: int | None
    fields: Mapping[str, Any]

    @property
    def total(self) -> int:
        return sum(replica.count for replica in self.roles.values())

    @property
    def wanted(self) -> tuple[tuple[str, int], ...]:
        """Role and index of every replica, in order."""
        return tuple(place for role in self.roles for place in self.places(role))

    def places(self, role: str) -> tuple[tuple[str, int], ...]:
        """Return role and index of every replica of a role."""
        return tuple((role, i) for i in range(self.count(role)))

    def count(self, role: str) -> int:
        """Return the number of replicas of a role, 0 when the job has none."""
        return self.roles[role].count if role in self.roles else 0

    def restarts_in_place(self, role: str) -> bool:
        """Return whether a program that failed is started again in its pod; a limit of 0 allows no such try."""
        return self.roles[role].restart_policy == "OnFailure" and self.backoff_limit != 0


def replicas_by_type(given: Mapping[str, Any], types: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return for each known type its spelling in the job and its replicas; letter case does not count."""
    by_lower = {type_.lower(): type_ for type_ in types}
    return {by_lower[str(key).lower()]: (key, value) for key, value in given.items() if str(key).lower() in by_lower}
