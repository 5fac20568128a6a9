"""`katib logs`."""

from __future__ import annotations

import sys

import click

from katib.cli import options


@click.command(
    short_help="Print the output of a trial.",
    epilog=options.examples(
        "katib logs my-experiment-k4x8bq2z --tail 20",
        "katib logs my-experiment-k4x8bq2z -f",
    ),
)
@click.argument("trial", type=options.TRIAL_NAME)
@click.option("-f", "--follow", is_flag=True, help="Go on until the trial ends.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last so many lines.")
@options.connection
def command(
    trial: str,
    follow: bool,
    tail: int | None,
    target: options.Target,
) -> None:
    """Print what a trial wrote, byte for byte."""
    from katib.cli.connection import connect

    with connect(target, read_only=True) as (service, namespace):
        chunks = service.logs(namespace, trial, follow=follow, tail_lines=tail)
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
