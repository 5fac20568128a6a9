"""`katib delete`."""

from __future__ import annotations

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
    target: options.Target,
) -> int:
    """Delete experiments with their trials, running processes, metrics and logs."""
    from katib.cli.connection import connect
    from katib.errors import KatibError

    code = 0
    with connect(target, read_only=False) as (service, namespace):
        for name in names:
            try:
                service.delete(namespace, name)
            except KatibError as error:
                code = failures.show(error)
            else:
                click.echo(f"experiment/{name} deleted")
    return code
