"""`katib export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from katib.cli import options

if TYPE_CHECKING:
    from katib.figures.data import ExperimentData
    from katib.tuning.service import TuningService

FORMS = ("html", "csv", "json", "parquet")
_STANDARD_OUTPUT = Path("-")


@click.command(
    epilog=options.examples(
        "katib export my-experiment --to html",
        "katib export my-experiment -o for-anna.html",
        "katib export my-experiment --to csv -o -",
        "katib export my-experiment --to parquet --context production",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.option("--to", "form", type=click.Choice(FORMS), default="html", show_default=True, help="The form of the file.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="Where to write; - is standard output.  [default: NAME.html, NAME.csv, ...]",
)
@options.connection
def export(name: str, form: str, file: Path | None, target: options.Target) -> None:
    """Write an experiment to one file: its page, to send to a colleague, or its trials as a table.

    The page (html) holds the state and the best trial, all figures, the trials as a table to sort and filter, and the
    Experiment as YAML. It can be read without Katib and without a network. The table (csv, json, parquet) has one row
    for each trial, with every digit.
    """
    from katib.cli.connection import connect
    from katib.figures.files import check_place, write
    from katib.figures.reading import read_experiment

    path = file or Path(f"{name}.{form}")
    if path != _STANDARD_OUTPUT:
        check_place(path)
    with connect(target, read_only=True) as (service, namespace):
        data = read_experiment(service, namespace, name)
        content = _page(service, data) if form == "html" else _table(data, form)
    if path == _STANDARD_OUTPUT:
        click.echo(content, nl=False)
        return
    write(path, content)
    count = len(data.trials)
    click.echo(f"{path}: {count:,} trial{'s' * (count != 1)}, {len(content) / 1e6:.1f} MB")


def _page(service: TuningService, data: ExperimentData) -> bytes:
    from katib.figures.catalogue import FIGURES
    from katib.figures.data import Choice
    from katib.figures.pictures import pictures_of
    from katib.ui.report import experiment_html

    pictures = pictures_of(service, data, [figure.name for figure in FIGURES], Choice())
    return experiment_html(data, pictures).encode()


def _table(data: ExperimentData, form: str) -> bytes:
    from katib.ui.downloads import FileFormat, write_trials
    from katib.ui.trial_table import TableQuery, chosen_rows

    rows, columns = chosen_rows(data.trials, TableQuery())
    return b"".join(write_trials(FileFormat(form), data.trials, columns, rows))
