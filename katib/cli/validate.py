"""`katib validate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from katib.cli import failures, options
from katib.errors import InvalidError


@click.command(
    short_help="Check experiment files and store nothing.",
    epilog=options.examples(
        "katib validate experiment.yaml",
        "katib validate examples/*.yaml",
        "katib validate experiment.yaml --context production",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@options.config
@options.namespace
@options.cluster
@options.quiet
def command(
    files: tuple[str, ...], config: Path | None, namespace: str | None, cluster: options.Cluster, quiet: bool
) -> int:
    """Check experiment files as `katib run` would, and print all errors, one line each.

    Neither a server nor a data directory is needed. With --context, a file is checked against what that cluster
    offers. The exit code is 2 when any file has an error.
    """
    code = 0
    with _checker(config, namespace, cluster) as check:
        for path in files:
            try:
                text, source = options.read_file(path)
                notices = check(text, source)
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


@contextmanager
def _checker(
    config: Path | None, namespace: str | None, cluster: options.Cluster
) -> Iterator[Callable[[str, str], Sequence[str]]]:
    """Give a function that checks the text of a file and returns its notices."""
    if cluster:
        from katib.cli.connection import open_cluster

        options.refuse_beside("a cluster", "config")
        with open_cluster(cluster) as opened:
            space = namespace or opened.namespace
            yield lambda text, source: opened.service.validate(text, source=source, namespace=space)
        return
    from katib.engine import validate_document

    yield lambda text, source: validate_document(text, source=source, namespace=namespace, config=config)
