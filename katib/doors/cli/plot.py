"""`katib plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from katib.doors.cli import options
from katib.errors import invalid


@click.command(
    epilog=options.examples(
        "katib plot my-experiment",
        "katib plot my-experiment --figure parallel -o parallel.png",
        "katib plot my-experiment --figure contour --parameters lr,momentum -o contour.svg",
        "katib plot first second -o comparison.html",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...", type=options.EXPERIMENT_NAME)
@click.option(
    "--figure", "figures", multiple=True, metavar="NAME", help="Only this figure; may be given several times."
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="File to write; its suffix chooses the format: .html, .png, .svg, .pdf or .json.  [default: NAME.html]",
)
@click.option("--metric", default="", metavar="NAME", help="This metric instead of the objective.")
@click.option("--parameters", default="", metavar="NAME,NAME", help="Parameters to show, in this order.")
@click.option("--objectives", default="", metavar="NAME,NAME", help="Axes of a Pareto front.")
@click.option("--axes", default="", metavar="X,Y,COLOUR", help="Columns of a scatter plot.")
@click.option("--group-by", "group", default="", metavar="NAME", help="Means of curves by a parameter, or by tag.")
@click.option(
    "--by",
    type=click.Choice(("step", "time")),
    default="step",
    show_default=True,
    help="Horizontal axis of curves and comparisons.",
)
@options.connection
def plot(
    names: tuple[str, ...],
    figures: tuple[str, ...],
    file: Path | None,
    metric: str,
    parameters: str,
    objectives: str,
    axes: str,
    group: str,
    by: str,
    target: options.Target,
) -> None:
    """Write figures of an experiment to a file.

    Without --figure, an HTML file holds all figures that can be drawn, and any other file the history. Several
    experiments are compared. The default is the newest experiment.
    """
    from katib.doors.cli.connection import connect, experiment_meant
    from katib.figures.data import FigureOptions
    from katib.figures.files import figure_bytes, form_of, write
    from katib.figures.pictures import comparison_of, pictures_of
    from katib.figures.reading import read_experiment

    form = "html" if file is None else form_of(file)
    choice = FigureOptions(_names(parameters), metric, by, _names(objectives), _names(axes), group)
    wanted = _wanted(names, figures, form)
    with connect(target, read_only=True) as (service, namespace):
        names = names or (experiment_meant(service, namespace, None),)
        experiments = [read_experiment(service, namespace, name) for name in names]
        if len(experiments) > 1:
            pictures = [comparison_of(experiments, choice)]
        else:
            strict = bool(figures) or form != "html"
            pictures = pictures_of(service, experiments[0], wanted, choice, strict=strict)
    path = file or Path(f"{'-'.join(names)}.html")
    if form == "html":
        from katib.doors.ui.report import report_html

        write(path, report_html(experiments, pictures).encode())
    else:
        write(path, figure_bytes(pictures[0].figure, form))
    drawn = [picture.name for picture in pictures if picture.figure is not None]
    click.echo(f"{path}: {', '.join(drawn) or 'no figure can be drawn yet; the file says why'}")


def _wanted(names: Sequence[str], figures: Sequence[str], form: str) -> Sequence[str]:
    from katib.figures.catalogue import COMPARISON, FIGURES, figure_named

    if len(names) > 1:
        if other := next((figure for figure in figures if figure != COMPARISON.name), ""):
            remedy = f"name one experiment, or take --figure {COMPARISON.name}"
            raise invalid("--figure", f"{other} is a figure of one experiment", remedy, "figure-experiments")
        return (COMPARISON.name,)
    if COMPARISON.name in figures:
        cause = f"{COMPARISON.name} is a figure of several experiments"
        raise invalid("--figure", cause, "name the others, too", "figure-experiments")
    chosen = tuple(dict.fromkeys(figure_named(figure).name for figure in figures))
    if form == "html":
        return chosen or tuple(figure.name for figure in FIGURES)
    if len(chosen) > 1:
        cause = f"a .{form} file holds one figure, and {len(chosen)} are asked for"
        raise invalid("--output", cause, "write an .html file, or take one --figure", "figure-file-single")
    return chosen or (FIGURES[0].name,)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))
