"""Output in the style of kubectl: aligned columns under upper-case headings, or the objects as JSON or YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from katib.service.tuning.service import Json

_GAP = " " * 3
NOTHING = "-"


class Table:
    """Columns that keep their width after the first print, so that later rows stay aligned."""

    def __init__(self, headings: Sequence[str], *, shows_headings: bool = True) -> None:
        self._headings = [tuple(headings)] if shows_headings else []
        self._widths: list[int] = []

    def print(self, rows: Iterable[Sequence[str]]) -> None:
        """Print rows, the first time under the headings."""
        lines = [tuple(cell or NOTHING for cell in row) for row in rows]
        if not self._widths:
            lines = [*self._headings, *lines]
            self._widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line, self._widths, strict=True))
            click.echo(_GAP.join(cells).rstrip())


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows of cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def print_data(data: Any, form: str) -> None:
    """Print plain data as `json` or `yaml`."""
    click.echo(to_text(data, form))


def to_text(data: Any, form: str) -> str:
    """Return plain data as JSON or YAML text, without a trailing line break."""
    if form == "json":
        return json.dumps(data, indent=2, ensure_ascii=False)
    from katib.model.yaml_text import dump_yaml

    text = dump_yaml(data)
    return text.rstrip("\n")


def print_object(obj: Json, form: str) -> None:
    """Print one object as `json`, `yaml` or `name`."""
    if form == "name":
        click.echo(full_name(obj))
    else:
        print_data(obj, form)


def print_objects(objects: Iterable[Json], form: str) -> None:
    """Print a listing as `json`, `yaml` or `name`, each object as soon as it is available."""
    if form == "name":
        for obj in objects:
            click.echo(full_name(obj))
        return
    whole = to_text({"apiVersion": "v1", "kind": "List", "items": []}, form)
    head, _, tail = whole.rpartition("[]")
    before, between, after = ("[\n", ",\n", "\n  ]") if form == "json" else ("\n", "\n", "")
    empty = True
    for obj in objects:
        click.echo(f"{head.rstrip(' ') if form == 'yaml' else head}{before}" if empty else between, nl=False)
        text = "    " + to_text(obj, form).replace("\n", "\n    ") if form == "json" else to_text([obj], form)
        click.echo(text, nl=False)
        empty = False
    click.echo(whole if empty else f"{after}{tail}")


def full_name(obj: Json) -> str:
    """Return kind and name as kubectl writes them: `experiment/demo`."""
    return f"{str(obj.get('kind', '')).lower()}/{obj.get('metadata', {}).get('name', '')}"
