"""`katib algorithms`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import json

from katib.doors.cli import options
from katib.doors.cli.printing import print_data
from katib.errors import NotFoundError
from katib.model.algorithms import AlgorithmInfo, SettingSpec


@click.command(
    epilog=options.examples(
        "katib algorithms",
        "katib algorithms tpe",
    ),
)
@click.argument("name", required=False)
@options.config
@options.output("json", "yaml", "name")
def algorithms(name: str | None, config: Path | None, form: str | None) -> None:
    """List the algorithms of this installation, or show one of them with its settings."""
    from katib.places.machine import open_catalog

    offered = open_catalog(config=config).all()
    chosen = [info for info in offered if name in (None, info.name)]
    if not chosen:
        names = ", ".join(info.name for info in offered)
        raise NotFoundError(f'there is no algorithm "{name}"; this installation has {names}')
    if form == "name":
        for info in chosen:
            click.echo(info.name)
    elif form:
        print_data(json.decode(json.encode(chosen)), form)
    else:
        click.echo("\n".join(_listing(chosen) if name is None else _details(chosen)))


def _listing(infos: Sequence[AlgorithmInfo]) -> Iterator[str]:
    width = max(len(info.name) for info in infos)
    for title, early_stopping in (("Suggestion algorithms", False), ("Early stopping algorithms", True)):
        group = [info for info in infos if info.early_stopping is early_stopping]
        if group:
            yield f"{title}:"
            yield from (f"  {info.name.ljust(width)}  {info.summary}{_needs(info)}" for info in group)
            yield ""
    yield "`katib algorithms NAME` shows the settings of one."


def _details(infos: Sequence[AlgorithmInfo]) -> Iterator[str]:
    for info in infos:
        yield f"{info.name}{', early stopping' if info.early_stopping else ''}: {info.summary}{_needs(info)}"
        if info.features:
            yield f"  knows {', '.join(info.features)}"
        yield from _settings(info)


def _needs(info: AlgorithmInfo) -> str:
    return f" (needs `pip install 'katib[{info.extra}]'`)" if info.extra else ""


def _settings(info: AlgorithmInfo) -> Iterator[str]:
    if info.settings is None:
        yield "  its settings are known to its service only"
        return
    width = max((len(setting.name) for setting in info.settings), default=0)
    for setting in info.settings:
        yield f"  {setting.name.ljust(width)}  {_values(setting)}: {setting.description}"


def _values(setting: SettingSpec) -> str:
    """Return the allowed values of a setting and its default."""
    bounds = (
        ("above", setting.above),
        ("at least", setting.at_least),
        ("below", setting.below),
        ("at most", setting.at_most),
    )
    parts = [" | ".join(setting.choices) or setting.type]
    parts += [f"{words} {bound:g}" for words, bound in bounds if bound is not None]
    if setting.is_required:
        parts.append("required")
    if setting.default:
        parts.append(f"default {setting.default}")
    return ", ".join(parts)
