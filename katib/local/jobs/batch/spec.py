"""A Job's spec with the defaults of Kubernetes, but for the back-off limit, read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from katib.local.pods.records import ContainerExit
from katib.runtime.objects import Object

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
    """What a Job asks for. `completions` is None for a work queue."""

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
