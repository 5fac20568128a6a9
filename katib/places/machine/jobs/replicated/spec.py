"""What a training job asks for, with the operator's defaults, and its pods by replica: whose failure is final. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from katib.places.machine.jobs.conditions import going
from katib.places.machine.pods.records import Phase, PodRecord


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


def replicas_by_type(given: Mapping[str, Any], types: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return for each known type how the user wrote it and what stands there; letter case does not count."""
    by_lower = {type_.lower(): type_ for type_ in types}
    return {by_lower[str(key).lower()]: (key, value) for key, value in given.items() if str(key).lower() in by_lower}


FIRST_RETRYABLE_CODE = 128
"""Of a program that did not end by itself: 128 and the number of the signal that killed it."""

UNLIMITED_FAILURES = 6
"""After how many failures in a row a replica is given up whose job sets no limit of restarts. On a cluster it is
restarted forever, and its trial never ends."""

RESET_SECONDS = 600.0
"""A replica that went on for so long after a failure has it forgiven, as the kubelet does."""


@dataclass(frozen=True)
class Replicas:
    """The pods of one try of a job, in which each replica may have had several.

    Attributes:
        spec: What the job asks for.
        pods: Of this try, oldest first.
        container: Name of the container whose exit code decides.
    """

    spec: TrainingSpec
    pods: tuple[PodRecord, ...]
    container: str

    @cached_property
    def newest(self) -> Mapping[tuple[str, int], PodRecord]:
        """The newest pod of each replica that has one, in the order of the kind."""
        found = {(p.role, p.index): p for p in self.pods}
        return {place: found[place] for place in self.spec.wanted if place in found}

    @cached_property
    def active(self) -> tuple[PodRecord, ...]:
        """Pods that wait or run and may go on."""
        return going(self.pods)

    @property
    def unfinished(self) -> tuple[PodRecord, ...]:
        """Pods with processes, those that are being stopped included."""
        return tuple(p for p in self.pods if not p.is_finished)

    @cached_property
    def failed(self) -> tuple[PodRecord, ...]:
        """Replicas that failed by themselves and were not replaced, in the order of their ends."""
        found = [p for p in self.newest.values() if p.phase is Phase.FAILED and not p.stopping]
        return tuple(sorted(found, key=lambda p: p.finished_at.timestamp() if p.finished_at is not None else 0.0))

    def has_succeeded(self, role: str, index: int) -> bool:
        """Return whether a replica has succeeded."""
        pod = self.newest.get((role, index))
        return pod is not None and pod.phase is Phase.SUCCEEDED

    def all_succeeded(self, role: str) -> bool:
        """Return whether all replicas of a role have succeeded; no when there are none."""
        count = self.spec.count(role)
        return count > 0 and all(self.has_succeeded(role, i) for i in range(count))

    def is_retried(self, pod: PodRecord) -> bool:
        """Return whether a failed pod is replaced: its policy is ExitCode and its program did not end by itself.

        The exit code is that of the training container. When that never ended, the pod failed for another reason,
        which counts as one that may pass.
        """
        if self.spec.roles[pod.role].restart_policy != "ExitCode":
            return False
        code = next((exit_.code for exit_ in pod.exits if exit_.container == self.container), FIRST_RETRYABLE_CODE)
        return code >= FIRST_RETRYABLE_CODE

    @cached_property
    def retried(self) -> tuple[PodRecord, ...]:
        """Failed pods that were or will be replaced."""
        return tuple(p for p in self.pods if p.phase is Phase.FAILED and not p.stopping and self.is_retried(p))

    @property
    def restarts(self) -> int:
        """What the back-off limit counts: restarts in place of the pods that run, and failed pods to be replaced."""
        return sum(p.restarts for p in self.active) + len(self.retried)

    @property
    def last_restarted(self) -> PodRecord | None:
        """The pod that explains the newest restart, None when nothing was restarted."""
        restarted = [p for p in self.active if p.failures]
        return next(iter([*reversed(self.retried), *reversed(restarted)]), None)

    def failures_in_a_row(self) -> tuple[int, PodRecord | None]:
        """Return how often the replica that fails most has failed without a long good run between, and its pod."""
        worst: tuple[int, PodRecord | None] = (0, None)
        for place, pod in self.newest.items():
            count = pod.failures + self._replaced_in_a_row(place, pod)
            if count > worst[0]:
                worst = (count, pod)
        return worst

    def _replaced_in_a_row(self, place: tuple[str, int], newest: PodRecord) -> int:
        count, later, long = 0, newest.finished_at, timedelta(seconds=RESET_SECONDS)
        for pod in reversed([p for p in self.retried if (p.role, p.index) == place]):
            if pod.finished_at is None or (later is not None and later - pod.finished_at >= long):
                break
            count, later = count + 1, pod.finished_at
        return count

    @property
    def lost(self) -> PodRecord | None:
        """A replica that ended with the guard, through no fault of its own; None when there is none."""
        return next((p for p in self.failed if any(exit_.lost for exit_ in p.exits)), None)

    def missing(self) -> Iterator[tuple[str, int]]:
        """Yield the replicas that have no pod, or one that is to be replaced."""
        for place in self.spec.wanted:
            pod = self.newest.get(place)
            if pod is None or (pod.phase is Phase.FAILED and (pod.stopping or self.is_retried(pod))):
                yield place
