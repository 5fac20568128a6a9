"""`katib best`, `katib trials` and `katib logs`: the results of a run."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import get_args

import click

from katib.doors.cli import columns, options
from katib.doors.cli.printing import NOTHING, Table, aligned, print_data, print_objects
from katib.errors import NotFoundError
from katib.model.features.repeats.feature import are_repeated
from katib.model.types import Experiment, ParetoSet, Trial
from katib.service.tuning.reading import (
    assignments_of,
    compared_words,
    infeasible_words,
    mean_words,
    metric_rows,
    metric_values,
    parameters_of,
    pareto_trials,
    pareto_words,
    short,
    shortened,
)
from katib.service.tuning.replicas import trial_of
from katib.service.tuning.service import State, TrialOrder
from katib.service.tuning.states import TRIAL_STATES


@click.command(
    epilog=options.examples(
        "katib best my-experiment",
        "katib best my-experiment -o json | jq '.spec.parameterAssignments | from_entries'",
        "katib best my-experiment -o csv",
    ),
)
@options.newest_or_named
@options.output("json", "yaml", "name", "csv")
@options.connection
def best(
    name: str | None,
    form: str | None,
    target: options.Target,
) -> int:
    """Show the best trial of an experiment so far: its metrics and its parameters.

    With several objectives, these are the trials of the Pareto set: no other one is better in all objectives. Once
    `katib confirm` has run the best ones again, it is the one of the best mean.

    The default is the newest experiment.
    """
    from katib.doors.cli.connection import connect, experiment_meant

    with connect(target, read_only=True) as (service, namespace):
        name = experiment_meant(service, namespace, name)
        experiment = service.get(Experiment, namespace, name)
        best, confirmation = service.best(namespace, name), service.confirmation(namespace, name)
    if best is None:
        cause = infeasible_words(experiment) or f"no trial of {name} has a usable objective value yet"
        click.echo(f"error: {cause}; `katib why {name}` says why", err=True)
        return 1
    chosen = pareto_trials(experiment)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows(csv_rows(chosen or [best]))
    elif form == "name":
        for trial in chosen or [best]:
            click.echo(f"trial/{trial.name}")
    elif form:
        print_data(experiment.encode()["status"]["paretoSet"] if chosen else best.encode(), form)
    else:
        for line in pareto_lines(experiment) if chosen else best_lines(best):
            click.echo(line)
        if confirmation is not None:
            from katib.doors.cli.confirm import sentences

            for line in sentences(confirmation):
                click.echo(line)
        elif compared := compared_words(experiment):
            click.echo(f"Compared: {compared}")
    return 0


_LONGEST = 100
"""Maximum printed length of a value, such as an architecture; `-o json` has all of it."""


def csv_rows(trials: Sequence[Trial]) -> Iterator[Sequence[str]]:
    """Yield a heading and a row for each trial: its name, its metrics, its parameters; empty for missing values."""
    metrics = dict.fromkeys(name for trial in trials for name, _ in metric_values(trial))
    parameters = dict.fromkeys(name for trial in trials for name in assignments_of(trial))
    yield ["trial", *metrics, *parameters]
    for trial in trials:
        read, assigned = dict(metric_values(trial)), assignments_of(trial)
        yield [trial.name, *(read.get(m, "") for m in metrics), *(assigned.get(p, "") for p in parameters)]


def pareto_lines(experiment: Experiment) -> Iterator[str]:
    """Yield the trials of the Pareto set, aligned."""
    trials, found = pareto_trials(experiment), experiment.status.pareto_set or ParetoSet()
    reference = ", ".join(f"{point.name}={short(point.value)}" for point in found.reference_point)
    yield f"Pareto set: {pareto_words(experiment)} (measured from {reference})"
    metrics = dict.fromkeys(name for trial in trials for name, _ in metric_values(trial))
    rows = [
        [t.name, *(short(dict(metric_values(t)).get(m, NOTHING)) for m in metrics), parameters_of(t)] for t in trials
    ]
    yield from aligned([["TRIAL", *metrics, "PARAMETERS"], *rows])
    more = found.trial_count - len(trials)
    if more > 0:
        yield f"and {more} more between them"


def best_lines(trial: Trial) -> list[str]:
    """Return a trial with its metrics and parameters, aligned; long values are abbreviated in the middle.

    Of further metrics all summary values of the status are shown, since no single one describes them.
    """
    pairs = [(name, shortened(value, _LONGEST)) for name, value in metric_values(trial)]
    assignments = {name: shortened(value, _LONGEST) for name, value in assignments_of(trial).items()}
    width = max((len(name) for name in (*dict(pairs), *assignments)), default=0)
    values = [[name.ljust(width), value] for name, value in pairs]
    if trial.status.observation is not None and trial.status.observation.at_best:
        rows = [[shortened(cell, _LONGEST) for cell in row.values()] for row in metric_rows(trial)]
        values = [["".ljust(width), "AT THE BEST", "MIN", "MAX", "LATEST"], *rows]
    has_long = any(
        len(value) > _LONGEST for value in (*dict(metric_values(trial)).values(), *assignments_of(trial).values())
    )
    return [
        f"Best trial: {trial.name}",
        *(f"  {line}".rstrip() for line in aligned(values)),
        "Parameters:",
        *(f"  {name.ljust(width)}   {value}" for name, value in assignments.items()),
        *([f"Long values are shortened; `katib get trial {trial.name} -o json` has them whole."] if has_long else []),
    ]


@click.command(
    epilog=options.examples(
        "katib trials my-experiment --sort objective --limit 5",
        "katib trials my-experiment -s Failed -s MetricsUnavailable -o wide",
    ),
)
@options.newest_or_named
@click.option(
    "-s",
    "--state",
    "states",
    multiple=True,
    type=click.Choice(TRIAL_STATES, case_sensitive=False),
    help="Only trials in this state; may be given several times.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(get_args(TrialOrder)),
    default="age",
    show_default=True,
    help="Oldest, best, longest or first name on top.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of trials.")
@options.output("wide", "json", "yaml", "name")
@options.connection
def trials(
    name: str | None,
    states: tuple[State, ...],
    order: TrialOrder,
    limit: int | None,
    form: str | None,
    target: options.Target,
) -> None:
    """List the trials of an experiment. The default is the newest experiment.

    If trials are repeated, MEAN is that of the configuration, with its standard error and the number of its runs.
    """
    from katib.doors.cli.connection import connect, experiment_meant
    from katib.service.tuning.trial_pages import each_trial, pages_of

    with connect(target, read_only=True) as (service, namespace):
        name = experiment_meant(service, namespace, name)
        pages = pages_of(service, namespace, name, states=states, order=order, limit=limit)
        if form in ("json", "yaml", "name"):
            print_objects((dict(document) for page in pages for document in page.documents), form)
            return
        annotations = service.get(Experiment, namespace, name).metadata.annotations
        means = mean_words(each_trial(service, namespace, name)) if are_repeated(annotations) else {}
        rows = [
            {**columns.cells_of(trial), "MEAN": means.get(trial.name, "")} for page in pages for trial in page.items
        ]
    if rows:
        headings = columns.used(columns.headings("Trial", wide=form == "wide"), rows)
        Table(headings).print([row[heading] for heading in headings] for row in rows)
    else:
        click.echo(f"{name} has no {'such ' if states else ''}trials yet", err=True)


@click.command(
    epilog=options.examples(
        "katib logs my-experiment-k4x8bq2z --tail 20",
        "katib logs my-experiment-k4x8bq2z -f",
        "katib logs my-experiment-k4x8bq2z --replica worker-1",
        "katib logs pod/my-experiment-k4x8bq2z-x7k2p",
    ),
)
@click.argument("trial", type=options.TRIAL_OR_POD_NAME)
@click.option("-f", "--follow", is_flag=True, help="Follow until the trial ends.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Number of last lines.")
@click.option(
    "-r",
    "--replica",
    type=options.REPLICA_NAME,
    default="",
    help="Of this replica of its job, such as worker-1, or by the pod's name; else of the one that reports metrics.",
)
@click.option("-c", "--container", default="", help="Of this container of the pod; else of the primary one.")
@options.connection
def logs(
    trial: str,
    follow: bool,
    tail: int | None,
    replica: str,
    container: str,
    target: options.Target,
) -> None:
    """Print the output of a trial, or of a current pod, byte for byte."""
    from katib.doors.cli.connection import connect
    from katib.doors.cli.selecting import pod_named

    with connect(target, read_only=True) as (service, namespace):
        read = partial(service.logs, namespace, follow=follow, tail_lines=tail, container=container)
        try:
            _write(read(trial, replica=replica))
        except NotFoundError:
            if replica or (pod := pod_named(service, namespace, trial)) is None:
                raise
            _write(read(trial_of(pod), replica=trial))


def _write(chunks: Iterator[bytes]) -> None:
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
