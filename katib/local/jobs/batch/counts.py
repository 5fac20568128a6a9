"""Counts over the pods of a job: who runs, who succeeded, whose failure counts, and how long to wait after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter

from katib.local.jobs.batch.spec import FailureRule, JobSpec
from katib.local.jobs.conditions import FORGIVEN_LOSSES
from katib.local.pods.records import PREEMPTED, ContainerExit, Delays, Phase, PodRecord

_RESTARTS = attrgetter("restarts")


@dataclass(frozen=True, slots=True)
class MatchedRule:
    """A failed pod and the rule of podFailurePolicy that speaks of it."""

    pod: PodRecord
    rule: FailureRule
    position: int
    exit: ContainerExit


class PodCounts:
    """The pods of a job, sorted by what they mean to it. How one ended that the job itself stopped counts for nothing.

    A program may well end with 0 when it is asked to end, with its checkpoint written and its work undone.

    Attributes:
        spec: Of the job.
        pods: All of them, oldest first.
        active: Those that are waiting or running and may go on.
        terminating: Those that were asked to end and have not yet.
        succeeded: Those that succeeded.
        all_failures: Those that failed by themselves, ignored ones included.
    """

    def __init__(self, spec: JobSpec, pods: Sequence[PodRecord]) -> None:
        self.spec = spec
        self.pods = pods
        self.active: list[PodRecord] = []
        self.terminating: list[PodRecord] = []
        self.succeeded: list[PodRecord] = []
        self.all_failures: list[PodRecord] = []
        for pod in pods:
            if pod.phase is Phase.SUCCEEDED and not pod.stopping:
                self.succeeded.append(pod)
            elif pod.phase is Phase.SUCCEEDED:
                continue
            elif pod.phase is not Phase.FAILED:
                (self.terminating if pod.stopping else self.active).append(pod)
            elif not pod.stopping:
                self.all_failures.append(pod)

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
        """Whether nothing is left of the job: none of its pods goes on or has succeeded, and the last one was lost.

        Or the job itself stopped it, as when it is suspended.
        """
        if self.active or self.terminating or self.succeeded or not self.pods:
            return False
        last = max(self.pods, key=lambda p: (p.finished_at is not None, p.finished_at))
        return last.stopping or last.name in self._forgiven

    @cached_property
    def _forgiven(self) -> tuple[str, ...]:
        lost = [p for p in self.all_failures if any(exit_.lost for exit_ in p.exits)]
        preempted = [p.name for p in lost if p.reason == PREEMPTED]
        return (*preempted, *[p.name for p in lost if p.reason != PREEMPTED][:FORGIVEN_LOSSES])

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
    def removed(self) -> tuple[PodRecord, ...]:
        """Active pods whose indexes the job has no more, since its completions were lowered."""
        return tuple([p for p in self.active if p.index is not None and not self._is_wanted(p.index)])

    @cached_property
    def failures_by_index(self) -> Counter[int]:
        """How often each index failed, as far as that counts."""
        return Counter(pod.index for pod in self.failures if pod.index is not None)

    @property
    def restarts(self) -> int:
        """Restarts in place of the pods that are still active."""
        return sum(map(_RESTARTS, self.active))

    @cached_property
    def success_count(self) -> int:
        """Completions reached."""
        return len(self.succeeded_indexes) if self.spec.indexed else len(self.succeeded)

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
        if pod.phase is Phase.SUCCEEDED:
            break
        in_a_row.append(pod)
    return in_a_row


def _first_match(pod: PodRecord, rules: tuple[FailureRule, ...]) -> MatchedRule | None:
    for position, rule in enumerate(rules):
        if exit_ := rule.matching_exit(pod.exits):
            return MatchedRule(pod, rule, position, exit_)
    return None
