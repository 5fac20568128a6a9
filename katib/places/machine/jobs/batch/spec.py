"""A Job's spec with the defaults of Kubernetes, but for the back-off limit, and counts over its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from katib.engine.runtime.objects import Object
from katib.places.machine.jobs.conditions import FORGIVEN_LOSSES
from katib.places.machine.pods.records import UNCOUNTED, ContainerExit, Delays, PodPhase, PodRecord

INDEXED = "Indexed"
UNLIMITED = 2**31 - 1
DEFAULT_BACKOFF_LIMIT = 0
"""Nothing here evicts a pod or loses a node: a program that failed would only fail again, and a user waits for it. On
Kubernetes the default is 6."""

BUILT_IN_CONTROLLER = "kubernetes.io/job-controller"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A rule of podFailurePolicy on exit codes. One on pod conditions never matches here: nothing evicts."""

    action: str
    container: str
    operator: str
    values: frozenset[int]

    def matching_exit(self, exits: tuple[ContainerExit, ...]) -> ContainerExit | None:
        """Return the first failed container that the rule speaks of."""
        for exit_ in exits:
            if exit_.code == 0 or self.container not in {"", exit_.container}:
                continue
            if (exit_.code in self.values) == (self.operator == "In"):
                return exit_
        return None


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """A rule of successPolicy; None means that this half was not given."""

    indexes: frozenset[int] | None
    count: int | None

    def is_met(self, succeeded: frozenset[int]) -> bool:
        """Return whether enough of the indexes that count have succeeded."""
        counted = succeeded if self.indexes is None else succeeded & self.indexes
        needed = self.count if self.count is not None else len(self.indexes or ())
        return len(counted) >= needed


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The spec of a Job. `completions` is None for a work queue."""

    parallelism: int
    completions: int | None
    indexed: bool
    backoff_limit: int
    backoff_limit_per_index: int | None
    max_failed_indexes: int | None
    active_deadline_seconds: int | None
    ttl_seconds_after_finished: int | None
    suspend: bool
    restart_policy: str
    failure_rules: tuple[FailureRule, ...]
    success_rules: tuple[SuccessRule, ...]
    replace_only_failed: bool
    managed_elsewhere: bool

    @classmethod
    def of(cls, job: Object) -> JobSpec:
        """Read the spec of a Job that passed admission."""
        spec: Mapping[str, Any] = job.get("spec", {})
        per_index = spec.get("backoffLimitPerIndex")
        completions, parallelism = spec.get("completions"), spec.get("parallelism")
        if completions is None and parallelism is None:
            completions = 1
        failure_rules = spec.get("podFailurePolicy", {}).get("rules", [])
        replacement = spec.get("podReplacementPolicy", "Failed" if failure_rules else "TerminatingOrFailed")
        default_limit = DEFAULT_BACKOFF_LIMIT if per_index is None else UNLIMITED
        return cls(
            parallelism=1 if parallelism is None else parallelism,
            completions=completions,
            indexed=spec.get("completionMode") == INDEXED,
            backoff_limit=spec.get("backoffLimit", default_limit),
            backoff_limit_per_index=per_index,
            max_failed_indexes=spec.get("maxFailedIndexes"),
            active_deadline_seconds=spec.get("activeDeadlineSeconds"),
            ttl_seconds_after_finished=spec.get("ttlSecondsAfterFinished"),
            suspend=spec.get("suspend", False),
            restart_policy=spec.get("template", {}).get("spec", {}).get("restartPolicy", "Never"),
            failure_rules=tuple(map(_failure_rule, failure_rules)),
            success_rules=tuple(map(_success_rule, spec.get("successPolicy", {}).get("rules", []))),
            replace_only_failed=replacement == "Failed",
            managed_elsewhere=spec.get("managedBy", BUILT_IN_CONTROLLER) != BUILT_IN_CONTROLLER,
        )


def _failure_rule(rule: Mapping[str, Any]) -> FailureRule:
    codes = rule.get("onExitCodes", {"operator": "In", "values": []})
    return FailureRule(
        action=rule.get("action", "Count"),
        container=codes.get("containerName", ""),
        operator=codes.get("operator", "In"),
        values=frozenset(codes.get("values", ())),
    )


def _success_rule(rule: Mapping[str, Any]) -> SuccessRule:
    text = rule.get("succeededIndexes")
    return SuccessRule(None if text is None else parse_indexes(text), rule.get("succeededCount"))


# --- completion indexes as text: `1,3-5` ------------------------------------------------------------------------------


def format_indexes(indexes: Iterable[int]) -> str:
    """Return indexes in order, runs of three or more as an interval, two neighbors as two numbers joined by a comma."""
    found: list[tuple[int, int]] = []
    for index in sorted(set(indexes)):
        first = found.pop()[0] if found and found[-1][1] == index - 1 else index
        found.append((first, index))
    separators = ("", ",", "-")
    return ",".join(
        str(first) if last == first else f"{first}{separators[min(last - first, 2)]}{last}" for first, last in found
    )


def parse_indexes(text: str) -> frozenset[int]:
    """Return the indexes that a text such as `0,2-4` names.

    Raises:
        ValueError: It is no such text.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class MatchedRule:
    """A failed pod and the rule of podFailurePolicy that speaks of it."""

    pod: PodRecord
    rule: FailureRule
    position: int
    exit: ContainerExit


class PodCounts:
    """The pods of a job, sorted by what they mean to it. The end of a pod that the job itself stopped does not count.

    A program whose trial keeps a checkpoint ends with 0 when it is asked to end, with its work undone.

    Attributes:
        pods: All of them, oldest first.
        active: Those that are waiting or running and may continue.
        ready_count: How many of these run.
        retried: Those of them of which a container failed that is started again in place.
        removed: Those of them whose indexes the job has no more, since its completions were lowered.
        terminating: Those that were asked to end and have not yet.
        all_failures: Those that failed by themselves, ignored ones included.
        success_count: Completions reached.
    """

    def __init__(self, spec: JobSpec, pods: Sequence[PodRecord]) -> None:
        self.spec = spec
        self.pods = pods
        self.active: list[PodRecord] = []
        self.ready_count = 0
        self.retried: list[PodRecord] = []
        self.removed: list[PodRecord] = []
        self.terminating: list[PodRecord] = []
        self.succeeded: list[PodRecord] = []
        self.all_failures: list[PodRecord] = []
        for pod in pods:
            if pod.phase is PodPhase.SUCCEEDED and not pod.stopping:
                self.succeeded.append(pod)
            elif pod.phase is PodPhase.SUCCEEDED:
                continue
            elif pod.phase is PodPhase.FAILED:
                self.all_failures += [] if pod.stopping else [pod]
            elif pod.stopping:
                self.terminating.append(pod)
            else:
                self.active.append(pod)
                self.ready_count += pod.phase is PodPhase.RUNNING
                self.retried += [pod] if pod.retries else []
                if pod.index is not None and not self._is_wanted(pod.index):
                    self.removed.append(pod)
        self.success_count = len(self.succeeded_indexes) if spec.indexed else len(self.succeeded)

    @cached_property
    def matched_rules(self) -> tuple[MatchedRule, ...]:
        """For each failed pod the first rule that speaks of it."""
        if not self.spec.failure_rules:
            return ()
        return tuple(match for pod in self.all_failures if (match := _first_match(pod, self.spec.failure_rules)))

    @cached_property
    def failures(self) -> Sequence[PodRecord]:
        """Failures that count. Of pods that were lost the first few do not: nothing was wrong with their programs."""
        if not self.all_failures:
            return ()
        ignored = {match.pod.name for match in self.matched_rules if match.rule.action == "Ignore"}
        ignored.update(self._forgiven)
        return tuple(p for p in self.all_failures if p.name not in ignored)

    @property
    def is_lost(self) -> bool:
        """Whether nothing is left of the job: no pod is active or has succeeded, and the last one was lost.

        Or the job itself stopped it, as when it is suspended.
        """
        if self.active or self.terminating or self.succeeded or not self.pods:
            return False
        last = max(self.pods, key=lambda p: (p.finished_at is not None, p.finished_at))
        return last.stopping or last.name in self._forgiven

    @cached_property
    def _forgiven(self) -> tuple[str, ...]:
        lost = [p for p in self.all_failures if any(exit_.lost for exit_ in p.exits)]
        uncounted = [p.name for p in lost if p.reason in UNCOUNTED]
        return (*uncounted, *[p.name for p in lost if p.reason not in UNCOUNTED][:FORGIVEN_LOSSES])

    @cached_property
    def succeeded_indexes(self) -> frozenset[int]:
        """Indexes with a success, of those that the job has now: their number may be changed while it runs."""
        indexes = [p.index for p in self.succeeded]
        return frozenset([index for index in indexes if index is not None and self._is_wanted(index)])

    @cached_property
    def failed_indexes(self) -> frozenset[int]:
        """Indexes that are given up; only with a limit per index."""
        limit = self.spec.backoff_limit_per_index
        if limit is None:
            return frozenset()
        given_up = {m.pod.index for m in self.matched_rules if m.rule.action == "FailIndex"}
        given_up |= {index for index, count in self.failures_by_index.items() if count > limit}
        wanted = frozenset(index for index in given_up if index is not None and self._is_wanted(index))
        return wanted - self.succeeded_indexes

    @cached_property
    def failures_by_index(self) -> Counter[int]:
        """How often each index failed, as far as that counts."""
        return Counter(pod.index for pod in self.failures if pod.index is not None)

    def _is_wanted(self, index: int) -> bool:
        return self.spec.completions is None or index < self.spec.completions

    def retry_at(self, delays: Delays, index: int | None = None) -> datetime | None:
        """Return when the back-off after the last failures ends; None when the last pod to finish did not fail.

        Args:
            delays: How long it lasts.
            index: Look at the pods of this index only; None looks at all.
        """
        if not self.all_failures:
            return None
        counted = (*self.succeeded, *self.all_failures)
        pods = [p for p in self.pods if p in counted and (index is None or p.index == index)]
        in_a_row = _failures_in_a_row(pods)
        if not in_a_row:
            return None
        last = max(p.finished_at for p in in_a_row if p.finished_at is not None)
        return last + timedelta(seconds=delays.recreate.pause_seconds(len(in_a_row)))


def _failures_in_a_row(pods: Iterable[PodRecord]) -> Sequence[PodRecord]:
    finished = [(p.finished_at, number, p) for number, p in enumerate(pods) if p.finished_at is not None]
    in_a_row: list[PodRecord] = []
    for _, _, pod in sorted(finished, key=lambda item: item[:2], reverse=True):
        if pod.phase is PodPhase.SUCCEEDED:
            break
        in_a_row.append(pod)
    return in_a_row


def _first_match(pod: PodRecord, rules: tuple[FailureRule, ...]) -> MatchedRule | None:
    for position, rule in enumerate(rules):
        if exit_ := rule.matching_exit(pod.exits):
            return MatchedRule(pod, rule, position, exit_)
    return None
