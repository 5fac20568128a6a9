"""`katib budget`, `stop`, `tag`, `pause`, `resume` and `trial add`: changes to existing experiments and trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from katib.doors.cli import options
from katib.model.marks import Marks, marks_of
from katib.model.types import Experiment, Trial
from katib.model.wording import counted
from katib.service.tuning.states import active_count, completed_count, is_completed

if TYPE_CHECKING:
    from katib.service.tuning.service import TuningService


_EITHER = options.PlainName("Experiment", "Trial")


@click.command(
    epilog=options.examples(
        "katib tag my-experiment baseline resnet",
        "katib tag my-experiment --remove baseline --note 'learning rate was too high'",
        "katib tag my-experiment-4fj2x1aa candidate",
    ),
)
@click.argument("name", type=_EITHER)
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", multiple=True, metavar="TAG", help="Remove this tag; may be given several times.")
@click.option("--note", metavar="TEXT", help='Note to store, replacing the last one; "" removes it.')
@options.connection
def tag(
    name: str,
    tags: tuple[str, ...],
    remove: tuple[str, ...],
    note: str | None,
    target: options.Target,
) -> None:
    """Set tags and notes of an experiment or a trial, and show them.

    The lists of experiments and of trials on the page show them and can search for them. They are stored in
    annotations.
    """
    from katib.doors.cli.connection import connect, experiment_or_trial

    changes_something = bool(tags or remove) or note is not None
    with connect(target, read_only=not changes_something, nothing_to_run=target.has_data) as (service, namespace):
        marked: Experiment | Trial = experiment_or_trial(service, namespace, name)
        name = marked.name
        if changes_something:
            before = marks_of(marked.metadata.annotations).tags
            kept = tuple(one for one in dict.fromkeys((*before, *tags)) if one not in remove)
            marks = kept if tags or remove else None
            given = {"tags": marks, "notes": note}
            changes: dict[str, Any] = {mark: value for mark, value in given.items() if value is not None}
            edit = service.edit_trial if isinstance(marked, Trial) else service.edit
            marked = edit(namespace, name, **changes)
    for line in _lines(marks_of(marked.metadata.annotations)):
        click.echo(f"{marked.kind.lower()}/{name}: {line}")


def _lines(marks: Marks) -> Iterator[str]:
    yield f"tags {', '.join(marks.tags)}" if marks.tags else "no tags"
    for line in marks.notes.splitlines():
        yield f"note: {line}"


_NO_LIMIT = "none"


class _Count(click.ParamType[int | str]):
    """A whole number, or `none` for no limit."""

    name = "count"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word for no limit."""
        if value == _NO_LIMIT:
            return _NO_LIMIT
        return click.IntRange(self._least)(value, param, ctx)


@click.command(
    epilog=options.examples(
        "katib budget my-experiment --max-trials 40",
        "katib budget my-experiment --parallel 4 --max-failed none",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.option("--max-trials", type=_Count(1), metavar="N", help="Trials in all; none: no limit.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="Trials at once.")
@click.option("--max-failed", type=_Count(0), metavar="N", help="Failed trials that end it; none: no limit.")
@options.connection
def budget(
    name: str, max_trials: int | str | None, parallel: int | None, max_failed: int | str | None, target: options.Target
) -> None:
    """Change how many trials an experiment makes, in all and at once.

    An experiment that has used up its budget continues with a larger one if its resumePolicy is LongRunning or
    FromVolume.
    """
    from katib.doors.cli.connection import connect, experiment_meant
    from katib.service.tuning.editing import COUNT_FIELDS

    given = {"maxTrialCount": max_trials, "parallelTrialCount": parallel, "maxFailedTrialCount": max_failed}
    counts = {field: None if value == _NO_LIMIT else int(value) for field, value in given.items() if value is not None}
    if not counts:
        raise click.UsageError("give --max-trials, --parallel or --max-failed", click.get_current_context())
    with connect(target, read_only=False, nothing_to_run=target.has_data) as (service, namespace):
        name = experiment_meant(service, namespace, name)
        changes: dict[str, Any] = {COUNT_FIELDS[field]: value for field, value in counts.items()}
        service.edit(namespace, name, **changes)
    words = ", ".join(f"{field} {_NO_LIMIT if value is None else value}" for field, value in counts.items())
    click.echo(f"experiment/{name}: {words}")


@click.command(epilog=options.examples("katib stop my-experiment", "katib stop my-experiment --context production"))
@click.argument("name", type=options.EXPERIMENT_NAME)
@options.connection
def stop(name: str, target: options.Target) -> None:
    """Start no further trials of an experiment; running ones continue to their ends.

    `katib resume` resumes it, and so does submitting its file again. If no engine works in the data directory, this is
    noted for the next start.
    """
    from katib.doors.cli.connection import connect, experiment_meant

    with connect(target, read_only=False, nothing_to_run=target.has_data) as (service, namespace):
        name = experiment_meant(service, namespace, name)
        experiment = service.edit(namespace, name, stopped=True)
        active = active_count(experiment) if _is_at_work(service, target) else 0
    left = f"; {active} trials that run continue to their ends" if active else ""
    if active == 1:
        left = "; the trial that runs continues to its end"
    done = completed_count(experiment)
    click.echo(f"experiment/{name}: stopped after {counted(done, 'trial')}{left}")


@click.command(epilog=options.examples("katib pause my-experiment-4fj2x1aa", "katib pause my-experiment -n team-a"))
@click.argument("name", type=_EITHER)
@options.connection
def pause(name: str, target: options.Target) -> None:
    """Pause a trial, or an experiment with all its running trials.

    The programs of a paused trial are asked to end (SIGTERM) and have their grace period. That is no failure, and the
    pause does not count towards its duration. Another trial takes its place, unless the experiment is paused.

    `katib resume` resumes it. Its program then starts from its last checkpoint, with its readings, otherwise from the
    beginning.
    """
    from katib.doors.cli.connection import connect, experiment_or_trial

    with connect(target, read_only=False, nothing_to_run=target.has_data) as (service, namespace):
        found = experiment_or_trial(service, namespace, name)
        name = found.name
        if isinstance(found, Trial):
            service.edit_trial(namespace, name, paused=True)
            what = f"trial/{name}: paused"
        else:
            answer = service.pause(namespace, name, paused=True)
            what = f"experiment/{name}: paused, with {counted(len(answer.trials), 'trial')}"
    click.echo(f"{what}; `katib resume {name}{target.choice}` resumes it")


@click.command(epilog=options.examples("katib resume my-experiment", "katib resume my-experiment-4fj2x1aa"))
@click.argument("name", type=_EITHER)
@options.connection
def resume(name: str, target: options.Target) -> None:
    """Resume a stopped, paused or interrupted experiment, or a paused trial.

    A trial starts its program again, from its last checkpoint or from the beginning.
    """
    from katib.doors.cli.connection import connect, experiment_or_trial

    with connect(target, read_only=False, nothing_to_run=target.has_data) as (service, namespace):
        found = experiment_or_trial(service, namespace, name)
        name = found.name
        if isinstance(found, Trial):
            service.edit_trial(namespace, name, paused=False)
            click.echo(f"trial/{name}: {_goes_on(service, target)}")
            return
        experiment = service.pause(namespace, name, paused=False).experiment
    if is_completed(experiment):
        from katib.service.explaining.ended import more_trials

        more = target.complete(more_trials(experiment, options.DEFAULT_NAMESPACE, at_work=True))
        click.echo(f"experiment/{name}: it has ended; {more[:1].lower()}{more[1:].rstrip('.')}")
        return
    click.echo(f"experiment/{name}: {_goes_on(service, target)}")


def _is_at_work(service: TuningService, target: options.Target) -> bool:
    """Return whether controllers work on a service's objects; not if only its data directory is open."""
    from katib.doors.rest.client import HttpTuningService

    return bool(target.cluster) or isinstance(service, HttpTuningService)


def _goes_on(service: TuningService, target: options.Target) -> str:
    if _is_at_work(service, target):
        return "resumed"
    return f"is resumed, and nothing works on it now; `katib serve{target.place}` or its own command resumes it"


@click.group()
def trial() -> None:
    """Work on trials by hand."""


@trial.command(
    epilog=options.examples(
        "katib trial add my-experiment lr=0.1 layers=3",
        "katib trial add my-experiment optimizer=adam lr=1e-3 --context production",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.argument("assignments", nargs=-1, required=True, metavar="PARAMETER=VALUE...")
@options.connection
def add(name: str, assignments: tuple[str, ...], target: options.Target) -> None:
    """Run a trial next, before those that the algorithm proposes.

    It counts against the budget of the experiment like any other trial. For trials that run first from the beginning,
    use spec.initialTrials in the file.
    """
    from katib.doors.cli.connection import connect, experiment_meant
    from katib.service.tuning.service import chosen_values

    values = options.pairs(assignments, "PARAMETER=VALUE")
    with connect(target, read_only=False, nothing_to_run=target.has_data) as (service, namespace):
        name = experiment_meant(service, namespace, name)
        before = service.add_trial(namespace, name, chosen_values(values))
    others = f", after {before} others that were added by hand" if before else ""
    click.echo(f"experiment/{name}: a trial with {', '.join(assignments)} runs next{others}")
