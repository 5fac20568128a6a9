"""`katib export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from katib.doors.cli import options
from katib.model.types import Experiment
from katib.model.wording import counted

if TYPE_CHECKING:
    from katib.figures.data import ExperimentData

_FILES = ("html", "csv", "json", "parquet")
FORMS = (*_FILES, "mlflow", "tensorboard")
_STANDARD_OUTPUT = Path("-")


@click.command(
    epilog=options.examples(
        "katib export my-experiment --to html",
        "katib export my-experiment -o for-anna.html",
        "katib export my-experiment -o trials.csv",
        "katib export my-experiment --to csv -o -",
        "katib export my-experiment --to parquet --context production",
        "katib export my-experiment --to mlflow -o http://127.0.0.1:5000",
    ),
)
@options.newest_or_named
@click.option(
    "--to", "form", type=click.Choice(FORMS), help="Format to write.  [default: by the suffix of the file, else html]"
)
@click.option(
    "-o",
    "--output",
    "place",
    metavar="PLACE",
    default="",
    help="The file, - for standard output; the directory of TensorBoard; the address of MLflow.  [default: NAME.html, "
    "NAME.csv, ...; NAME-tensorboard; as MLflow is configured]",
)
@options.connection
def export(name: str | None, form: str | None, place: str, target: options.Target) -> None:
    """Write an experiment to one file: its page, to send to a colleague, or its trials as a table.

    The page (html) holds the state and the best trial, all figures, the trials as a table to sort and filter, and the
    Experiment as YAML. It can be read without Katib and without a network. The table (csv, json, parquet) has one row
    for each trial, with every digit. MLflow gets a run for each trial that has ended, TensorBoard a directory, with all
    metrics and parameters; existing ones are not written again. The default is the newest experiment.
    """
    from katib.doors.cli.connection import connect, experiment_meant
    from katib.doors.ui.report import report_of
    from katib.figures.files import check_place, form_of, write
    from katib.figures.reading import read_experiment

    if form is None:
        form = form_of(Path(place), _FILES) if place and place != str(_STANDARD_OUTPUT) else "html"
    if form in ("mlflow", "tensorboard"):
        _write_runs(name, form, place, target)
        return
    if place and Path(place) != _STANDARD_OUTPUT:
        check_place(Path(place))
    with connect(target, read_only=True) as (service, namespace):
        name = name or experiment_meant(service, namespace, None)
        path = Path(place or f"{name}.{form}")
        data = read_experiment(service, namespace, name)
        content = report_of(service, data).encode() if form == "html" else _table(data, form)
    if path == _STANDARD_OUTPUT:
        click.echo(content, nl=False)
        return
    write(path, content)
    count = len(data.trials)
    click.echo(f"{path}: {counted(count, 'trial')}, {len(content) / 1e6:.1f} MB")


def _write_runs(name: str | None, form: str, place: str, target: options.Target) -> None:
    from katib.doors.cli.connection import connect, experiment_meant
    from katib.service.histories.written import open_log, write_ended

    with connect(target, read_only=True) as (service, namespace):
        experiment = service.get(Experiment, namespace, experiment_meant(service, namespace, name))
        where = place or ("MLflow" if form == "mlflow" else f"{experiment.name}-tensorboard")
        count = write_ended(service, experiment, open_log(experiment, form, place))
    click.echo(f"{where}: {counted(count, 'trial')} written")


def _table(data: ExperimentData, form: str) -> bytes:
    from katib.doors.ui.downloads import DownloadFormat, write_trials
    from katib.doors.ui.trial_table import TableQuery, chosen_rows

    rows, columns = chosen_rows(data.trials, TableQuery())
    return b"".join(write_trials(DownloadFormat(form), data.trials, columns, rows))
