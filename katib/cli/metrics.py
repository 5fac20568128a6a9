"""`katib metrics`."""

from __future__ import annotations

import csv
import sys

import click

from katib.api.metrics import ZERO_TIME, MetricLog
from katib.cli import options
from katib.cli.printing import Table, print_data


@click.command(
    short_help="Show the metrics that a trial reported.",
    epilog=options.examples(
        "katib metrics my-experiment-k4x8bq2z -m loss",
        "katib metrics my-experiment-k4x8bq2z -o csv > curve.csv",
    ),
)
@click.argument("trial", type=options.TRIAL_NAME)
@click.option("-m", "--metric", default="", metavar="NAME", help="Only this metric.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="The newest so many.")
@options.output("json", "yaml", "csv")
@options.connection
def command(
    trial: str,
    metric: str,
    limit: int,
    form: str | None,
    target: options.Target,
) -> None:
    """Show the readings of a trial's metrics in order of time."""
    from katib.cli.connection import connect

    with connect(target, read_only=True) as (service, namespace):
        readings = service.metrics(namespace, trial, metric=metric, limit=limit)
    rows = [(_time(reading), reading.name, reading.value) for reading in readings]
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows((("time", "metric", "value"), *rows))
    elif form:
        print_data([dict(zip(("time", "metric", "value"), row, strict=True)) for row in rows], form)
    elif not rows:
        click.echo(f"{trial} has reported no {metric or 'metrics'} yet; `katib why {trial}` says why", err=True)
    else:
        Table(("TIME", "METRIC", "VALUE")).print(rows)


def _time(reading: MetricLog) -> str:
    """Return the time of a reading; empty when it carried none."""
    return "" if reading.time == ZERO_TIME else reading.time.isoformat().replace("+00:00", "Z")
