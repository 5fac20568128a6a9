"""`katib trials`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from katib.cli import columns, options
from katib.cli.printing import Table, print_objects
from katib.tuning.reading import TRIAL_STATES, Json, name_of, objective_of, objective_value, status_of, time_of


@click.command(
    short_help="List the trials of an experiment.",
    epilog=options.examples(
        "katib trials my-experiment --sort objective --limit 5",
        "katib trials my-experiment -s Failed -s MetricsUnavailable -o wide",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
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
    type=click.Choice(("age", "objective", "duration", "name")),
    default="age",
    show_default=True,
    help="Oldest, best, longest or first name on top.",
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@options.output("wide", "json", "yaml", "name")
@options.connection
def command(
    name: str,
    states: tuple[str, ...],
    sort: str,
    limit: int | None,
    form: str | None,
    target: options.Target,
) -> None:
    """List the trials of an experiment."""
    from katib.cli.connection import connect
    from katib.cli.get import all_trials

    with connect(target, read_only=True) as (service, namespace):
        trials = all_trials(service, namespace, name, states)
    trials.sort(key=_SORT_KEYS[sort])
    chosen = trials[:limit]
    if form in ("json", "yaml", "name"):
        print_objects(chosen, form)
    elif not chosen:
        click.echo(f"{name} has no {'such ' if states else ''}trials yet", err=True)
    else:
        Table(columns.headings("Trial", wide=form == "wide")).print(
            columns.row(trial, wide=form == "wide") for trial in chosen
        )


def _by_objective(trial: Json) -> float:
    """Sort the best to the top and trials without a number to the end."""
    try:
        value = float(objective_value(trial) or "nan")
    except ValueError:
        return math.inf
    if math.isnan(value):
        return math.inf
    return value if objective_of(trial).get("type") == "minimize" else -value


def _by_duration(trial: Json) -> float:
    start, end = (time_of(status_of(trial).get(field)) for field in ("startTime", "completionTime"))
    return -(end - start).total_seconds() if start and end else 0.0


_SORT_KEYS: dict[str, Callable[[Json], Any]] = {
    "age": lambda _trial: 0,
    "objective": _by_objective,
    "duration": _by_duration,
    "name": name_of,
}
