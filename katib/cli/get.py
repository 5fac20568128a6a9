"""`katib get`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import click

from katib.cli import columns, options
from katib.cli.printing import Table, print_object, print_objects
from katib.errors import NotFoundError
from katib.tuning.reading import Json, name_of, namespace_of
from katib.tuning.service import TrialOrder, TuningService

_KINDS = {
    "experiments": "Experiment",
    "experiment": "Experiment",
    "exp": "Experiment",
    "trials": "Trial",
    "trial": "Trial",
    "suggestions": "Suggestion",
    "suggestion": "Suggestion",
}
_PAGE = 500
_WATCH_SECONDS = 1.0


@click.command(
    epilog=options.examples(
        "katib get                          all experiments",
        "katib get my-experiment -o yaml    one, with everything",
        "katib get trials -w                all trials, and every change",
        "katib get suggestions -A -o wide",
    ),
)
@click.argument("kind", default="experiments", metavar="[experiments|trials|suggestions]")
@click.argument("name", required=False)
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@click.option("-w", "--watch", is_flag=True, help="Go on and print every row that changes.")
@options.output("wide", "json", "yaml", "name")
@options.connection
def get(
    kind: str,
    name: str | None,
    all_namespaces: bool,
    watch: bool,
    form: str | None,
    target: options.Target,
) -> None:
    """List experiments, trials or suggestions, or show one of them."""
    from katib.cli.connection import connect

    if name is None and kind.partition("/")[0].lower() in _KINDS and "/" in kind:
        kind, _, name = kind.partition("/")  # as `-o name` prints it
    elif kind.lower() not in _KINDS and name is None:
        kind, name = "experiments", kind
    if kind.lower() not in _KINDS:
        raise click.UsageError(f'"{kind}" is not a kind; use experiments, trials or suggestions')
    wanted = _KINDS[kind.lower()]
    with connect(target, read_only=True) as (service, namespace):
        scope = None if all_namespaces else namespace

        def read() -> Iterable[Json]:
            if name is not None:
                return [service.get(wanted, namespace, name)]
            return _LISTINGS[wanted](service, scope)

        if form in ("json", "yaml", "name") and name is not None:
            print_object(service.get(wanted, namespace, name), form)
        elif form in ("json", "yaml", "name"):
            print_objects(read(), form)
        else:
            _print_table(read, wanted, wide=form == "wide", namespaces=all_namespaces, watch=watch)


def _print_table(read: Callable[[], Iterable[Json]], kind: str, *, wide: bool, namespaces: bool, watch: bool) -> None:
    seen: dict[tuple[str, str], str] = {}
    lineage = kind == "Trial"

    def changed() -> list[tuple[str, ...]]:
        rows = []
        for obj in read():
            if seen.get(_identity(obj)) != _version(obj):
                seen[_identity(obj)] = _version(obj)
                rows.append(columns.row(obj, wide=wide, namespaces=namespaces, lineage=lineage))
        return rows

    rows = changed()
    if not rows and not watch:
        click.echo(f"no {kind.lower()}s found", err=True)
        return
    if lineage and not columns.has_lineage(rows, namespaces=namespaces):
        lineage = False
        rows = [columns.without_lineage(row, namespaces=namespaces) for row in rows]
    table = Table(columns.headings(kind, wide=wide, namespaces=namespaces, lineage=lineage))
    table.print(rows)
    while watch:
        time.sleep(_WATCH_SECONDS)
        table.print(changed())


def _identity(obj: Json) -> tuple[str, str]:
    return namespace_of(obj), name_of(obj)


def _version(obj: Json) -> str:
    return str(obj.get("metadata", {}).get("resourceVersion", ""))


def _experiments(service: TuningService, namespace: str | None) -> Iterator[Json]:
    yield from service.experiments(namespace)


def _trials(service: TuningService, namespace: str | None) -> Iterator[Json]:
    for experiment in service.experiments(namespace):
        yield from each_trial(service, namespace_of(experiment), name_of(experiment))


def each_trial(
    service: TuningService,
    namespace: str,
    experiment: str,
    *,
    states: Sequence[str] = (),
    order: TrialOrder = "age",
    limit: int | None = None,
) -> Iterator[Json]:
    """Yield the trials of an experiment, of which one page is held at a time."""
    cursor, left = "", math.inf if limit is None else limit
    while left > 0:
        size = int(min(left, _PAGE))
        page = service.trials(namespace, experiment, states=states, order=order, limit=size, cursor=cursor)
        yield from page.items
        left -= len(page.items)
        cursor = page.cursor
        if not cursor:
            return


def _suggestions(service: TuningService, namespace: str | None) -> Iterator[Json]:
    """Yield the suggestion of each experiment that has one: it bears the experiment's name."""
    for experiment in service.experiments(namespace):
        with suppress(NotFoundError):
            yield service.get("Suggestion", namespace_of(experiment), name_of(experiment))


_LISTINGS = {"Experiment": _experiments, "Trial": _trials, "Suggestion": _suggestions}
