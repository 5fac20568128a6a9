"""Running an experiment that exists already: its changes, the choices of a user, and their execution.

An unfinished experiment continues. One that has ended and stays as it was is left. When its document or its
program changed since, the user chooses; an experiment that brought nothing usable runs again without a question,
because the same command is given again once the cause is fixed, in the program or in its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from katib.engine.controllers.kinds import key_of
from katib.engine.runtime.objects import Key
from katib.errors import FieldError, InvalidError, KatibError, NotFoundError, invalid
from katib.model.conditions import COMPLETED_EXPERIMENT
from katib.model.features.feature import Feature
from katib.model.features.listed import ENDINGS
from katib.model.types import Experiment
from katib.service.tuning.service import Choice, RunExperiment, SubmittedExperiment, TuningService, WaysOnward
from katib.service.tuning.states import is_at_rest, is_completed, lost_count, state_of
from katib.service.tuning.submission import Admitted, Candidate

T = TypeVar("T")

_OF_A_COMPANION = "companion-changed"
_OF_COUNTS = frozenset({"update-not-restartable", "update-max-trials"})
_OF_AN_UPDATE = _OF_COUNTS | {"update-immutable", _OF_A_COMPANION}
"""Origins of errors that mean: the document is right, but not that of the experiment that is there."""
_SHOWN_CHANGES = 3


def company_of(service: TuningService, experiment: Experiment, place: str) -> tuple[str, ...]:
    """Return a note if a server runs further unfinished experiments of its data directory beside one.

    Args:
        place: The option with which commands find the directory, after a blank; empty if they find it without.
    """
    others = [e.name for e in service.experiments() if _is_run(e) and e.name != experiment.name]
    if not others:
        return ()
    way = f"`katib pause {others[0]}{place}` holds {'it' if len(others) == 1 else 'the first'} back"
    names = ", ".join(others)
    return (f"the server also continues with unfinished experiments of this data directory: {names}; {way}",)


def _is_run(experiment: Experiment) -> bool:
    """Return whether trials of an experiment are started: it is unfinished, not stopped, and they run as jobs."""
    has_jobs = experiment.spec.trial_template is not None
    return has_jobs and not is_completed(experiment) and not is_at_rest(experiment)


class Reruns(Protocol):
    """Repeats the experiments of a home. Thread-safe."""

    def set_aside(self, key: Key) -> str:
        """Give an experiment, with its trials, the first free name with a number, and return that name.

        Raises:
            NotFoundError: There is no such experiment.
        """

    def run_again(self, key: Key, program: Mapping[str, str], *, failed: bool = False, more: int = 0) -> Experiment:
        """Let an experiment that has ended continue; return it.

        Args:
            failed: Whether the trials that failed, or were stopped with it, run again with their assignments.
            more: How many trials to add to its budget.

        Raises:
            InvalidError: It cannot be resumed.
            NotFoundError: There is no such experiment.
        """

    def undisturbed(self, key: Key, work: Callable[[], T]) -> T:
        """Call a function that writes an experiment, while no controller does; return its result."""

    def program_of(self, experiment: Experiment) -> Mapping[str, str]:
        """Return the files of its program now, which takes a moment and reads the disk."""

    def changed_files(self, experiment: Experiment, *, with_packages: bool) -> Sequence[str]:
        """Return which files of its program changed since it was submitted, or ran again.

        Args:
            experiment: As it is stored.
            with_packages: Whether a package that was installed counts.
        """


class Taker(Protocol):
    """Takes experiments, and shows them: `katib.service.tuning.stored_service.ObjectTuningService`."""

    def get(self, kind: type[Experiment], namespace: str, name: str, /) -> Experiment:
        """Return an experiment.

        Raises:
            NotFoundError: No experiment has this name.
        """

    def admit(self, candidate: Candidate) -> Admitted:
        """Return a new experiment, checked as `take` would.

        Raises:
            InvalidError: Anything wrong with it.
        """

    def take(self, candidate: Candidate, *, command: str = "") -> SubmittedExperiment:
        """Create, resume or update an experiment.

        Raises:
            InvalidError: Anything wrong with it.
        """


@dataclass(frozen=True, slots=True)
class Wanted:
    """An experiment that was read or admitted, the name of its document in errors, and the command that runs it."""

    candidate: Candidate
    source: str
    command: str

    @property
    def experiment(self) -> Experiment:
        return self.candidate.experiment


@dataclass(frozen=True, slots=True)
class Ended:
    """An experiment that has ended, and its changes since."""

    experiment: Experiment
    changes: tuple[str, ...]
    same_search: bool
    more: int

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def lost(self) -> int:
        """How many trials ended without a value."""
        return lost_count(self.experiment) + self.experiment.status.trials_killed

    @property
    def has_no_value(self) -> bool:
        """Whether no trial brought anything usable."""
        return _has_no_value(self.experiment)

    @property
    def is_useless(self) -> bool:
        """Whether it failed without one usable trial."""
        return ended_without_value(self.experiment)

    @property
    def ways(self) -> WaysOnward:
        can_retry = self.same_search and self.lost > 0
        return WaysOnward(self.changes, self.lost, can_retry=can_retry, may_have_more=_may_have_more(self))


class Repeating:
    """Runs documents over a tuning service. Thread-safe."""

    def __init__(self, service: Taker, repeats: Reruns) -> None:
        self._service = service
        self._repeats = repeats

    def run(self, candidate: Candidate, source: str, choice: Choice, command: str) -> RunExperiment:
        wanted = Wanted(candidate, source, command)
        return self._chosen(wanted, choice) if choice else self._submit(wanted)

    def retry_failed(self, experiment: Experiment) -> None:
        """Continue an experiment with its failed trials, which run again with their assignments."""
        key, program = key_of(experiment), self._repeats.program_of(experiment)
        self._repeats.undisturbed(key, lambda: self._repeats.run_again(key, program, failed=True))

    def _submit(self, wanted: Wanted) -> RunExperiment:
        try:
            submission = self._submitted(wanted)
        except InvalidError as error:
            if any(field.origin not in _OF_AN_UPDATE for field in error.errors):
                raise
            found = self._stored(wanted)
            if found is None or not is_completed(found):
                raise _with_restart(error) from None
            return self._settle(wanted, self._differing(wanted, found, error))
        if submission.outcome == "created":
            return RunExperiment.of(submission)
        same = self._ended(submission.experiment, self._changes_of_program(submission.experiment))
        if submission.outcome != "unchanged" or not is_completed(submission.experiment):
            return self._resumed(submission, same)
        return self._settle(wanted, same)

    def _resumed(self, submission: SubmittedExperiment, unfinished: Ended) -> RunExperiment:
        """Go on with an experiment; trials of a program that never worked run again once it has changed."""
        if not (unfinished.changes and unfinished.lost and unfinished.has_no_value):
            return RunExperiment.of(submission)
        key = key_of(unfinished.experiment)
        program = self._repeats.program_of(unfinished.experiment)
        self._repeats.undisturbed(key, lambda: self._repeats.run_again(key, program, failed=True))
        trials = "its failed trial runs" if unfinished.lost == 1 else f"its {unfinished.lost} failed trials run"
        note = f"{changed_words(unfinished.changes)} changed since {unfinished.name} was stopped, so {trials} again"
        return RunExperiment.of(submission, notes=(note,))

    def _settle(self, wanted: Wanted, ended: Ended) -> RunExperiment:
        """Decide how an ended experiment continues."""
        feature = ENDINGS.get(_reason(ended.experiment))
        if feature is not None and ended.same_search and (larger := _larger(feature, wanted, ended)):
            note = f"{ended.name} had spent its {feature.name}, which is {larger} now, so it continues"
            return self._continue(wanted, ended.experiment, failed=False, note=note)
        if ended.same_search and ended.more:
            note = f"{ended.name} had ended; its budget is {ended.more} trials larger now, so it continues"
            return self._continue(wanted, ended.experiment, failed=ended.is_useless, note=note)
        if ended.is_useless and (ended.changes or (ended.ways.can_retry and feature is None)):
            return self._again_by_itself(wanted, ended)
        return RunExperiment.of(SubmittedExperiment(ended.experiment.encode(), "unchanged"), ways=ended.ways)

    def _again_by_itself(self, wanted: Wanted, ended: Ended) -> RunExperiment:
        since = f"{ended.name} had failed" + (
            f", and {changed_words(ended.changes)} changed since" if ended.changes else ""
        )
        if ended.ways.can_retry:
            trials = "its trial runs" if ended.lost == 1 else f"its {ended.lost} trials run"
            return self._continue(wanted, ended.experiment, failed=True, note=f"{since}, so {trials} again")
        submission, aside = self._restarted(wanted, ended.experiment)
        note = f"{since}, so it starts again; the old one is {aside} now"
        return RunExperiment.of(submission, notes=(note,))

    def _chosen(self, wanted: Wanted, choice: Choice) -> RunExperiment:
        """Carry out the user's choice."""
        found = self._stored(wanted)
        if found is None and choice.restart:
            return RunExperiment.of(self._submitted(wanted))
        if found is None:
            option = "--retry-failed" if choice.retry_failed else "--more"
            raise invalid(
                option, "there is no experiment of this name yet", "leave it out", "choice-without-experiment"
            )
        if choice.restart:
            submission, aside = self._restarted(wanted, found)
            return RunExperiment.of(submission, notes=(f"{found.name} starts again; the old one is {aside} now",))
        ended = self._state_of(wanted, found)
        if not ended.same_search:
            cause = f"{changed_words(ended.changes)} changed since"
            raise invalid(f"experiment {ended.name}", cause, "undo that, or use --restart", "choice-other-search")
        _check_possible(ended, choice)
        failed = choice.retry_failed or (bool(choice.more) and ended.is_useless)
        if not choice.more:
            return self._continue(wanted, found, failed=failed, note="")
        key, program = key_of(found), self._repeats.program_of(found)
        self._repeats.undisturbed(key, lambda: self._repeats.run_again(key, program, failed=failed, more=choice.more))
        return RunExperiment.of(SubmittedExperiment(self._service.get(Experiment, *key).encode(), "updated"))

    def _continue(self, wanted: Wanted, experiment: Experiment, *, failed: bool, note: str) -> RunExperiment:
        """Let an experiment continue with the counts of its document: both at once, or it would end again between."""
        key, program = key_of(experiment), self._repeats.program_of(experiment)

        def go_on() -> SubmittedExperiment:
            self._repeats.run_again(key, program, failed=failed)
            return self._submitted(wanted)

        submission = self._repeats.undisturbed(key, go_on)
        return RunExperiment.of(submission, notes=(note,) if note else ())

    def _restarted(self, wanted: Wanted, experiment: Experiment) -> tuple[SubmittedExperiment, str]:
        """Take a document, checked first, in place of an experiment; return the new name of that one, too."""
        admitted = self._service.admit(wanted.candidate)
        key = key_of(experiment)
        aside = self._repeats.undisturbed(key, lambda: self._repeats.set_aside(key))
        return self._service.take(admitted, command=wanted.command), aside

    def _submitted(self, wanted: Wanted) -> SubmittedExperiment:
        return self._service.take(wanted.candidate, command=wanted.command)

    def _stored(self, wanted: Wanted) -> Experiment | None:
        """Return the experiment of a document as it is stored; None when there is none."""
        loaded = wanted.experiment
        try:
            return self._service.get(Experiment, loaded.namespace, loaded.name)
        except NotFoundError:
            return None

    def _state_of(self, wanted: Wanted, found: Experiment) -> Ended:
        """Return the changes of an experiment, whether it has ended or not."""
        try:
            self._submitted(wanted)
        except InvalidError as error:
            if any(field.origin not in _OF_AN_UPDATE for field in error.errors):
                raise
            return self._differing(wanted, found, error)
        return self._ended(found, self._changes_of_program(found))

    def _ended(self, experiment: Experiment, changes: Sequence[str]) -> Ended:
        return Ended(experiment, tuple(changes), same_search=True, more=0)

    def _differing(self, wanted: Wanted, found: Experiment, error: InvalidError) -> Ended:
        same_search = not any(field.origin in ("update-immutable", "update-max-trials") for field in error.errors)
        count, budget = wanted.experiment.spec.max_trial_count, found.spec.max_trial_count
        more = max(0, count - budget) if count is not None and budget is not None else 0
        fields = [_changed_field(field, wanted.source) for field in error.errors if field.origin not in _OF_COUNTS]
        changes = (*(fields or ["its counts of trials"]), *self._changes_of_program(found))
        return Ended(found, changes, same_search=same_search, more=more)

    def _changes_of_program(self, experiment: Experiment) -> Sequence[str]:
        """Return the changes; an installed package counts only if nothing worked without it."""
        return self._repeats.changed_files(experiment, with_packages=_has_no_value(experiment))


def _larger(feature: Feature, wanted: Wanted, ended: Ended) -> str:
    """Return the main setting of a feature in a document if it differs from the stored one; empty otherwise."""
    changed = feature.changes(ended.experiment.metadata.annotations, wanted.experiment.metadata.annotations)
    return changed.get(feature.annotations[0].name, "")


def _check_possible(ended: Ended, choice: Choice) -> None:
    """Raise if an experiment would end again at once."""
    where = f"experiment {ended.name}"
    if choice.retry_failed and not ended.lost:
        raise invalid(where, "none of its trials failed", "use --more N or --restart", "choice-nothing-failed")
    if not choice.more or not is_completed(ended.experiment):
        return
    reason = _reason(ended.experiment)
    if "GoalReached" in reason:
        raise invalid(where, "it reached its goal", "change objective.goal and use --restart", "choice-goal")
    if (feature := ENDINGS.get(reason)) is not None:
        cause, remedy = f"it spent its {feature.name}", f"use a larger --{feature.name} in place of --more"
        raise invalid(where, cause, remedy, "choice-budget")
    if "EndReached" in reason:
        raise invalid(where, "its search is complete", "widen the search space and use --restart", "choice-complete")
    limit = ended.experiment.spec.max_failed_trial_count
    if limit is not None and ended.lost >= max(1, limit) and not choice.retry_failed and not ended.is_useless:
        cause = f"{ended.lost} of its trials failed, and maxFailedTrialCount is {limit}"
        raise invalid(where, cause, "add --retry-failed", "choice-failed")


def _changed_field(field: FieldError, source: str) -> str:
    if field.origin == _OF_A_COMPANION:
        return field.cause.partition(" changed")[0]
    return field.path if source == "command line" else f"{field.path} in {source}"


def _with_restart(error: InvalidError) -> InvalidError:
    """Return the errors of an unfinished experiment whose file changed, with the way on that the command line has."""
    remedy = "undo it, or add --restart: the old one is kept under a name with a number"
    return InvalidError(
        [replace(field, remedy=remedy) if field.origin == "update-immutable" else field for field in error.errors]
    )


def changed_words(changes: Sequence[str]) -> str:
    """Return the changes as the subject of a sentence; of many the first ones."""
    shown = list(changes[:_SHOWN_CHANGES])
    if len(changes) > _SHOWN_CHANGES:
        shown.append(f"{len(changes) - _SHOWN_CHANGES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _may_have_more(ended: Ended) -> bool:
    try:
        _check_possible(ended, Choice(more=1))
    except KatibError:
        return False
    return ended.same_search and ended.experiment.spec.max_trial_count is not None


def ways_on(experiment: Experiment) -> WaysOnward:
    """Return the choices for an ended experiment whose program is unknown."""
    return Ended(experiment, (), same_search=True, more=0).ways


def ended_without_value(experiment: Experiment) -> bool:
    """Return whether an experiment failed without one usable trial."""
    return state_of(experiment) == "Failed" and _has_no_value(experiment)


def _has_no_value(experiment: Experiment) -> bool:
    status = experiment.status
    return not status.current_optimal_trial.best_trial_name and not status.trials_succeeded


def _reason(experiment: Experiment) -> str:
    return next((c.reason for c in experiment.status.conditions if c.type in COMPLETED_EXPERIMENT), "")
