"""Running an experiment that is there already: what changed since, what the user may want, and doing it.

An experiment that is unfinished goes on. One that has ended and stays as it was is shown again. When its file or its
program changed since, the user chooses; an experiment that brought nothing usable runs again without a question,
because that is what an edit of a failing program is for.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from katib.api.conditions import COMPLETED_EXPERIMENT
from katib.api.loading import FileText
from katib.api.names import PROGRAM_ANNOTATION
from katib.api.types import Experiment
from katib.cli import failures
from katib.errors import FieldError, InvalidError, KatibError, NotFoundError, invalid
from katib.runtime.objects import Key
from katib.tuning.reading import is_completed, lost_count, state_of
from katib.tuning.service import Submission, TuningService

if TYPE_CHECKING:
    from katib.local.engine import Engine
    from katib.tuning.stored_service import ObjectTuningService
    from katib.tuning.submission import Admitted, Candidate

F = TypeVar("F", bound=Callable[..., Any])

CHOICE_NEEDED = 3
"""The exit code where an experiment has ended, something changed since, and there is no terminal to ask at."""

_OF_A_COMPANION = "companion-changed"
_OF_COUNTS = frozenset({"update-not-restartable", "update-max-trials"})
_OF_AN_UPDATE = _OF_COUNTS | {"update-immutable", _OF_A_COMPANION}
"""Origins of errors that mean: the file is right, but not that of the experiment that is there."""
_SHOWN_CHANGES = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with an experiment that is there already; false when nothing was chosen.

    Attributes:
        restart: Run all of it again; the old one is kept under a name with a number.
        retry_failed: Run the failed trials again, with the same assignments.
        more: How many trials to add to its budget.
    """

    restart: bool = False
    retry_failed: bool = False
    more: int = 0

    def __bool__(self) -> bool:
        return self.restart or self.retry_failed or self.more > 0


NOTHING = Choice()
"""Nothing was chosen."""

_OPTIONS = (
    click.option("--restart", is_flag=True, help="Run all of it again; the old one is kept as NAME-1."),
    click.option("--retry-failed", is_flag=True, help="Run its failed trials again, with the same values."),
    click.option("--more", type=click.IntRange(min=1), metavar="N", help="Add N trials to its budget."),
)


def choice_options(function: F) -> F:
    """Add the options for an experiment that is there already; the command gets them as `choice`."""

    @functools.wraps(function)
    def command(*args: Any, restart: bool, retry_failed: bool, more: int | None, **kwargs: Any) -> Any:
        if restart and (retry_failed or more):
            other = "--retry-failed" if retry_failed else "--more"
            raise click.UsageError(f"--restart contradicts {other}; leave one out", click.get_current_context())
        return function(*args, choice=Choice(restart, retry_failed, more or 0), **kwargs)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command  # type: ignore[return-value]  # click calls it by its parameters


class Submitted(NamedTuple):
    """What became of a document.

    Attributes:
        submission: What is followed; None when nothing is.
        code: The exit code where nothing is followed.
        notes: Sentences about what is done.
    """

    submission: Submission | None
    code: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ended:
    """An experiment that has ended, and what changed since."""

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
        return state_of(self.experiment) == "Failed" and self.has_no_value

    @property
    def can_retry(self) -> bool:
        return self.same_search and self.lost > 0


def admitted_first(engine: Engine, directory: Path, file: FileText, namespace: str | None) -> Admitted | None:
    """Return the experiment of a file before an engine is opened, so that a wrong file leaves no data directory behind.

    None where the data directory is there: what the file means depends on the experiments in it.

    Raises:
        InvalidError: The file is wrong.
    """
    return None if directory.exists() else engine.admit(file, source=file.source, namespace=namespace)


def submit_here(
    engine: Engine,
    candidate: Candidate,
    source: str,
    choice: Choice,
    *,
    command: str = "",
    may_ask: bool = False,
) -> Submitted:
    """Submit a file to an engine that is not started; an experiment that has ended runs again where that is wanted.

    Args:
        engine: It is open, and not started.
        candidate: The experiment of the file, read or admitted already.
        source: Name of the file, shown in errors.
        choice: What the user chose on the command line.
        command: What submits it, for later explanations.
        may_ask: Whether there is a terminal to ask at.

    Raises:
        InvalidError: The document is wrong, or what was chosen is impossible.
    """
    submitted = _submit(engine, candidate, source, choice, may_ask=may_ask)
    if command and submitted.submission is not None and submitted.submission.outcome == "created":
        engine.repeats.note_command(_key(submitted.submission.experiment), command)
    return submitted


def _submit(engine: Engine, candidate: Candidate, source: str, choice: Choice, *, may_ask: bool) -> Submitted:
    if choice:
        return _chosen(engine, candidate, source, choice)
    try:
        submission = engine.service.take(candidate)
    except InvalidError as error:
        if any(field.origin not in _OF_AN_UPDATE for field in error.errors):
            raise
        found = _stored(engine.service, candidate)
        if found is None or not is_completed(found):
            raise _with_restart(error) from None
        ended = _differing(candidate, source, found, error)
    else:
        if submission.outcome == "created":
            return Submitted(submission)
        ended = _Ended(submission.experiment, _changes_of_program(submission.experiment), same_search=True, more=0)
        if submission.outcome != "unchanged":
            return _resumed(engine, submission, ended)
    return _settle(engine, candidate, source, ended, may_ask=may_ask)


def _resumed(engine: Engine, submission: Submission, unfinished: _Ended) -> Submitted:
    """Go on with an experiment; trials of a program that never worked run again once it has changed."""
    if not (unfinished.changes and unfinished.lost and unfinished.has_no_value):
        return Submitted(submission)
    _run_again(engine, unfinished.experiment, failed=True, more=0)
    trials = "its failed trial runs" if unfinished.lost == 1 else f"its {unfinished.lost} failed trials run"
    note = f"{_changed_words(unfinished.changes)} changed since {unfinished.name} was stopped, so {trials} again"
    return Submitted(submission, notes=(note,))


def _settle(engine: Engine, candidate: Candidate, source: str, ended: _Ended, *, may_ask: bool) -> Submitted:
    """Decide what becomes of an experiment that has ended."""
    if ended.same_search and ended.more:
        note = f"{ended.name} had ended; its budget is {ended.more} trials larger now, so it goes on"
        return _continue(engine, candidate, ended.experiment, failed=ended.is_useless, note=note)
    if ended.is_useless and ended.changes:
        return _again_by_itself(engine, candidate, ended)
    if may_ask:
        choice = _asked(ended)
        if choice:
            return _chosen(engine, candidate, source, choice)
        return Submitted(Submission(ended.experiment, "unchanged"))
    if ended.changes:
        click.echo(f"error: {_summary(ended)}; {_ways(ended)}", err=True)
        return Submitted(None, CHOICE_NEEDED)
    return Submitted(Submission(ended.experiment, "unchanged"))


def _again_by_itself(engine: Engine, candidate: Candidate, ended: _Ended) -> Submitted:
    what = _changed_words(ended.changes)
    if ended.can_retry:
        trials = "its trial runs" if ended.lost == 1 else f"its {ended.lost} trials run"
        note = f"{ended.name} had failed, and {what} changed since, so {trials} again"
        return _continue(engine, candidate, ended.experiment, failed=True, note=note)
    admitted = engine.service.admit(candidate)
    aside = engine.repeats.set_aside(_key(ended.experiment))
    note = f"{ended.name} had failed, and {what} changed since, so it starts again; the old one is {aside} now"
    return Submitted(engine.service.take(admitted), notes=(note,))


def _chosen(engine: Engine, candidate: Candidate, source: str, choice: Choice) -> Submitted:
    """Do what the user chose."""
    service = engine.service
    found = _stored(service, candidate)
    if found is None and choice.restart:
        return Submitted(service.take(candidate))
    if found is None:
        option = "--retry-failed" if choice.retry_failed else "--more"
        raise invalid(option, "there is no experiment of this name yet", "leave it out", "choice-without-experiment")
    if choice.restart:
        admitted = service.admit(candidate)
        aside = engine.repeats.set_aside(_key(found))
        note = f"{found.name} starts again; the old one is {aside} now"
        return Submitted(service.take(admitted), notes=(note,))
    ended = _state_of(service, candidate, source, found)
    if not ended.same_search:
        cause = f"{_changed_words(ended.changes)} changed since"
        raise invalid(f"experiment {ended.name}", cause, "undo that, or use --restart", "choice-other-search")
    _check_possible(ended, choice)
    failed = choice.retry_failed or (bool(choice.more) and ended.is_useless)
    if not choice.more:
        return _continue(engine, candidate, found, failed=failed, note="")
    _run_again(engine, found, failed=failed, more=choice.more)
    return Submitted(Submission(service.get(Experiment, *_key(found)), "updated"))


def _check_possible(ended: _Ended, choice: Choice) -> None:
    """Raise where an experiment would end again at once."""
    where = f"experiment {ended.name}"
    if choice.retry_failed and not ended.lost:
        raise invalid(where, "none of its trials failed", "use --more N or --restart", "choice-nothing-failed")
    if not choice.more or not is_completed(ended.experiment):
        return
    reason = next((c.reason for c in ended.experiment.status.conditions if c.type in COMPLETED_EXPERIMENT), "")
    if "GoalReached" in reason:
        raise invalid(where, "it reached its goal", "change objective.goal and use --restart", "choice-goal")
    if "EndReached" in reason:
        raise invalid(where, "its search is complete", "widen the search space and use --restart", "choice-complete")
    limit = ended.experiment.spec.max_failed_trial_count
    if limit is not None and ended.lost >= max(1, limit) and not choice.retry_failed and not ended.is_useless:
        cause = f"{ended.lost} of its trials failed, and maxFailedTrialCount is {limit}"
        raise invalid(where, cause, "add --retry-failed", "choice-failed")


def _continue(engine: Engine, candidate: Candidate, experiment: Experiment, *, failed: bool, note: str) -> Submitted:
    """Let an experiment go on with the counts of its file."""
    _run_again(engine, experiment, failed=failed, more=0)
    return Submitted(engine.service.take(candidate), notes=(note,) if note else ())


def _run_again(engine: Engine, experiment: Experiment, *, failed: bool, more: int) -> None:
    engine.repeats.run_again(_key(experiment), failed=failed, more=more, program=_program_now(experiment))


def _stored(service: TuningService, candidate: Candidate) -> Experiment | None:
    """Return the experiment of a file as it is stored; None when there is none."""
    try:
        return service.get(Experiment, candidate.experiment.namespace, candidate.experiment.name)
    except NotFoundError:
        return None


def _state_of(service: ObjectTuningService, candidate: Candidate, source: str, found: Experiment) -> _Ended:
    """Return what changed of an experiment, whether it has ended or not."""
    try:
        service.take(candidate)
    except InvalidError as error:
        if any(field.origin not in _OF_AN_UPDATE for field in error.errors):
            raise
        return _differing(candidate, source, found, error)
    return _Ended(found, _changes_of_program(found), same_search=True, more=0)


def _differing(candidate: Candidate, source: str, found: Experiment, error: InvalidError) -> _Ended:
    same_search = all(field.origin != "update-immutable" for field in error.errors)
    wanted = candidate.experiment.spec.max_trial_count
    budget = found.spec.max_trial_count
    more = max(0, wanted - budget) if wanted is not None and budget is not None else 0
    fields = [_changed_field(field, source) for field in error.errors if field.origin not in _OF_COUNTS]
    changes = (*(fields or ["its counts of trials"]), *_changes_of_program(found))
    return _Ended(found, changes, same_search=same_search, more=more)


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


def _changes_of_program(experiment: Experiment) -> tuple[str, ...]:
    """Return what changed; a package that was installed counts only where nothing worked without it."""
    from katib.local.program import PACKAGES, changed_files

    kept = experiment.metadata.annotations.get(PROGRAM_ANNOTATION, "")
    changed = changed_files(kept, _program_now(experiment)) if kept else []
    return tuple(name for name in changed if name != PACKAGES or _has_no_value(experiment))


def _program_now(experiment: Experiment) -> dict[str, str]:
    from katib.local.program import program_now

    return program_now(experiment)


# --- words ------------------------------------------------------------------------------------------------------------


def _changed_words(changes: Sequence[str]) -> str:
    shown = list(changes[:_SHOWN_CHANGES])
    if len(changes) > _SHOWN_CHANGES:
        shown.append(f"{len(changes) - _SHOWN_CHANGES} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _summary(ended: _Ended) -> str:
    verb = "has failed" if state_of(ended.experiment) == "Failed" else "has ended"
    since = f", and {_changed_words(ended.changes)} changed since" if ended.changes else ""
    return f"{ended.name} {verb}{since}"


def _ways(ended: _Ended) -> str:
    """Return the options that make sense, as part of a sentence."""
    ways = ["--restart (the old one is kept as a numbered one)"]
    if ended.can_retry:
        ways.append(f"--retry-failed ({ended.lost} trial{'s' * (ended.lost != 1)})")
    if _may_have_more(ended):
        ways.append("--more N")
    return f"run it again with {ways[0] if len(ways) == 1 else ', '.join(ways[:-1]) + ' or ' + ways[-1]}"


def _may_have_more(ended: _Ended) -> bool:
    try:
        _check_possible(ended, Choice(more=1))
    except KatibError:
        return False
    return ended.same_search and ended.experiment.spec.max_trial_count is not None


def ways_on(experiment: Experiment) -> str:
    """Return the line below an experiment that had ended before and was not run now."""
    ended = _Ended(experiment, (), same_search=True, more=0)
    return f"{ended.name} had ended before, so nothing was run now; {_ways(ended)}"


def _asked(ended: _Ended) -> Choice:
    """Ask the user at the terminal."""
    rows = [("r", "restart: all of it runs again, and the old one is kept as a numbered one")]
    if ended.can_retry:
        rows.append(("f", f"retry failed: {ended.lost} trial{'s' * (ended.lost != 1)} run again with the same values"))
    if _may_have_more(ended):
        rows.append(("m", "more: it goes on with a larger budget"))
    rows.append(("n", "nothing: show how it ended"))
    click.echo(f"{_summary(ended)}.", err=True)
    for key, words in rows:
        click.echo(f"  {key}  {words}", err=True)
    keys = [key for key, _ in rows]
    answer = click.prompt("What now?", type=click.Choice(keys), default="n", show_choices=True, err=True)
    if answer == "m":
        budget = ended.experiment.spec.max_trial_count or 1
        return Choice(more=click.prompt("How many more?", type=click.IntRange(min=1), default=budget, err=True))
    return Choice(restart=answer == "r", retry_failed=answer == "f")


def is_terminal() -> bool:
    """Return whether a user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _has_no_value(experiment: Experiment) -> bool:
    status = experiment.status
    return not status.current_optimal_trial.best_trial_name and not status.trials_succeeded


def _key(experiment: Experiment) -> Key:
    return Key(experiment.namespace, experiment.name)


def wrong(error: InvalidError, source: str) -> int:
    """Print what is wrong with a file; return the exit code for it."""
    for line in failures.error_lines(error, source):
        click.echo(f"error: {line}", err=True)
    return failures.BAD_INPUT
