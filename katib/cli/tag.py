"""`katib tag`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from katib.api.marks import MarkChanges, Marks, marks_of
from katib.api.types import Experiment
from katib.cli import options


@click.command(
    epilog=options.examples(
        "katib tag my-experiment baseline resnet",
        "katib tag my-experiment --remove baseline --favourite",
        "katib tag my-experiment --project vision --note 'learning rate was too high'",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", multiple=True, metavar="TAG", help="Take this tag away; may be given several times.")
@click.option("--project", metavar="NAME", help='What it belongs to; "": nothing.')
@click.option("--note", metavar="TEXT", help='What to remember of it, in place of the last note; "": nothing.')
@click.option("--favourite/--no-favourite", default=None, help="Keep it at hand, or no longer.")
@options.connection
def tag(
    name: str,
    tags: tuple[str, ...],
    remove: tuple[str, ...],
    project: str | None,
    note: str | None,
    favourite: bool | None,
    target: options.Target,
) -> None:
    """Note tags, a project and text on an experiment, and show what is noted.

    The list of experiments on the page shows and finds them. They are kept in annotations of the Experiment.
    """
    from katib.cli.connection import connect

    changes_something = bool(tags or remove) or any(mark is not None for mark in (project, note, favourite))
    with connect(target, read_only=not changes_something) as (service, namespace):
        experiment = service.get(Experiment, namespace, name)
        if changes_something:
            before = marks_of(experiment.metadata.annotations).tags
            kept = tuple(one for one in dict.fromkeys((*before, *tags)) if one not in remove)
            changes = MarkChanges(kept if tags or remove else None, note, favourite, project)
            experiment = service.edit(namespace, name, counts={}, marks=changes)
    for line in _lines(marks_of(experiment.metadata.annotations)):
        click.echo(f"experiment/{name}: {line}")


def _lines(marks: Marks) -> Iterator[str]:
    parts = [
        f"tags {', '.join(marks.tags)}" if marks.tags else "no tags",
        *([f"project {marks.project}"] if marks.project else []),
        *(["favourite"] if marks.favourite else []),
    ]
    yield "; ".join(parts)
    for line in marks.notes.splitlines():
        yield f"note: {line}"
