"""`katib export`."""

from __future__ import annotations

from pathlib import Path

import click

from katib.cli import options

FORMS = ("html",)


@click.command(
    epilog=options.examples(
        "katib export my-experiment --to html",
        "katib export my-experiment -o for-anna.html",
        "katib export my-experiment --context production",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.option("--to", "form", type=click.Choice(FORMS), default="html", show_default=True, help="The form of the file.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="Where to write.  [default: NAME.html]",
)
@options.connection
def export(name: str, form: str, file: Path | None, target: options.Target) -> None:
    """Write the page of an experiment to one file, to send to a colleague.

    It holds the state and the best trial, all figures, the trials as a table to sort and filter, and the Experiment as
    YAML. It can be read without Katib and without a network.
    """
    from katib.cli.connection import connect
    from katib.figures.catalogue import FIGURES
    from katib.figures.data import Choice
    from katib.figures.files import check_place, write
    from katib.figures.pictures import pictures_of
    from katib.figures.reading import read_experiment

    path = file or Path(f"{name}.{form}")
    check_place(path)
    with connect(target, read_only=True) as (service, namespace):
        data = read_experiment(service, namespace, name)
        pictures = pictures_of(service, data, [figure.name for figure in FIGURES], Choice())
    from katib.ui.report import experiment_html

    content = experiment_html(data, pictures).encode()
    write(path, content)
    count = len(data.trials)
    click.echo(f"{path}: {count:,} trial{'s' * (count != 1)}, {len(content) / 1e6:.1f} MB")
