"""`katib run` of an existing experiment: the options, the question at a terminal, and the messages.

The service makes the decision (`katib.service.tuning.repeating`).
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click
from msgspec import structs

from katib.doors.cli import run_options as options
from katib.errors import InvalidError
from katib.model.loading import FileText
from katib.model.types import Experiment
from katib.model.wording import counted
from katib.service.tuning.service import NO_CHOICE, Choice, RunExperiment, SubmittedExperiment, WaysOnward
from katib.service.tuning.states import state_of

if TYPE_CHECKING:
    from katib.doors.cli.run.following import Run
    from katib.places.machine import Engine
    from katib.service.tuning.service import TuningService
    from katib.service.tuning.submission import Candidate

F = TypeVar("F", bound=Callable[..., Any])

COMMAND_LINE = "command line"
"""Source name of an experiment drafted from a line instead of a file."""

CHOICE_NEEDED = 3
"""Exit code if an experiment has ended, something changed since, and there is no terminal to ask at."""

_OPTIONS = (
    click.option("--restart", is_flag=True, help="Run it again from the start; the old one is kept as NAME-1."),
    click.option("--retry-failed", is_flag=True, help="Run its failed trials again, with the same values."),
    click.option("--more", type=click.IntRange(min=1), metavar="N", help="Add N trials to its budget."),
)


def choice_options(function: F) -> F:
    """Add the options for an existing experiment; the command gets them as `choice`."""

    @functools.wraps(function)
    def command(*args: Any, restart: bool, retry_failed: bool, more: int | None, **kwargs: Any) -> Any:
        if restart and (retry_failed or more):
            other = "--retry-failed" if retry_failed else "--more"
            raise click.UsageError(f"--restart contradicts {other}; leave one out", click.get_current_context())
        return function(*args, choice=Choice(restart, retry_failed, more or 0), **kwargs)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command  # type: ignore[return-value]  # click calls it by its parameters


@dataclass(frozen=True, slots=True)
class Wanted:
    """Request of a command line, independent of the place.

    Attributes:
        namespace: Namespace if the file names none.
        choice: The user's choice for an existing experiment.
        form: Output format of the final object; None prints lines.
        quiet: Whether to print the result only.
        drafted: Whether there is no file to run again.
        tells_ways: Whether to name the ways to run an experiment again that had ended.
    """

    file: FileText
    namespace: str | None
    choice: Choice
    form: str | None
    quiet: bool
    drafted: bool = False
    tells_ways: bool = True

    @property
    def may_ask(self) -> bool:
        """Whether the user can be asked: at a terminal that shows more than a result."""
        return not self.quiet and self.form is None and sys.stdin.isatty() and sys.stderr.isatty()

    def admitted_first(self, engine: Engine, directory: Path) -> Candidate | None:
        """Return the experiment of the file, admitted before an engine opens: an invalid file leaves no data directory.

        None if the data directory exists: the meaning of the file depends on the experiments in it.

        Raises:
            InvalidError: The file is invalid.
        """
        file = self.file
        return None if directory.exists() else engine.admit(file, source=file.source, namespace=self.namespace)

    def submit_here(self, engine: Engine, admitted: Candidate | None, /) -> Submitted:
        """Submit the file to an engine that is open, and not started; otherwise as `submit_at`."""
        file = self.file
        candidate = admitted or engine.service.load(file, source=file.source, namespace=self.namespace)
        run = functools.partial(engine.service.repeat, candidate, source=file.source, command=options.typed_line())
        return submit(run, self.choice, may_ask=self.may_ask)

    def submit_at(self, service: TuningService) -> Submitted:
        """Submit the file to a server.

        Raises:
            InvalidError: The document is invalid, or the choice is impossible.
        """
        return submit(submitter(service, self), self.choice, may_ask=self.may_ask)

    def submit_in_cluster(self, service: TuningService, namespace: str) -> Submitted:
        """Submit the file in a cluster; otherwise as `submit_at`."""
        file = self.file
        return Submitted(service.submit(file, source=file.source, namespace=self.namespace or namespace))

    def report(self, run: Run, place: str, /) -> int:
        """Print how a run ended; return the exit code."""
        return run.report(place)

    def note(self, *sentences: str) -> None:
        """Print notes, unless quiet."""
        for sentence in () if self.quiet else sentences:
            click.echo(f"note: {sentence}", err=True)


@dataclass(frozen=True, slots=True)
class Here:
    """Settings of a run on this machine.

    Attributes:
        config: File with further algorithms.
        containers: Container runtime for the images of trials.
        slurm: Options of `sbatch` if trials run as Slurm jobs; None runs them on this machine.
        detach: Whether a server in the background runs it.
    """

    data_dir: Path | None
    config: Path | None = None
    containers: str | None = None
    slurm: tuple[str, ...] | None = None
    detach: bool = False

    @property
    def directory(self) -> Path:
        return self.data_dir or options.default_data_dir()

    @property
    def option(self) -> str:
        """The option that names it to later commands, after a blank; empty if not needed."""
        is_needed = self.data_dir is not None or options.is_place_set()
        return f" --data-dir {shlex.quote(str(self.directory))}" if is_needed else ""


class Submitter(Protocol):
    """Submits a document with the user's choice."""

    def __call__(self, *, choice: Choice) -> RunExperiment:
        """Return the result of the submission."""


def submitter(service: TuningService, wanted: Wanted) -> Submitter:
    """Return a function that submits the file of a command to a service."""
    file, command = wanted.file, options.typed_line()

    def run(*, choice: Choice) -> RunExperiment:
        chosen = structs.asdict(choice)
        return service.run(file, source=file.source, namespace=wanted.namespace, command=command, **chosen)

    return run


class Submitted(NamedTuple):
    """Result of submitting a document.

    Attributes:
        code: The exit code if nothing is followed.
        notes: Sentences about the actions taken.
    """

    submission: SubmittedExperiment | None
    code: int = 0
    notes: tuple[str, ...] = ()


def submit(run: Submitter, choice: Choice = NO_CHOICE, *, may_ask: bool = False) -> Submitted:
    """Submit a document; an ended experiment runs again if requested.

    Raises:
        InvalidError: The document is invalid, or the choice is impossible.
    """
    outcome = run(choice=choice)
    ways, experiment = outcome.ways, outcome.experiment
    if ways is not None and may_ask and (chosen := _asked(experiment, ways)):
        outcome = run(choice=chosen)
    elif ways is not None and not may_ask and ways.changes:
        click.echo(f"error: {_summary(experiment, ways)}; {_ways(ways)}", err=True)
        return Submitted(None, CHOICE_NEEDED)
    return Submitted(outcome, notes=outcome.notes)


def _summary(experiment: Experiment, ways: WaysOnward) -> str:
    from katib.service.tuning.repeating import changed_words

    verb = "has failed" if state_of(experiment) == "Failed" else "has ended"
    since = f", and {changed_words(ways.changes)} changed since" if ways.changes else ""
    return f"{experiment.name} {verb}{since}"


def _ways(ways: WaysOnward) -> str:
    """Return the applicable options, as part of a sentence."""
    words = ["--restart (the old one is kept as a numbered one)"]
    if ways.can_retry:
        words.append(f"--retry-failed ({counted(ways.lost, 'trial')})")
    if ways.may_have_more:
        words.append("--more N")
    return f"run it again with {words[0] if len(words) == 1 else ', '.join(words[:-1]) + ' or ' + words[-1]}"


def had_ended(experiment: Experiment) -> str:
    """Return the line for an experiment that had ended before and was not run now."""
    from katib.service.tuning.repeating import ways_on

    return f"{experiment.name} had ended before, so nothing was run now; {_ways(ways_on(experiment))}"


def _asked(experiment: Experiment, ways: WaysOnward) -> Choice:
    """Ask the user at the terminal."""
    rows = [("r", "restart: all of it runs again, and the old one is kept as a numbered one")]
    if ways.can_retry:
        rows.append(("f", f"retry failed: {counted(ways.lost, 'trial')} run again with the same values"))
    if ways.may_have_more:
        rows.append(("m", "more: it continues with a larger budget"))
    rows.append(("n", "nothing: show how it ended"))
    click.echo(f"{_summary(experiment, ways)}.", err=True)
    for key, words in rows:
        click.echo(f"  {key}  {words}", err=True)
    keys = [key for key, _ in rows]
    answer = click.prompt("What now?", type=click.Choice(keys), default="n", show_choices=True, err=True)
    if answer == "m":
        budget = experiment.spec.max_trial_count or 1
        return Choice(more=click.prompt("How many more?", type=click.IntRange(min=1), default=budget, err=True))
    return Choice(restart=answer == "r", retry_failed=answer == "f")


def wrong(error: InvalidError, source: str) -> int:
    """Print the errors of a file, or of the line typed instead; return the exit code."""
    if source == COMMAND_LINE:
        from katib.service.drafting import in_options

        texts = click.get_current_context().params["parameters"]
        error, source = in_options(error, [text.partition("=")[0] for text in texts]), ""
    from katib.doors.cli.failures import error_lines

    for line in error_lines(error, source):
        click.echo(f"error: {line}", err=True)
    return options.BAD_INPUT
