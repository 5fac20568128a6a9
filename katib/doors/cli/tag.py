"""`katib tag`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from katib.doors.cli import options
from katib.model.marks import Marks, marks_of
from katib.model.types import Experiment, Trial

_MARKED = options.PlainName("Experiment", "Trial")


@click.command(
    epilog=options.examples(
        "katib tag my-experiment baseline resnet",
        "katib tag my-experiment --remove baseline --note 'learning rate was too high'",
        "katib tag my-experiment-4fj2x1aa candidate",
    ),
)
@click.argument("name", type=_MARKED)
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
