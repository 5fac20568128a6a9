"""`katib validate`."""

from __future__ import annotations

from pathlib import Path

import click

from katib.cli import failures, options
from katib.errors import InvalidError


@click.command(
    short_help="Check experiment files and store nothing.",
    epilog=options.examples(
        "katib validate experiment.yaml",
        "katib validate examples/*.yaml",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.config
@options.namespace
@options.quiet
def command(files: tuple[str, ...], config: Path | None, namespace: str | None, quiet: bool) -> int:
    """Check experiment files as `katib run` would, and print all errors, one line each.

    Neither a server nor a data directory is needed. The exit code is 2 when any file has an error.
    """
    from katib.engine import validate_document

    code = 0
    for path in files:
        try:
            text, source = options.read_file(path)
            notices = validate_document(text, source=source, namespace=namespace, config=config)
        except InvalidError as error:
            for line in failures.error_lines(error, path):
                click.echo(line, err=True)
            code = failures.BAD_INPUT
            continue
        for notice in notices:
            click.echo(f"{source}: note: {notice}", err=True)
        if not quiet:
            click.echo(f"{source}: ok")
    return code
