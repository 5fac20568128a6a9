"""`katib metrics`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import TYPE_CHECKING

import click

from katib.doors.cli import options
from katib.doors.cli.printing import Table, print_data
from katib.model.metrics import ZERO_TIME, MetricLog, log_of_try, trial_of_log

if TYPE_CHECKING:
    from katib.service.tuning.service import TuningService


@click.command(
    epilog=options.examples(
        "katib metrics my-experiment-k4x8bq2z -m loss",
        "katib metrics my-experiment-k4x8bq2z --by-step",
        "katib metrics my-experiment-k4x8bq2z -o csv > curve.csv",
    ),
)
@click.argument("trial", type=options.TRIAL_NAME)
@click.option("-m", "--metric", default="", metavar="NAME", help="Only this metric.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Maximum number of readings, the newest ones.",
)
@click.option("--by-step", is_flag=True, help="A line for each step of the training, with the metrics side by side.")
@options.output("json", "yaml", "csv")
@options.connection
def metrics(
    trial: str,
    metric: str,
    limit: int,
    by_step: bool,
    form: str | None,
    target: options.Target,
) -> None:
    """Show the readings of a trial's metrics in order of steps, if known, then of time."""
    from katib.doors.cli.connection import connect

    with connect(target, read_only=True) as (service, namespace):
        readings = service.metrics(namespace, trial, metric=metric, limit=limit)
        tries = [] if form or trial_of_log(trial) != trial else _earlier_tries(service, namespace, trial)
    if not readings and not form:
        click.echo(f"{trial} has reported no {metric or 'metrics'} yet; `katib why {trial}` says why", err=True)
    elif by_step:
        _show_steps(trial, readings, form)
    else:
        _show_readings(readings, form)
    for name in tries:
        click.echo(f"an earlier try of it reported as well, which does not count: `katib metrics {name}`", err=True)


def _earlier_tries(service: TuningService, namespace: str, trial: str) -> list[str]:
    """Return the log names of failed earlier tries."""
    names = (log_of_try(trial, number) for number in count(1))
    return list(takewhile(lambda name: service.metrics(namespace, name, limit=1), names))


def _show_readings(readings: Sequence[MetricLog], form: str | None) -> None:
    """Print a line for each reading, with a column of steps if there are any."""
    names = ["time", "metric", "value"]
    if any(reading.step is not None for reading in readings):
        names.insert(1, "step")
    lines = list(map(_fields, readings))
    if form in ("json", "yaml"):
        print_data(lines, form)
    else:
        _print_table(names, [[str(line.get(name, "")) for name in names] for line in lines], form)


def _show_steps(trial: str, readings: Sequence[MetricLog], form: str | None) -> None:
    """Print a line for each step, with the last reading of each metric there."""
    steps: dict[int, dict[str, str]] = {}
    for reading in readings:
        if reading.step is not None:
            steps.setdefault(reading.step, {})[reading.name] = reading.value
    if form in ("json", "yaml"):
        print_data([{"step": step, "metrics": values} for step, values in steps.items()], form)
    elif steps or form:
        metrics = list(dict.fromkeys(name for values in steps.values() for name in values))
        rows = [[str(step), *(values.get(name, "") for name in metrics)] for step, values in steps.items()]
        _print_table(["step", *metrics], rows, form, headings=["STEP", *metrics])
    else:
        click.echo(f"{trial} has reported no steps; leave out --by-step", err=True)


def _print_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], form: str | None, *, headings: Sequence[str] = ()
) -> None:
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows((names, *rows))
    else:
        Table(tuple(headings or map(str.upper, names))).print([tuple(row) for row in rows])


def _fields(reading: MetricLog) -> Mapping[str, str | int]:
    """Return the printed fields of a reading; the time is empty if it has none."""
    time = "" if reading.time == ZERO_TIME else reading.time.isoformat().replace("+00:00", "Z")
    step = {} if reading.step is None else {"step": reading.step}
    return {"time": time, **step, "metric": reading.name, "value": reading.value}
