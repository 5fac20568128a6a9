"""The specification of a gang: groups of batch Jobs, and the policies over them. Pure data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

READY: Final = "Ready"
COMPLETE: Final = "Complete"

RESTART: Final = "RestartJobSet"
RESTART_JOB: Final = "RestartJob"
FAIL: Final = "FailJobSet"
UNCOUNTED_RESTARTS: Final = {
    "RestartJobSetAndIgnoreMaxRestarts": RESTART,
    "RestartJobAndIgnoreMaxRestarts": RESTART_JOB,
}
"""Actions that restart as another one does, without counting towards the limit."""

ACTIONS: Final = (FAIL, RESTART, RESTART_JOB, *UNCOUNTED_RESTARTS)


class Dependency(NamedTuple):
    """A group that must be Ready or Complete before another one starts."""

    name: str
    status: str


@dataclass(frozen=True, slots=True)
class GangGroup:
    """Batch Jobs of a gang that are alike.

    Attributes:
        after: Name of a group that starts at the same time and whose containers must have started first; empty for
            none.
        is_endless: Whether its programs never end by themselves, so that nobody waits for them after a success.
    """

    name: str
    spec: Mapping[str, Any]
    roles: tuple[str, ...]
    depends_on: tuple[Dependency, ...] = ()
    after: str = ""
    is_endless: bool = False


@dataclass(frozen=True, slots=True)
class JobFailureRule:
    """The answer to failed Jobs for certain reasons. Empty fields match everything."""

    action: str
    reasons: frozenset[str]
    patterns: tuple[str, ...]
    targets: frozenset[str]

    def matches(self, group: str, reason: str, message: str) -> bool:
        """Return whether it applies to a Job of a group that failed for this reason."""
        return (
            (not self.targets or group in self.targets)
            and (not self.reasons or reason in self.reasons)
            and (not self.patterns or any(re.search(pattern, message) for pattern in self.patterns))
        )


class JobFailures(NamedTuple):
    """Failures of a gang whose Jobs fail one by one, as those of a JobSet.

    Attributes:
        rules: None: the first failed Job fails the gang.
        max_restarts: How many restarts of the gang, or of a Job of it, are made.
    """

    rules: tuple[JobFailureRule, ...] | None = None
    max_restarts: int = 0


class ReplicaFailures(NamedTuple):
    """Failures of a gang whose pods share one fate, as the replicas of a training job.

    The first final failure fails the gang, unless it has succeeded. A lost pod, or a suspension, begins it anew:
    earlier failures are forgotten.

    Attributes:
        backoff_limit: Of all restarts together; None: a replica may fail a number of times in a row.
        container: Its exit code decides whether a pod is replaced.
    """

    backoff_limit: int | None
    container: str


class Success(NamedTuple):
    """When a gang has succeeded; without targets it never does.

    Attributes:
        targets: Roles, each with the index of a pod, or None for the Job of that role as a whole.
        needs_all: Whether all of them must have succeeded; else one is enough.
        late_seconds: How long other pods may continue after it.
    """

    targets: tuple[tuple[str, int | None], ...]
    needs_all: bool = True
    late_seconds: float = 0.0


class Reasons(NamedTuple):
    """The reasons in the last condition of a gang."""

    succeeded: str
    failed: str
    deadline: str
    restarts: str = ""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods with roles, as one of several kinds of jobs asks for them.

    Attributes:
        groups: Its Jobs, in the order in which they start.
        suspend: Whether nothing of it may run.
        deadline_seconds: How long it may be active; None: without limit.
        ttl_seconds_after_finished: When it is removed; None: never.
        managed_elsewhere: Whether another controller manages it.
        renewals: How often all pods start again because the port of one is taken.
        listeners: Role and index of the pods with such ports; None: all pods.
    """

    groups: tuple[GangGroup, ...]
    success: Success
    failures: JobFailures | ReplicaFailures
    reasons: Reasons
    success_message: str
    suspend: bool = False
    deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_elsewhere: bool = False
    renewals: int = 0
    listeners: tuple[tuple[str, int], ...] | None = None

    def group(self, role: str) -> GangGroup:
        return next(group for group in self.groups if role in group.roles)
