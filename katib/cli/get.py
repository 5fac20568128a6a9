"""`katib get`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import click

from katib.api.types import Experiment, Suggestion, Trial
from katib.cli import columns, options
from katib.cli.printing import print_object, print_objects
from katib.controllers.kinds import key_of
from katib.errors import NotFoundError
from katib.runtime.objects import Key
from katib.tuning.service import Json, Page, TuningService
from katib.tuning.trial_pages import pages_of

KINDS = {
    "experiments": "Experiment",
    "experiment": "Experiment",
    "exp": "Experiment",
    "trials": "Trial",
    "trial": "Trial",
    "suggestions": "Suggestion",
    "suggestion": "Suggestion",
    "pods": "Pod",
    "pod": "Pod",
    "po": "Pod",
}
_TYPES: dict[str, type[Experiment | Trial | Suggestion]] = {
    "Experiment": Experiment,
    "Trial": Trial,
    "Suggestion": Suggestion,
}
_WATCH_SECONDS = 1.0


@click.command(
    epilog=options.examples(
        "katib get                          all experiments",
        "katib get my-experiment -o yaml    one, with everything",
        "katib get trials -w                all trials, and every change",
        "katib get suggestions -A -o wide",
        "katib get pods my-experiment       the pods of its trials; or those of one trial",
    ),
)
@click.argument("kind", default="experiments", metavar="[experiments|trials|suggestions|pods]")
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
    """List experiments, trials, suggestions or pods, or show one of them.

    Pods are those of jobs that are there now. They are found by their own name, by that of their trial, or by that of
    their experiment.
    """
    from katib.cli.connection import connect

    if name is None and kind.partition("/")[0].lower() in KINDS and "/" in kind:
        kind, _, name = kind.partition("/")  # as `-o name` prints it
    elif kind.lower() not in KINDS and name is None:
        kind, name = "experiments", kind
    if kind.lower() not in KINDS:
        raise click.UsageError(f'"{kind}" is not a kind; use experiments, trials, suggestions or pods')
    wanted = KINDS[kind.lower()]
    with connect(target, read_only=True) as (service, namespace):
        scope = None if all_namespaces else namespace
        if form in ("json", "yaml", "name"):
            if name is not None and wanted != "Pod":
                print_object(service.get(_TYPES[wanted], namespace, name).encode(), form)
            else:
                print_objects(_documents(service, wanted, scope if name is None else namespace, name), form)
            return
        wide = form == "wide"

        def read() -> Iterator[_Row]:
            if wanted == "Pod":
                for pod in _pods_named(service, namespace, name) if name is not None else _pods(service, scope):
                    version = str(pod["metadata"].get("resourceVersion", ""))
                    yield _Row(Key.of(pod), version, partial(columns.cells_of_pod, pod))
                return
            found = _objects(service, wanted, scope) if name is None else [service.get(_TYPES[wanted], namespace, name)]
            for obj in found:
                yield _Row(key_of(obj), obj.metadata.resource_version, partial(columns.cells_of, obj))

        _print_table(read, wanted, columns.ObjectTable(wanted, wide=wide, namespaces=all_namespaces), watch=watch)


class _Row(NamedTuple):
    key: Key
    version: str
    cells: Callable[[], columns.Cells]


def _print_table(read: Callable[[], Iterable[_Row]], kind: str, table: columns.ObjectTable, *, watch: bool) -> None:
    seen: dict[Key, str] = {}

    def changed() -> list[columns.Cells]:
        found = [row for row in read() if seen.get(row.key) != row.version]
        seen.update((row.key, row.version) for row in found)
        return [row.cells() for row in found]

    rows = changed()
    if not rows and not watch:
        click.echo(f"no {kind.lower()}s found", err=True)
        return
    table.print(rows)
    while watch:
        time.sleep(_WATCH_SECONDS)
        table.print(changed())


def _documents(service: TuningService, kind: str, namespace: str | None, name: str | None) -> Iterator[Json]:
    """Yield the objects of a listing, of which a page is held at a time, as they are stored."""
    if kind == "Pod":
        yield from _pods(service, namespace) if name is None else _pods_named(service, namespace or "", name)
    elif kind == "Trial":
        for page in _all_trials(service, namespace):
            yield from map(dict, page.documents)
    else:
        yield from (obj.encode() for obj in _objects(service, kind, namespace))


def _objects(service: TuningService, kind: str, namespace: str | None) -> Iterator[Experiment | Trial | Suggestion]:
    if kind == "Trial":
        for page in _all_trials(service, namespace):
            yield from page.items
    else:
        for experiment in service.experiments(namespace):
            if kind == "Experiment":
                yield experiment
                continue
            with suppress(NotFoundError):  # it bears the experiment's name
                yield service.get(Suggestion, experiment.namespace, experiment.name)


def _all_trials(service: TuningService, namespace: str | None) -> Iterator[Page]:
    for experiment in service.experiments(namespace):
        yield from pages_of(service, experiment.namespace, experiment.name)


def _pods(service: TuningService, namespace: str | None) -> Iterator[Json]:
    for experiment in service.experiments(namespace):
        yield from service.pods("Experiment", experiment.namespace, experiment.name)


def _pods_named(service: TuningService, namespace: str, name: str) -> Sequence[Json]:
    """Return the pods of an experiment or a trial, or the one of that name.

    Raises:
        NotFoundError: There is none of these.
    """
    for kind in ("Experiment", "Trial"):
        with suppress(NotFoundError):
            return service.pods(kind, namespace, name)
    found = [pod for pod in _pods(service, namespace) if Key.of(pod).name == name]
    if not found:
        raise NotFoundError(f'neither an experiment, a trial nor a pod "{name}" is in namespace {namespace}')
    return found
