"""`katib get`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click

from katib.cli import columns, options
from katib.cli.printing import Table, print_object, print_objects
from katib.errors import NotFoundError
from katib.tuning.reading import Json, name_of, namespace_of
from katib.tuning.service import TuningService

_KINDS = {
    "experiments": "Experiment",
    "experiment": "Experiment",
    "exp": "Experiment",
    "trials": "Trial",
    "trial": "Trial",
    "suggestions": "Suggestion",
    "suggestion": "Suggestion",
}
_PAGE = 1000
_WATCH_SECONDS = 1.0


@click.command(
    short_help="List experiments, trials or suggestions, or show one.",
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
def command(
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
        raise click.UsageError(f'"{kind}" is no kind; use experiments, trials or suggestions')
    wanted = _KINDS[kind.lower()]
    with connect(target, read_only=True) as (service, namespace):
        scope = None if all_namespaces else namespace

        def read() -> Sequence[Json]:
            if name is not None:
                return [service.get(wanted, namespace, name)]
            return _LISTINGS[wanted](service, scope)

        if form in ("json", "yaml", "name"):
            _print_once(read(), form, single=name is not None)
        else:
            _print_table(read, wanted, wide=form == "wide", namespaces=all_namespaces, watch=watch)


def _print_once(objects: Sequence[Json], form: str, *, single: bool) -> None:
    if single:
        print_object(objects[0], form)
    else:
        print_objects(objects, form)


def _print_table(read: Callable[[], Sequence[Json]], kind: str, *, wide: bool, namespaces: bool, watch: bool) -> None:
    objects = read()
    if not objects and not watch:
        click.echo(f"no {kind.lower()}s found", err=True)
        return
    table = Table(columns.headings(kind, wide=wide, namespaces=namespaces))
    table.print(columns.row(obj, wide=wide, namespaces=namespaces) for obj in objects)
    seen = {_identity(obj): _version(obj) for obj in objects}
    while watch:
        time.sleep(_WATCH_SECONDS)
        changed = [obj for obj in read() if seen.get(_identity(obj)) != _version(obj)]
        seen.update((_identity(obj), _version(obj)) for obj in changed)
        table.print(columns.row(obj, wide=wide, namespaces=namespaces) for obj in changed)


def _identity(obj: Json) -> tuple[str, str]:
    return namespace_of(obj), name_of(obj)


def _version(obj: Json) -> str:
    return str(obj.get("metadata", {}).get("resourceVersion", ""))


def _experiments(service: TuningService, namespace: str | None) -> Sequence[Json]:
    return service.experiments(namespace)


def _trials(service: TuningService, namespace: str | None) -> Sequence[Json]:
    return [
        trial
        for experiment in service.experiments(namespace)
        for trial in all_trials(service, namespace_of(experiment), name_of(experiment))
    ]


def all_trials(service: TuningService, namespace: str, experiment: str, states: Sequence[str] = ()) -> list[Json]:
    """Return all trials of an experiment, page by page."""
    found: list[Json] = []
    cursor = ""
    while True:
        page = service.trials(namespace, experiment, states=states, limit=_PAGE, cursor=cursor)
        found.extend(page.items)
        cursor = page.cursor
        if not cursor:
            return found


def _suggestions(service: TuningService, namespace: str | None) -> Sequence[Json]:
    """Return the suggestion of each experiment that has one: it bears the experiment's name."""
    found = []
    for experiment in service.experiments(namespace):
        try:
            found.append(service.get("Suggestion", namespace_of(experiment), name_of(experiment)))
        except NotFoundError:
            continue
    return found


_LISTINGS = {"Experiment": _experiments, "Trial": _trials, "Suggestion": _suggestions}
