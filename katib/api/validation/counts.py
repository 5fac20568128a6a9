"""Rules about how many trials run, succeed and may fail."""

from __future__ import annotations

from collections.abc import Iterator

from katib.api.types import ExperimentSpec
from katib.errors import FieldError


def check_counts(spec: ExperimentSpec) -> Iterator[FieldError]:
    """Check each count alone, then against `maxTrialCount`."""
    limit = spec.max_trial_count
    if limit is not None and limit <= 0:
        yield FieldError("spec.maxTrialCount", f"{limit} is not above 0", "use at least 1", "max-trials-not-positive")
        limit = None
    yield from _check_parallel(spec.parallel_trial_count, limit)
    yield from _check_max_failed(spec.max_failed_trial_count, limit)


def _check_parallel(parallel: int | None, limit: int | None) -> Iterator[FieldError]:
    path = "spec.parallelTrialCount"
    if parallel is None:
        return
    if parallel <= 0:
        yield FieldError(path, f"{parallel} is not above 0", "use at least 1", "parallel-not-positive")
    elif limit is not None and parallel > limit:
        remedy = f"use at most {limit} or raise maxTrialCount"
        yield FieldError(path, f"{parallel} is above maxTrialCount {limit}", remedy, "parallel-above-max")


def _check_max_failed(failed: int | None, limit: int | None) -> Iterator[FieldError]:
    path = "spec.maxFailedTrialCount"
    if failed is None:
        return
    if failed < 0:
        yield FieldError(path, f"{failed} is negative", "use 0 or more, or remove it", "max-failed-negative")
    elif limit is not None and failed > limit:
        remedy = f"use at most {limit} or raise maxTrialCount"
        yield FieldError(path, f"{failed} is above maxTrialCount {limit}", remedy, "max-failed-above-max")
