"""`katib trial`: trials that are chosen by hand."""

from __future__ import annotations

import click

from katib.cli import options


@click.group()
def trial() -> None:
    """Work on trials by hand."""


@trial.command(
    epilog=options.examples(
        "katib trial add my-experiment lr=0.1 layers=3",
        "katib trial add my-experiment optimizer=adam lr=1e-3 --context production",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.argument("assignments", nargs=-1, required=True, metavar="PARAMETER=VALUE...")
@options.connection
def add(name: str, assignments: tuple[str, ...], target: options.Target) -> None:
    """Run a trial next, before those that the algorithm proposes.

    It counts against the budget of the experiment as any other trial. Trials that are to run first from the beginning
    stand in the file, as spec.initialTrials.
    """
    from katib.cli.connection import connect

    chosen = options.pairs(assignments, "PARAMETER=VALUE")
    with connect(target, read_only=False) as (service, namespace):
        before = service.add_trial(namespace, name, chosen)
    others = f", after {before} others that were added by hand" if before else ""
    click.echo(f"experiment/{name}: a trial with {', '.join(assignments)} runs next{others}")
