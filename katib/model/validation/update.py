"""Rules about updates of an existing experiment.

Only the three counts may change, and the options of Slurm in a pod template, which place trials. An experiment that has
ended continues only if it used up its budget and its resume policy kept the required state. An update that leaves the
spec alone (labels, finalizers, status) is always accepted, so that an experiment can always be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from katib.errors import FieldError
from katib.model.conditions import find_condition, has_ended, is_true
from katib.model.names import SLURM_OPTIONS_ANNOTATION
from katib.model.restarts import _USED_UP, is_restartable
from katib.model.types import Experiment, ExperimentCondition, ExperimentSpec, ResumePolicy
from katib.model.validation.experiment import check_counts
from katib.model.wording import path_to, shown

COUNTS = ("parallelTrialCount", "maxTrialCount", "maxFailedTrialCount")
"""The fields of a spec that may change."""


_TEMPLATE = "trialTemplate"
_MUTABLE = frozenset(f"spec.{name}" for name in COUNTS)
_MAX_CHANGES = 10
"""Maximum number of differences to list: with more, it is another experiment, not an edit."""

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Change:
    """A field that differs: its path and the difference, such as `changed from "0.5" to "0.9"`."""

    path: str
    how: str

    def __str__(self) -> str:
        return f"{self.path}: {self.how}"


def validate_update(old: Experiment, new: Experiment) -> list[FieldError]:
    """Return errors for forbidden changes of the spec. Both have defaults; `old` has its status."""
    changes = describe_changes(old, new)
    if not changes:
        return []
    return [
        *_check_restart(old),
        *_check_budget(old, new),
        *_check_immutable([change for change in changes if change.path not in _MUTABLE]),
        *check_counts(new.spec),
    ]


def describe_changes(old: Experiment, new: Experiment) -> list[Change]:
    """Return every field of the spec that differs, in order of the old spec, then new fields; without placement."""
    return list(_changes("spec", without_placement(old.spec.encode()), without_placement(new.spec.encode())))


def changed_fields(old: Experiment, new: Experiment) -> frozenset[str]:
    """Return the fields of the spec whose meaning differs. Both have defaults."""
    before, after = old.spec.encode(), new.spec.encode()
    differ = (name for name in {**before, **after} if any(_changes(name, _field(before, name), _field(after, name))))
    return frozenset(differ)


def changed_counts(old: Experiment, new: Experiment) -> dict[str, Any]:
    """Return the counts that differ, None for a removed one, as a patch of the spec.

    Includes a patch of the trial template if its placement options differ.
    """
    before, after = old.spec.encode(), new.spec.encode()
    counts = {name: after.get(name) for name in COUNTS if name in changed_fields(old, new)}
    if _TEMPLATE not in changed_fields(old, new):
        return counts
    return {**counts, _TEMPLATE: _patch(before.get(_TEMPLATE), after.get(_TEMPLATE))}


def without_placement(value: Any) -> Any:
    """Return a spec, or a part of one, without the options of Slurm and the maps that hold nothing else."""
    if isinstance(value, list):
        return [without_placement(element) for element in value]
    if not isinstance(value, dict):
        return value
    kept = {key: without_placement(element) for key, element in value.items() if key != SLURM_OPTIONS_ANNOTATION}
    return {key: element for key, element in kept.items() if element != {} or value[key] == {}}


def _patch(old: Any, new: Any) -> Any:
    """Return the patch from one value to another, None for removed fields."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {key: _patch(old.get(key), value) for key, value in new.items() if old.get(key) != value}
    return {**changed, **dict.fromkeys(old.keys() - new.keys())}


def _check_restart(old: Experiment) -> Iterator[FieldError]:
    if not has_ended(old.status.conditions) or is_restartable(old):
        return
    remedy = "delete it first, or submit it under another name"
    yield FieldError("spec.resumePolicy", f"the experiment {_ending(old)}", remedy, "update-not-restartable")


def _ending(old: Experiment) -> str:
    if is_true(old.status.conditions, ExperimentCondition.FAILED):
        return "has failed and cannot be resumed"
    succeeded = find_condition(old.status.conditions, ExperimentCondition.SUCCEEDED)
    if succeeded is not None and succeeded.reason in _USED_UP:
        return f"has ended, and resume policy {old.spec.resume_policy or ResumePolicy.NEVER} does not let it resume"
    return "has reached its end before its budget and cannot be resumed"


def _check_budget(old: Experiment, new: Experiment) -> Iterator[FieldError]:
    limit, trials = new.spec.max_trial_count, old.status.trials
    if limit is not None and 0 < limit <= trials:  # a count of 0 is reported elsewhere
        cause = f"{limit} leaves no trial to run, {trials} exist"
        yield FieldError("spec.maxTrialCount", cause, f"use more than {trials}", "update-max-trials")


def _check_immutable(changes: list[Change]) -> Iterator[FieldError]:
    remedy = "undo it, delete the experiment first, or submit it under another name"
    for change in changes[:_MAX_CHANGES]:
        yield FieldError(change.path, change.how, remedy, "update-immutable")
    if len(changes) > _MAX_CHANGES:
        cause = f"{len(changes) - _MAX_CHANGES} more fields changed"
        yield FieldError("spec", cause, remedy, "update-immutable")


def _changes(path: str, old: Any, new: Any) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _changes(path_to(path, key), old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif isinstance(old, list) and isinstance(new, list):
        for i in range(max(len(old), len(new))):
            yield from _changes(f"{path}[{i}]", _element(old, i), _element(new, i))
    elif old is _ABSENT:
        yield Change(path, f"added {shown(new)}")
    elif new is _ABSENT:
        yield Change(path, f"removed {shown(old)}")
    elif not _same(old, new):
        yield Change(path, f"changed from {shown(old)} to {shown(new)}")


def _field(spec: dict[str, Any], name: str) -> Any:
    return spec.get(name, _ABSENT)


def _element(values: list[Any], i: int) -> Any:
    return values[i] if i < len(values) else _ABSENT


def _same(old: Any, new: Any) -> bool:
    """Return whether a value is the same; NaN, which is rejected anyway, equals itself.

    Unlike in `same_json`, 1 equals 1.0: an API server returns one for the other.
    """
    return (old == new and isinstance(old, bool) == isinstance(new, bool)) or (old != old and new != new)  # noqa: PLR0124  # only NaN differs from itself


Rule = dict[str, str]
"""One element of `x-kubernetes-validations`."""

FIXED_FIELDS = tuple(name for name in ExperimentSpec.__struct_encode_fields__ if name not in COUNTS)
"""The fields of an Experiment's spec that cannot change."""

OBJECT_RULES: tuple[Rule, ...] = (
    {"rule": "has(self.spec) == has(oldSelf.spec)", "message": "spec cannot be added or removed"},
)
"""Rules about the object as a whole."""

SPEC_RULES: tuple[Rule, ...] = tuple(
    {
        "rule": f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        "message": f"{name} cannot be changed; submit the experiment under another name",
    }
    for name in FIXED_FIELDS
)
"""Rules about the spec: a field that is present stays unchanged, an absent one is not added."""
