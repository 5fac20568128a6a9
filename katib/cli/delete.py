"""`katib delete`."""

from __future__ import annotations

from pathlib import Path

import click

from katib.cli import failures, options


@click.command(
    short_help="Delete experiments with everything that belongs to them.",
    epilog=options.examples(
        "katib delete my-experiment",
        "katib get -o name | xargs katib delete",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=options.EXPERIMENT_NAME)
@options.connection
def command(
    names: tuple[str, ...],
    server: str | None,
    token: str | None,
    data_dir: Path | None,
    namespace: str | None,
    verbose: int,
) -> int:
    """Delete experiments with their trials, running processes, metrics and logs."""
    from katib.cli.connection import connect
    from katib.errors import KatibError

    code = 0
    with connect(server=server, token=token, data_dir=data_dir, verbose=verbose, read_only=False) as service:
        for name in names:
            try:
                service.delete(namespace or options.DEFAULT_NAMESPACE, name)
            except KatibError as error:
                code = failures.show(error)
            else:
                click.echo(f"experiment/{name} deleted")
    return code
