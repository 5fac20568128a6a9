"""`katib budget`, `katib stop`, `katib suspend` and `katib resume`: experiments and trials that exist, changed."""

from __future__ import annotations

import click

from katib.api.types import Experiment
from katib.cli import options
from katib.tuning.reading import active_count, completed_count, is_completed

_NO_LIMIT = "none"
_RESUMED = options.PlainName("experiment", "trial")


class _Count(click.ParamType[int | str]):
    """A whole number, or `none` for no limit."""

    name = "count"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word for no limit."""
        if value == _NO_LIMIT:
            return _NO_LIMIT
        return click.IntRange(self._least)(value, param, ctx)


@click.command(
    epilog=options.examples(
        "katib budget my-experiment --max-trials 40",
        "katib budget my-experiment --parallel 4 --max-failed none",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.option("--max-trials", type=_Count(1), metavar="N", help="Trials in all; none: until it is stopped.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="Trials at once.")
@click.option("--max-failed", type=_Count(0), metavar="N", help="Failed trials that end it; none: no limit.")
@options.connection
def budget(
    name: str, max_trials: int | str | None, parallel: int | None, max_failed: int | str | None, target: options.Target
) -> None:
    """Change how many trials an experiment makes, in all and at once.

    One that has used up its budget goes on when it gets a larger one and its resumePolicy is LongRunning or FromVolume.
    """
    from katib.cli.connection import connect

    given = {"maxTrialCount": max_trials, "parallelTrialCount": parallel, "maxFailedTrialCount": max_failed}
    counts = {field: None if value == _NO_LIMIT else int(value) for field, value in given.items() if value is not None}
    if not counts:
        raise click.UsageError("give --max-trials, --parallel or --max-failed", click.get_current_context())
    with connect(target, read_only=False) as (service, namespace):
        service.edit(namespace, name, counts=counts)
    words = ", ".join(f"{field} {_NO_LIMIT if value is None else value}" for field, value in counts.items())
    click.echo(f"experiment/{name}: {words}")


@click.command(epilog=options.examples("katib stop my-experiment", "katib stop my-experiment --context production"))
@click.argument("name", type=options.EXPERIMENT_NAME)
@options.connection
def stop(name: str, target: options.Target) -> None:
    """Start no further trials of an experiment; those that run go on to their ends.

    `katib resume` lets it go on, and so does submitting its file again.
    """
    from katib.cli.connection import connect

    with connect(target, read_only=False) as (service, namespace):
        experiment = service.edit(namespace, name, counts={}, stopped=True)
    active = active_count(experiment)
    left = f"; {active} trial{'s' * (active != 1)} that run go on to their ends" if active else ""
    click.echo(f"experiment/{name}: stopped after {completed_count(experiment)} trials{left}")


@click.command(
    epilog=options.examples("katib suspend my-experiment-4fj2x1aa", "katib suspend my-experiment-4fj2x1aa -n team-a")
)
@click.argument("name", metavar="TRIAL", type=options.TRIAL_NAME)
@options.connection
def suspend(name: str, target: options.Target) -> None:
    """Suspend a trial: its pods end, which is no failure, and the time until it goes on does not count as its duration.

    `katib resume` lets it go on. Its program then starts from the beginning, or from the checkpoint that it kept.
    """
    from katib.cli.connection import connect
    from katib.errors import NotFoundError, invalid

    with connect(target, read_only=False) as (service, namespace):
        try:
            service.suspend(namespace, name, suspended=True)
        except NotFoundError:
            service.get(Experiment, namespace, name)  # raises when there is neither
            remedy = f"`katib stop {name}{target.choice}` starts no further trials; suspend its trials one by one"
            raise invalid(f"experiment {name}", "only a trial can be suspended", remedy, "suspend-experiment") from None
    click.echo(f"trial/{name}: suspended; `katib resume {name}{target.choice}` lets it go on")


@click.command(epilog=options.examples("katib resume my-experiment", "katib resume my-experiment-4fj2x1aa"))
@click.argument("name", type=_RESUMED)
@options.connection
def resume(name: str, target: options.Target) -> None:
    """Resume a stopped experiment or a suspended trial.

    A trial starts its program again, from the beginning or from the checkpoint that it kept.
    """
    from katib.cli.connection import connect
    from katib.errors import NotFoundError

    with connect(target, read_only=False) as (service, namespace):
        try:
            experiment = service.edit(namespace, name, counts={}, stopped=False)
        except NotFoundError:
            try:
                service.suspend(namespace, name, suspended=False)
            except NotFoundError:
                message = f'neither an experiment nor a trial "{name}" is in namespace {namespace}'
                raise NotFoundError(message) from None
            click.echo(f"trial/{name}: goes on")
            return
    if is_completed(experiment):
        from katib.explaining import more_trials

        more = target.complete(more_trials(experiment, options.DEFAULT_NAMESPACE, at_work=True))
        click.echo(f"experiment/{name}: it has ended; {more[:1].lower()}{more[1:].rstrip('.')}")
        return
    click.echo(f"experiment/{name}: goes on")
