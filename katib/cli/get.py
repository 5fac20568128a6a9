"""`katib get`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import click

from katib.api.types import Trial
from katib.cli import columns, failures, options
from katib.cli.kinds import LISTED, Asked, asked_for
from katib.cli.printing import Table, full_name, print_object, print_objects
from katib.cli.selecting import Choice, Found, read, selector_for
from katib.errors import NotFoundError, code_of, invalid
from katib.runtime.objects import Key, Object

if TYPE_CHECKING:
    from katib.cli.jsonpath import Path, Template

_WATCH_SECONDS = 1.0
_MISSING = "<none>"
"""What kubectl shows in a column of the user's where an object has nothing."""


class _Form(NamedTuple):
    """How objects are printed.

    Attributes:
        word: `wide`, `json`, `yaml`, `name`, `jsonpath`, `custom-columns`; empty: as a table.
        template: Of `jsonpath`.
        columns: Headings and paths of `custom-columns`.
    """

    word: str = ""
    template: Template | None = None
    columns: Sequence[tuple[str, Path]] = ()

    @property
    def is_table(self) -> bool:
        """Whether it has rows and columns."""
        return self.word in ("", "wide", "custom-columns")


class _FormType(click.Choice[str]):
    """One of the words, or a template of kubectl behind its word and an equals sign."""

    def __init__(self) -> None:
        super().__init__(("wide", "json", "yaml", "name", "jsonpath=", "custom-columns="))

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> _Form:  # type: ignore[override]  # of a choice that is read further
        """Return the form."""
        if isinstance(value, _Form):
            return value
        value = str(value).removeprefix("=")  # `-o=json`, as kubectl takes it
        word, equals, text = value.partition("=")
        if equals and word == "jsonpath":
            from katib.cli.jsonpath import read_template

            return _Form(word, template=read_template(text, "-o jsonpath"))
        if equals and word == "custom-columns":
            return _Form(word, columns=tuple(map(_column, text.split(","))))
        return _Form(super().convert(value, param, ctx))


def _column(text: str) -> tuple[str, Path]:
    heading, colon, path = text.partition(":")
    if not colon or not heading:
        remedy = "write it as NAME:.metadata.name,STATE:.status.conditions[-1].type"
        raise invalid("-o custom-columns", f'"{text}" is not HEADING:PATH', remedy, "custom-columns")
    from katib.cli.jsonpath import read_path

    return heading, read_path(path, "-o custom-columns")


def _sort_path(_context: click.Context, _option: click.Parameter, text: str | None) -> Path | None:
    if text is None:
        return None
    from katib.cli.jsonpath import read_path

    return read_path(text, "--sort-by")


@click.command(
    epilog=options.examples(
        "katib get                          all experiments",
        "katib get my-experiment -o yaml    one, with everything",
        "katib get exp/one trial/one-x2m7   several, of any kind",
        "katib get trials -w                all trials, and every change",
        "katib get pods my-experiment       the pods of its trials; or those of one trial",
        "katib get trials -l katib.kubeflow.org/experiment=my-experiment --sort-by .status.completionTime",
        "katib get -o custom-columns=NAME:.metadata.name,BEST:.status.currentOptimalTrial.bestTrialName",
        r"""katib get -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'""",
    ),
)
@click.argument("words", nargs=-1, metavar="[experiments|trials|suggestions|pods] [NAME]...")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="With these labels: a=b, a!=b, a in (b,c), a, !a.")
@click.option("--field-selector", default="", metavar="FIELDS", help="With these fields, such as status.phase of pods.")
@click.option("--sort-by", callback=_sort_path, metavar="PATH", help="In the order of what this JSONPath leads to.")
@click.option("-w", "--watch", is_flag=True, help="Go on and print everything that changes.")
@click.option("-o", "--output", "form", type=_FormType(), default=_Form(), help="Print it in this form.")
@click.option("--no-headers", is_flag=True, help="Print no headings.")
@click.option("--show-labels", is_flag=True, help="Show labels in the last column.")
@click.option("--ignore-not-found", is_flag=True, help="What is not there is no error.")
@options.connection
def get(
    words: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    sort_by: Path | None,
    watch: bool,
    form: _Form,
    no_headers: bool,
    show_labels: bool,
    ignore_not_found: bool,
    target: options.Target,
) -> int:
    """List experiments, trials, suggestions or pods, or show some of them, as `kubectl get` does.

    Names may stand behind their kind, or each as KIND/NAME. A single name is that of an experiment. Pods are those of
    jobs that are there now; they are found by their own name, by that of their trial, or by that of their experiment.

    JSONPath is that of kubectl: .a.b, [0], [-1], [*], .., [?(@.a=="b")], {range .items[*]} to {end}.
    """
    from katib.cli.connection import connect

    asked = asked_for(words)
    _check(asked, watch=watch, is_selected=bool(selector or field_selector), all_namespaces=all_namespaces)
    choices = [selector_for(one.kind, selector, field_selector) for one in asked]
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
            partial(read, service, scope, one, Choice(chosen, sort_by, on_missing))
            for one, chosen in zip(asked, choices, strict=True)
        ]
        if form.is_table:
            shown = partial(_View, namespaces=all_namespaces, labels=show_labels, is_qualified=len(asked) > 1)
            views = [shown(one, form) for one in asked]
            _print_tables(views, readers, watch=watch, headings=not no_headers)
        else:
            is_single = watch or (len(asked) == 1 and len(asked[0].names) == 1 and asked[0].kind != "Pod")
            for found in _rounds(readers[0]) if watch else [chain.from_iterable(reader() for reader in readers)]:
                _print_documents((one.document for one in found), form, is_single=is_single, begin="---" * watch)
    return code


def _check(asked: Sequence[Asked], *, watch: bool, is_selected: bool, all_namespaces: bool) -> None:
    """Refuse what contradicts itself, as kubectl does."""
    cause = ""
    if any(one.names for one in asked) and is_selected:
        cause = "names have no meaning beside --selector and --field-selector; leave one out"
    elif any(one.names for one in asked) and all_namespaces:
        cause = "names have no meaning beside --all-namespaces; give their namespace with -n"
    elif watch and len(asked) > 1:
        cause = "--watch shows objects of one kind; leave the others out"
    if cause:
        raise click.UsageError(cause, click.get_current_context())


def _rounds(reader: Callable[[], Iterable[Found]]) -> Iterator[list[Found]]:
    """Yield all objects, then, again and again, those that changed."""
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


def _print_documents(documents: Iterable[Object], form: _Form, *, is_single: bool, begin: str) -> None:
    if form.template is not None:
        whole = list(documents)
        listed = whole if is_single else [{"apiVersion": "v1", "kind": "List", "items": whole}]
        text = "".join(form.template.render(obj) for obj in listed)
        click.echo(text, nl=bool(text) and sys.stdout.isatty() and not text.endswith("\n"))
    elif is_single:
        for document in documents:
            if begin and form.word == "yaml":
                click.echo(begin)
            print_object(dict(document), form.word)
    else:
        print_objects(map(dict, documents), form.word)


class _View:
    """The columns of one table.

    Args:
        asked: Of what.
        form: A table, wide or not, or the columns of the user.
        namespaces: Whether its objects are of several namespaces.
        labels: Whether the labels stand in the last column.
        is_qualified: Whether their kind stands before their names, because there are other tables.

    Attributes:
        asked: The same.
    """

    def __init__(self, asked: Asked, form: _Form, *, namespaces: bool, labels: bool, is_qualified: bool) -> None:
        self.asked = asked
        self._chosen = {f"{heading} {i}": (heading, path) for i, (heading, path) in enumerate(form.columns)}
        own = columns.headings(asked.kind, wide=form.word == "wide", namespaces=namespaces)
        self._keys = [*(self._chosen or own), *(["LABELS"] if labels else [])]
        self._is_qualified = is_qualified

    def begin(self, rows: Sequence[columns.Cells]) -> list[str]:
        """Return the headings of a table that has these rows at first."""
        self._keys = columns.used(self._keys, rows)
        return [self._chosen[key][0] if key in self._chosen else key for key in self._keys]

    def row(self, one: Found) -> columns.Cells:
        """Return what a row says of an object."""
        labels = one.document["metadata"].get("labels") or {}
        further = {"LABELS": ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or _MISSING}
        if self._chosen:
            from katib.cli.jsonpath import text_of

            found = {key: path.values(one.document) for key, (_, path) in self._chosen.items()}
            return further | {key: ",".join(map(text_of, values)) or _MISSING for key, values in found.items()}
        if self._is_qualified:
            further["NAME"] = full_name(dict(one.document))
        if self.asked.kind == "Pod":
            return {**columns.cells_of_pod(one.document), **further}
        return {**columns.cells_of(Trial.read(one.document) if one.read is None else one.read), **further}

    def shown(self, row: columns.Cells) -> list[str]:
        """Return a row as it stands under the headings."""
        return [row[key] for key in self._keys]
