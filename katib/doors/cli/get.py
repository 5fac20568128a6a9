"""`katib get`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import click

from katib.doors.cli import columns, failures, options
from katib.doors.cli.kinds import LISTED, Asked, asked_for
from katib.doors.cli.printing import Table, full_name, print_object, print_objects
from katib.doors.cli.selecting import Found, read, selector_for
from katib.engine.runtime.objects import Key, Object
from katib.errors import NotFoundError, code_of
from katib.model.types import Trial

_WATCH_SECONDS = 1.0


class _Form(click.Choice[str]):
    """Output format. Templates are refused."""

    def __init__(self) -> None:
        super().__init__(("wide", "json", "yaml", "name"))

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        value = value.removeprefix("=")  # `-o=json`, as kubectl accepts it
        if value.startswith(("jsonpath", "custom-columns")):
            raise _left_to_kubectl(f"-o {value.partition('=')[0]}")
        return super().convert(value, param, ctx)


def _refuse(_context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise _left_to_kubectl(option.opts[0])


def _left_to_kubectl(option: str) -> click.UsageError:
    command = shlex.join(["kubectl", *click.get_current_context().find_root().obj])
    return click.UsageError(f"{option} is left to kubectl, on a cluster and on `katib serve`; use `{command}`")


@click.command(
    epilog=options.examples(
        "katib get                          all experiments",
        "katib get my-experiment -o yaml    one, with everything",
        "katib get exp/one trial/one-x2m7   several, of any kind",
        "katib get trials -w                all trials, and every change",
        "katib get pods my-experiment       the pods of its trials; or those of one trial",
        "katib get trials -l katib.kubeflow.org/experiment=my-experiment",
    ),
)
@click.argument("words", nargs=-1, metavar="[experiments|trials|suggestions|pods] [NAME]...")
@click.option("-A", "--all-namespaces", is_flag=True, help="In all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="With these labels: a=b, a!=b, a in (b,c), a, !a.")
@click.option("--field-selector", hidden=True, expose_value=False, callback=_refuse)
@click.option("--sort-by", hidden=True, expose_value=False, callback=_refuse)
@click.option("-w", "--watch", is_flag=True, help="Keep watching and print every change.")
@click.option("-o", "--output", "form", type=_Form(), help="Output format.")
@click.option("--no-headers", is_flag=True, help="Print no headings.")
@click.option("--show-labels", is_flag=True, help="Show labels in the last column.")
@click.option("--ignore-not-found", is_flag=True, help="Treat a missing object as success.")
@options.connection
def get(
    words: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    watch: bool,
    form: str | None,
    no_headers: bool,
    show_labels: bool,
    ignore_not_found: bool,
    target: options.Target,
) -> int:
    """List experiments, trials, suggestions or pods, or show some of them, as `kubectl get` does.

    Names may follow their kind, or each be given as KIND/NAME. A single name is that of an experiment. Pods are those
    of current jobs; they are found by their own name, by that of their trial, or by that of their experiment.
    """
    from katib.doors.cli.connection import connect

    asked = asked_for(words)
    _check(asked, watch=watch, is_selected=bool(selector), all_namespaces=all_namespaces)
    selectors = [selector_for(one.kind, selector) for one in asked]
    code = 0

    def on_missing(error: NotFoundError) -> None:
        nonlocal code
        if watch:
            raise error
        if not ignore_not_found:
            kinds = (
                f'; "{words[0]}" is not a kind either: {LISTED}'
                if words == asked[0].names and "/" not in words[0]
                else ""
            )
            failures.show(NotFoundError(f"{error}{kinds}"))
            code = code_of(error).exit_code

    with connect(target, read_only=True) as (service, namespace):
        scope = None if all_namespaces else namespace
        readers = [
            partial(read, service, scope, one, chosen, on_missing) for one, chosen in zip(asked, selectors, strict=True)
        ]
        if form is None or form == "wide":
            shown = partial(_View, namespaces=all_namespaces, labels=show_labels, is_qualified=len(asked) > 1)
            views = [shown(one, wide=form == "wide") for one in asked]
            _print_tables(views, readers, watch=watch, headings=not no_headers)
        else:
            is_single = watch or (len(asked) == 1 and len(asked[0].names) == 1 and asked[0].kind != "Pod")
            for found in _rounds(readers[0]) if watch else [chain.from_iterable(reader() for reader in readers)]:
                _print_documents((one.document for one in found), form, is_single=is_single, begin="---" * watch)
    return code


def _check(asked: Sequence[Asked], *, watch: bool, is_selected: bool, all_namespaces: bool) -> None:
    """Refuse contradictory arguments, as kubectl does."""
    cause = ""
    if any(one.names for one in asked) and is_selected:
        cause = "names have no meaning beside --selector; leave one out"
    elif any(one.names for one in asked) and all_namespaces:
        cause = "names have no meaning beside --all-namespaces; give their namespace with -n"
    elif watch and len(asked) > 1:
        cause = "--watch shows objects of one kind; leave the others out"
    if cause:
        raise click.UsageError(cause, click.get_current_context())


def _rounds(reader: Callable[[], Iterable[Found]]) -> Iterator[list[Found]]:
    """Yield all objects, then repeatedly those that changed."""
    seen: dict[Key, str] = {}
    while True:
        changed = []
        for one in reader():
            key, version = Key.of(one.document), str(one.document["metadata"].get("resourceVersion", ""))
            if seen.get(key) != version:
                seen[key] = version
                changed.append(one)
        yield changed
        time.sleep(_WATCH_SECONDS)


def _print_tables(
    views: Sequence[_View], readers: Sequence[Callable[[], Iterable[Found]]], *, watch: bool, headings: bool
) -> None:
    is_first = True
    for view, reader in zip(views, readers, strict=True):
        rounds = _rounds(reader) if watch else iter([reader()])
        rows = [view.row(one) for one in next(rounds)]
        if not rows and not watch:
            if not view.asked.names:
                click.echo(f"no {view.asked.kind.lower()}s found", err=True)
            continue
        if not is_first:
            click.echo()
        is_first = False
        table = Table(view.begin(rows), shows_headings=headings)
        table.print(map(view.shown, rows))
        for changed in rounds:
            table.print(view.shown(view.row(one)) for one in changed)


def _print_documents(documents: Iterable[Object], form: str, *, is_single: bool, begin: str) -> None:
    if is_single:
        for document in documents:
            if begin and form == "yaml":
                click.echo(begin)
            print_object(dict(document), form)
    else:
        print_objects(map(dict, documents), form)


class _View:
    """The columns of one table.

    Args:
        asked: Kind and names of its objects.
        namespaces: Whether its objects are of several namespaces.
        labels: Whether the last column shows the labels.
        is_qualified: Whether names are prefixed by their kind, because there are other tables.
    """

    def __init__(self, asked: Asked, *, wide: bool, namespaces: bool, labels: bool, is_qualified: bool) -> None:
        self.asked = asked
        self._headings = [
            *columns.headings(asked.kind, wide=wide, namespaces=namespaces),
            *(["LABELS"] if labels else []),
        ]
        self._is_qualified = is_qualified

    def begin(self, rows: Sequence[columns.Cells]) -> Sequence[str]:
        """Return the headings of a table that starts with these rows."""
        self._headings = columns.used(self._headings, rows)
        return self._headings

    def row(self, one: Found) -> columns.Cells:
        labels = one.document["metadata"].get("labels") or {}
        further = {"LABELS": ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or "<none>"}
        if self._is_qualified:
            further["NAME"] = full_name(dict(one.document))
        if self.asked.kind == "Pod":
            return {**columns.cells_of_pod(one.document), **further}
        return {**columns.cells_of(Trial.read(one.document) if one.read is None else one.read), **further}

    def shown(self, row: columns.Cells) -> list[str]:
        return [row[heading] for heading in self._headings]
