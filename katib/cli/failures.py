"""Errors on the terminal: one line each, and the exit code that belongs to them."""

from __future__ import annotations

import errno
import sys
import tempfile
import time
import traceback
from pathlib import Path

import click

from katib.cli import experiment_files
from katib.errors import InvalidError, KatibError, code_of, one_line

BAD_INPUT = 2


def error_lines(error: KatibError, source: str = "") -> list[str]:
    """Return the lines of an error, one per broken rule, each behind the name of the file it is about.

    Args:
        error: What went wrong.
        source: The file; an error whose path already is the file does not repeat it.
    """
    if not isinstance(error, InvalidError):
        return [one_line(error)]
    return [
        str(field) if not source or field.path.startswith(source) else f"{source}: {field}" for field in error.errors
    ]


def show(error: Exception) -> int:
    """Print an error and return its exit code; an unexpected one is a bug whose traceback goes to a file."""
    if isinstance(error, KatibError):
        for line in error_lines(error):
            click.echo(f"error: {line}", err=True)
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"{error.filename or 'the output'}: {(error.strerror or '').lower()}"
        click.echo(f"error: {what}; free some space there, and repeat the command", err=True)
    else:
        where = _write_traceback(error)
        click.echo(
            f"error: {type(error).__name__}: {one_line(error)}; this is a bug, please report it with {where}",
            err=True,
        )
    return code_of(error).exit_code


def show_usage(error: click.UsageError) -> int:
    """Print what is wrong with the arguments; without any, what there is to choose from."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and error.ctx is not None:
        click.echo(error.ctx.get_help())
        return 0
    missing = error.param if isinstance(error, click.MissingParameter) else None
    if missing is not None and missing.name in ("file", "files") and error.ctx is not None:
        command = error.ctx.command_path
        step = experiment_files.next_step(Path(), command) or f"write `{command} FILE` with its path"
        click.echo(f"error: no experiment file was named; {step}", err=True)
        return BAD_INPUT
    message = error.format_message().rstrip(".")
    hint = f"; see `{error.ctx.command_path} --help`" if error.ctx is not None and ";" not in message else ""
    click.echo(f"error: {message[:1].lower()}{message[1:]}{hint}", err=True)
    return BAD_INPUT


def _write_traceback(error: Exception) -> str:
    """Write the traceback to the data directory, or where that is impossible to the temporary one; return the place."""
    from katib.cli.options import default_data_dir

    text = "".join(traceback.format_exception(error)) + f"\nargv: {sys.argv}\n"
    name = f"katib-error-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    for directory in (default_data_dir(), Path(tempfile.gettempdir())):
        try:
            (directory / name).write_text(text)
        except OSError:
            continue
        return str(directory / name)
    click.echo(text, err=True)
    return "the text above"
