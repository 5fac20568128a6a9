"""Options that several commands share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from katib.doors.cli.run_options import (
    BAD_INPUT,
    DEFAULT_HOST,
    DEFAULT_NAMESPACE,
    DEFAULT_PORT,
    DEFAULT_SERVER,
    NODE_ADDRESS,
    Cluster,
    HomePath,
    Target,
    checkpoint,
    claims,
    cluster,
    config,
    containers,
    data_dir,
    default_data_dir,
    detach,
    examples,
    features,
    has_data,
    is_place_set,
    is_typed,
    log_places,
    log_to,
    namespace,
    output,
    place,
    quiet,
    read_file,
    refuse_beside,
    server_meant,
    set_up_logging,
    token,
    typed_line,
    verbose,
    with_options,
)
from katib.errors import invalid

__all__ = [
    "BAD_INPUT",
    "DEFAULT_HOST",
    "DEFAULT_NAMESPACE",
    "DEFAULT_PORT",
    "DEFAULT_SERVER",
    "EXPERIMENT_NAME",
    "NODE_ADDRESS",
    "REPLICA_NAME",
    "TRIAL_NAME",
    "TRIAL_OR_POD_NAME",
    "Cluster",
    "Duration",
    "HomePath",
    "PlainName",
    "Target",
    "any_or_newest",
    "checkpoint",
    "claims",
    "cluster",
    "config",
    "connection",
    "containers",
    "data_dir",
    "default_data_dir",
    "detach",
    "examples",
    "features",
    "files_of",
    "has_data",
    "is_place_set",
    "is_typed",
    "log_places",
    "log_to",
    "namespace",
    "newest_or_named",
    "objectives",
    "output",
    "pairs",
    "place",
    "quiet",
    "read_file",
    "refuse_as_command",
    "refuse_beside",
    "server_meant",
    "set_up_logging",
    "token",
    "typed_line",
    "verbose",
    "with_options",
    "write_file",
]

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


_SERVICE = (
    click.option(
        "--server",
        envvar="KATIB_SERVER",
        metavar="URL",
        help=f"The server to use.  [env: KATIB_SERVER; default: {DEFAULT_SERVER}]",
    ),
    token,
    data_dir,
    namespace,
    verbose,
)


def connection(function: F) -> F:
    """Add the options that choose a service; the command gets them as `target`."""

    @functools.wraps(function)
    def command(
        *args: Any,
        server: str | None,
        token: str | None,
        data_dir: Path | None,
        namespace: str | None,
        verbose: int,
        cluster: Cluster,
        **kwargs: Any,
    ) -> Any:
        if cluster:
            refuse_beside("a cluster", "server", "token", "data_dir")
        elif not any(map(is_typed, ("server", "data_dir"))):
            cluster = replace(cluster, context=os.environ.get("KATIB_CONTEXT") or None)
        server = server_meant(server)
        return function(*args, target=Target(server, token, data_dir, namespace, verbose, cluster), **kwargs)

    return with_options(_SERVICE, cluster(command))  # type: ignore[return-value]  # as above


def objectives(maximize: Sequence[str], minimize: Sequence[str]) -> dict[str, str]:
    """Return the direction of each metric."""
    if both := [metric for metric in maximize if metric in minimize]:
        raise click.UsageError(
            f"--maximize {both[0]} contradicts --minimize {both[0]}; leave one out", click.get_current_context()
        )
    return dict.fromkeys(maximize, "maximize") | dict.fromkeys(minimize, "minimize")


class Duration(click.ParamType[float]):
    """Seconds in the format of Katib's flags: 60s, 1m30s; a bare number is seconds."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        text = f"{value}s" if value.isascii() and value.isdecimal() else value
        if not re.fullmatch(f"(?:{_PART.pattern})+", text):
            self.fail(f'"{value}" is not a duration; write it like 60s or 1m30s', param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


class PlainName(click.ParamType[str]):
    """A plain name, or one with its kind as kubectl writes it: `trial/NAME`, `experiment.kubeflow.org/NAME`."""

    name = "name"

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - the signature is click's
        """Remove the kind."""
        from katib.doors.cli.kinds import names_of

        return names_of([value], *self._kinds)[0]


def _one_name(context: click.Context, argument: click.Parameter, words: tuple[str, ...]) -> str | None:
    from katib.doors.cli.kinds import names_of

    names = names_of(words, *_OF_RUNS) if words else []
    if len(names) > 1:
        raise click.BadParameter("give one name", context, argument)
    return names[0] if names else None


_OF_RUNS = ("Experiment", "Trial", "Suggestion")
EXPERIMENT_NAME = PlainName("Experiment")
newest_or_named = click.argument("name", type=EXPERIMENT_NAME, required=False)
TRIAL_NAME = PlainName("Trial")
TRIAL_OR_POD_NAME = PlainName("Trial", "Pod")
any_or_newest = click.argument("name", nargs=-1, callback=_one_name, metavar="[NAME]")
"""The name of an experiment or a trial, optionally with its kind; None: the newest experiment."""
REPLICA_NAME = PlainName("Pod")


def files_of(_context: click.Context, _parameter: click.Parameter, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return paths of files; a directory is replaced by its files.

    Raises:
        InvalidError: A directory has no file of objects.
    """
    from katib.doors.cli.experiment_files import SUFFIXES

    found: list[str] = []
    for path in paths:
        files = (
            [str(file) for file in sorted(Path(path).iterdir()) if file.suffix in SUFFIXES]
            if Path(path).is_dir()
            else [path]
        )
        if not files:
            raise invalid(path, f"is a folder without a file {', '.join(SUFFIXES)}", "name a file", "file-unreadable")
        found += files
    return tuple(found)


def write_file(path: Path, text: str, option: str) -> None:
    """Write an experiment file; `option` is the one to choose another path.

    Raises:
        InvalidError: It cannot be written.
    """
    from katib.model.files.whole_files import write_named

    try:
        write_named(path, text)
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise invalid(str(path), cause, f"choose another one with {option}", "file-unwritable") from error


def pairs(
    texts: Sequence[str], form: str, split: Callable[[str, str], tuple[str, str, str]] = str.partition
) -> dict[str, str]:
    """Return arguments such as `lr=0.1` as a mapping.

    Args:
        texts: The arguments.
        form: Their format, for the error.
        split: Splits one at its first equals sign, or at its last.

    Raises:
        click.UsageError: One has no name or no equals sign, or comes twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = split(text, "=")
        if not equals or not name:
            raise click.UsageError(f'"{text}" is no {form}', click.get_current_context())
        if name in found:
            raise click.UsageError(f"{name} has two values; give it one", click.get_current_context())
        found[name] = value
    return found


_LONG_DASHES = ("\u2013", "\u2014")


def refuse_as_command(word: str) -> None:
    """Refuse the first word of a command if it looks like an unknown option.

    Raises:
        click.UsageError: It does; the error names the option that was meant.
    """
    if not word.startswith(("-", *_LONG_DASHES)):
        return
    from katib.model.wording import closest
    from katib.service.drafting import option_for

    context = click.get_current_context()
    if word.startswith(_LONG_DASHES):
        plain = word.lstrip("".join(_LONG_DASHES))
        raise click.UsageError(f"{word} begins with a long dash, as of a text; write --{plain}", context)
    known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
    typed = word.partition("=")[0]
    option = option_for(typed.lstrip("-").replace("-", "_"), known)
    near = closest(typed, known)
    remedy = f"did you mean {near}?" if near else f"`{context.command_path} --help` lists all"
    raise click.UsageError(f"there is no option {typed}; {f'use {option}' if option else remedy}", context)
