"""The interface of a feature, with neutral defaults: a feature overrides only the parts it needs.

A feature is one package. It owns the annotations that hold its settings, and contributes checks, command-line options,
annotations of trials, and a part of an experiment's plan. `listed.FEATURES` lists all features; the code that runs
experiments knows only this interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from katib.errors import FieldError, InvalidError
from katib.model.types import Experiment, Trial, TrialAssignment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Annotation(Generic[T]):
    """An annotation as a typed field.

    Attributes:
        name: Of the annotation.
        decode: Returns the value of a text; the empty text stands for an absent annotation.
        encode: Returns the text of a value.
        may_change: Whether submitting an unfinished experiment again may change it.
    """

    name: str
    decode: Callable[[str], T]
    encode: Callable[[T], str] = str
    may_change: bool = False

    def read(self, annotations: Mapping[str, str]) -> T:
        return self.decode(annotations.get(self.name, ""))

    def write(self, value: T) -> dict[str, str]:
        return {self.name: self.encode(value)}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the commands that run an experiment; its text becomes an annotation."""

    flag: str
    annotation: str
    metavar: str
    help: str
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Means:
    """Trials with the mean of several runs in place of their own values.

    Attributes:
        best: The best one; None if there is none.
        default: That of the defaults; None while runs of it are to come.
    """

    best: Trial | None = None
    default: Trial | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A feature's contribution to the plan of one experiment.

    Attributes:
        cuts: Whether to stop running trials early now and start no others.
        end: Reason to start no further trials; the experiment ends with its last trial. Empty if it continues.
        resumable: Names of trials that it cut before and that can continue.
        reopened: Number of ended trials that do not count as completed.
        room: Maximum number of trials to start now.
        again: Further runs to start before assignments of the algorithm.
        new_room: Maximum number of assignments of the algorithm to start now.
        means: The trials by which the experiment is judged, instead of those with the best single values.
        again_after_seconds: Delay until the next reconcile if nothing changes.
    """

    feature: Feature
    cuts: bool = False
    end: str = ""
    resumable: tuple[str, ...] = ()
    reopened: int = 0
    room: float = math.inf
    again: tuple[TrialAssignment, ...] = ()
    new_room: float = math.inf
    means: Means | None = None
    again_after_seconds: float | None = None
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Measurements of an experiment, for a feature's part of its plan.

    Attributes:
        run_seconds: Time during which at least one trial ran.
        seconds_of: Returns the run time of a trial.
        keeps_checkpoints: Whether an interrupted trial continues from its checkpoint.
    """

    run_seconds: float
    seconds_of: Callable[[Trial], float]
    keeps_checkpoints: bool = False


class Tally(Protocol):
    """Summary of the trials of one experiment, updated event by event."""

    def add(self, trial: Trial) -> None:
        """Count a trial."""

    def remove(self, name: str) -> None:
        """Stop counting a trial, if it was counted."""


class Feature:
    """A feature. The defaults add nothing.

    Attributes:
        name: Its name in sentences.
        annotations: Fields of an Experiment that it owns, the main one first.
        reason: Reason of the conditions of an experiment that it stops.
        cut_reason: Reason of the condition of a trial that it cut.
        cut_cause: Cause for which a trial was cut.
    """

    name: str
    annotations: tuple[Annotation[Any], ...] = ()
    options: tuple[Option, ...] = ()
    reason = cut_reason = cut_cause = ""

    def errors(self, _annotations: Mapping[str, str], /) -> Sequence[FieldError]:
        """Return the errors in the annotations of an Experiment."""
        return ()

    def misfits(self, _experiment: Experiment, /) -> Iterable[FieldError]:
        """Return the errors of an Experiment with valid annotations and defaults, which does not fit them."""
        return ()

    def changes(self, stored: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the annotations that a document changes in a stored Experiment.

        Raises:
            InvalidError: The result is invalid.
        """
        names = [one.name for one in self.annotations if one.may_change]
        changed = {name: wanted[name] for name in names if name in wanted and wanted[name] != stored.get(name)}
        if errors := self.errors({**stored, **changed}) if changed else ():
            raise InvalidError(errors)
        return changed

    def end(self, _experiment: Experiment, /) -> str:
        """Return the cause that ends an experiment with the current annotations."""
        return ""

    def larger_option(self, _experiment: Experiment, /) -> str:
        """Return the option that lets an experiment ended by this feature continue."""
        return ""

    def trial_annotations(self, _experiment: Experiment, _run_spec: Mapping[str, Any] | None, /) -> dict[str, str]:
        return {}

    def without(self, _annotations: Mapping[str, str], _removed: Iterable[tuple[Trial, float]], /) -> dict[str, str]:
        """Return annotations of an Experiment after trials were removed, each given with its run time in seconds."""
        return {}

    def counts(self, _trial: Trial, /) -> bool:
        """Return whether a trial is counted in its tally."""
        return False

    def tally(self) -> Tally:
        raise NotImplementedError

    def part(self, _experiment: Experiment, _tally: Tally | None, _progress: Progress, /) -> Part | None:
        """Return its contribution to the plan of an experiment."""
        return None

    def history(self, _experiment: Experiment, _tally: Tally | None, /) -> Sequence[Trial] | None:
        """Return the trials as algorithms see them; None if they see them as they are."""
        return None

    def words(self, _experiment: Experiment, /) -> str:
        """Return its progress for users; empty if the experiment does not use it."""
        return ""
