"""Errors on the terminal: one line each, and the matching exit code."""

from __future__ import annotations

import errno
import itertools
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from katib.doors.cli import options
from katib.errors import InvalidError, KatibError, code_of, one_line, shortage_of

_SENSITIVE = r"token|secret|passw|credential|api[-_]?key|access[-_]?key"
_SECRET_OPTION = re.compile(rf"-[^=]*(?:{_SENSITIVE})[^=]*", re.IGNORECASE)
_SECRET_VALUE = re.compile(rf"[\w-]*(?:{_SENSITIVE})[\w-]*=(.+)", re.IGNORECASE | re.DOTALL)
_SHORTEST_SENSITIVE = 6
"""Minimum length of a secret in an environment variable: TOKENIZERS_PARALLELISM=false has none."""
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def error_lines(error: KatibError, source: str = "") -> list[str]:
    """Return the lines of an error, one per broken rule, each prefixed by its file name.

    Args:
        source: The file; an error whose path already is the file does not repeat it.
    """
    if not isinstance(error, InvalidError):
        return [one_line(error)]
    return [
        str(field) if not source or field.path.startswith(source) else f"{source}: {field}" for field in error.errors
    ]


def show(error: Exception) -> int:
    """Print an error and return its exit code; the traceback of an unexpected one is written to a file."""
    if isinstance(error, KatibError):
        for line in error_lines(error):
            click.echo(f"error: {line}", err=True)
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"{error.filename or 'the output'}: {(error.strerror or '').lower()}"
        click.echo(f"error: {what}; free some space there, and repeat the command", err=True)
    elif (shortage := shortage_of(error)) is not None:
        click.echo(f"error: {shortage}, and repeat the command", err=True)
    else:
        where = _write_traceback(error)
        click.echo(
            f"error: {type(error).__name__}: {one_line(error)}; this is a bug, please report it with {where}",
            err=True,
        )
    return code_of(error).exit_code


def show_usage(error: click.UsageError) -> int:
    """Print the error in the arguments; without arguments, the choices."""
    from katib.doors.cli import experiment_files

    if isinstance(error, click.exceptions.NoArgsIsHelpError) and error.ctx is not None:
        click.echo(error.ctx.get_help())
        return 0
    missing = error.param if isinstance(error, click.MissingParameter) else None
    if missing is not None and missing.name in ("file", "files") and error.ctx is not None:
        command = error.ctx.command_path
        step = experiment_files.next_step(Path(), command) or f"write `{command} FILE` with its path"
        click.echo(f"error: no experiment file was named; {step}", err=True)
        return options.BAD_INPUT
    message = error.format_message().rstrip(".")
    hint = f"; see `{error.ctx.command_path} --help`" if error.ctx is not None and ";" not in message else ""
    if missing is not None and error.ctx is not None and (examples := error.ctx.command.epilog):
        first = re.sub(r" \\\n +", " ", examples).splitlines()[2]  # after the mark and the heading
        hint += f"; for example: {first.strip()}"
    click.echo(f"error: {message[:1].lower()}{message[1:]}{hint}", err=True)
    return options.BAD_INPUT


def _write_traceback(error: Exception) -> str:
    """Write the traceback to the data directory, else to the temporary directory; return its path."""
    from katib.doors.cli.options import default_data_dir

    text = _without_secrets("".join(traceback.format_exception(error)), sys.argv)
    prefix = f"katib-error-{time.strftime('%Y%m%d-%H%M%S')}-"
    for directory in (default_data_dir(), tempfile.gettempdir()):
        try:
            descriptor, path = tempfile.mkstemp(
                ".txt", prefix, directory
            )  # readable by its owner only, and never through a link
            with open(descriptor, "w") as file:  # noqa: PTH123 - of a descriptor
                file.write(text)
        except OSError:
            continue
        return path
    click.echo(text, err=True)
    return "the text above"


def _without_secrets(text: str, arguments: Sequence[str]) -> str:
    """Return a traceback and the command line below it, without values whose names mark them as secret."""
    secrets = {value for name, value in os.environ.items() if _SECRET_VALUE.fullmatch(f"{name}={value}")}
    secrets = {value for value in secrets if len(value) >= _SHORTEST_SENSITIVE}
    secrets |= {value for name, value in itertools.pairwise(arguments) if _SECRET_OPTION.fullmatch(name)}
    secrets |= {match[1] for word in arguments if (match := _SECRET_VALUE.fullmatch(word))}
    whole = f"{text}\nargv: {[*arguments]}\n"
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        whole = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", whole)
    return _LOGIN.sub("***", whole)
