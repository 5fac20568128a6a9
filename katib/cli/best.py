"""`katib best`."""

from __future__ import annotations

import click

from katib.cli import options
from katib.cli.printing import print_object
from katib.tuning.reading import Json, assignments_of, metric_value, name_of, objective_of, status_of


@click.command(
    short_help="Show the best trial of an experiment.",
    epilog=options.examples(
        "katib best my-experiment",
        "katib best my-experiment -o json | jq .spec.parameterAssignments",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@options.output("json", "yaml", "name")
@options.connection
def command(
    name: str,
    form: str | None,
    target: options.Target,
) -> int:
    """Show the best trial of an experiment so far: its metrics and its parameters."""
    from katib.cli.connection import connect

    with connect(target, read_only=True) as (service, namespace):
        best = service.best(namespace, name)
    if best is None:
        click.echo(f"error: no trial of {name} has a usable objective value yet; `katib why {name}` says why", err=True)
        return 1
    if form:
        print_object(best, form)
    else:
        for line in best_lines(best):
            click.echo(line)
    return 0


def best_lines(trial: Json) -> list[str]:
    """Return a trial with its metrics and parameters, aligned."""
    objective = objective_of(trial)
    metrics = (status_of(trial).get("observation") or {}).get("metrics") or ()
    pairs = [(m["name"], metric_value(objective, metrics, m["name"]) or "unavailable") for m in metrics]
    assignments = assignments_of(trial)
    width = max((len(name) for name in (*dict(pairs), *assignments)), default=0)
    return [
        f"Best trial: {name_of(trial)}",
        *(f"  {name.ljust(width)}   {value}" for name, value in pairs),
        "Parameters:",
        *(f"  {name.ljust(width)}   {value}" for name, value in assignments.items()),
    ]
