"""`katib confirm`: the best configurations of an experiment, run again with other seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from katib.doors.cli import options
from katib.doors.cli.printing import NOTHING, aligned, print_data
from katib.doors.cli.run import again
from katib.errors import NotFoundError
from katib.model.loading import FileText
from katib.model.trials import is_asked
from katib.model.types import Experiment
from katib.service.tuning.reading import short
from katib.service.tuning.service import INTERVAL_LEVEL, NO_CHOICE, Confirmation, SubmittedExperiment, TuningService
from katib.service.tuning.states import is_completed
from katib.service.tuning.titles import namespace_in_use

if TYPE_CHECKING:
    from katib.doors.cli.run.following import Run
    from katib.places.machine import Engine


@click.command(
    epilog=options.examples(
        "katib confirm my-experiment",
        "katib confirm my-experiment --top 2 --repeats 10",
        "katib confirm my-experiment -o json | jq '.configurations[0].parameters'",
    ),
)
@options.newest_or_named
@click.option("--top", type=click.IntRange(1, 50), default=3, show_default=True, help="Number of configurations.")
@click.option("--repeats", type=click.IntRange(1, 200), default=5, show_default=True, help="Runs of each.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="Runs at once.  [default: as in the search]")
@click.option("--retry-failed", is_flag=True, help="Run those that ended without a value again.")
@options.config
@options.containers
@options.place
@options.detach
@options.log_to
@options.output("json", "yaml")
@options.quiet
@options.connection
def confirm(
    name: str | None,
    top: int,
    repeats: int,
    parallel: int | None,
    retry_failed: bool,
    config: Path | None,
    containers: str | None,
    slurm: tuple[str, ...] | None,
    detach: bool,
    form: str | None,
    quiet: bool,
    target: options.Target,
) -> int:
    """Run the best configurations of an experiment again, each with other seeds, and tell how sure the result is.

    The best value of a search is partly luck. This shows the mean of each configuration with its interval, the
    probability that it is the best of them, and by how much the best value of the search was too good. A program finds
    its seed in KATIB_SEED, or as {seed} in a command of `katib tune`.

    The runs are trials of an experiment of its own, NAME-confirm. After Ctrl-C the same command continues. A larger
    number of runs or configurations adds the missing ones. `katib best NAME` then names the best mean.

    The default is the newest experiment that confirms no other one.

    The exit code is 0 if it succeeded, 1 if it failed, 2 if NAME cannot be confirmed, 130 after Ctrl-C.
    """
    from katib.doors.cli.connection import connect
    from katib.doors.cli.run.command import run_at, run_wanted

    options.set_up_logging(target.verbose, quiet=quiet, says_sentences=True)
    wanted = _Wanted(
        FileText("", ""),
        target.namespace,
        NO_CHOICE,
        form=form,
        quiet=quiet,
        drafted=True,
        tells_ways=False,
        name=name,
        top=top,
        repeats=repeats,
        parallel=parallel,
        retry_failed=retry_failed,
    )
    here = again.Here(target.data_dir, config, containers, slurm, detach=detach)
    if target.cluster or target.server is not None or options.has_data(here.directory):
        return run_wanted(wanted, target, here)
    with connect(target, read_only=False) as (service, _):
        return run_at(service, options.DEFAULT_SERVER, wanted, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted(again.Wanted):
    """Request to confirm an experiment."""

    name: str | None
    top: int
    repeats: int
    parallel: int | None
    retry_failed: bool

    def admitted_first(self, engine: Engine, directory: Path) -> None:
        """Do nothing: the experiment is stored."""

    def submit_here(self, engine: Engine, _admitted: object, /) -> again.Submitted:
        return self.submit_at(engine.service)

    def submit_in_cluster(self, service: TuningService, namespace: str) -> again.Submitted:
        return self._submit(service, self.namespace or namespace)

    def submit_at(self, service: TuningService) -> again.Submitted:
        return self._submit(service, self.namespace or namespace_in_use(service))

    def _submit(self, service: TuningService, namespace: str) -> again.Submitted:
        from katib.doors.cli.connection import experiment_meant

        name = experiment_meant(service, namespace, self.name, with_confirming=False)
        found = service.confirm(
            namespace,
            name,
            top=self.top,
            repeats=self.repeats,
            parallel=self.parallel,
            retry_failed=self.retry_failed,
            command=options.typed_line(),
        )
        experiment = service.get(Experiment, namespace, found.confirmed_by)
        if is_asked(experiment) and not is_completed(experiment):
            click.echo(f"callers evaluate its runs: `katib ask {experiment.name}` gives the next one", err=True)
            return again.Submitted(None)
        return again.Submitted(SubmittedExperiment(experiment.encode(), "created"))

    def report(self, run: Run, _place: str, /) -> int:
        """Print the findings; return the exit code."""
        experiment = run.progress.experiment
        found = run.service.confirmation(experiment.namespace, experiment.name)
        if found is None:
            raise NotFoundError(f"{experiment.name} was deleted")
        if self.form:
            print_data(to_builtins(found), self.form)
        else:
            for line in (*table_lines(found), *sentences(found)):
                click.echo(line)
        return int(found.state == "Failed")


def table_lines(found: Confirmation) -> Iterator[str]:
    """Yield a table of the configurations, the best mean first."""
    from katib.service.tuning.confirmations import interval_text, share_text, text_of

    head = ["TRIAL", "MEAN", f"{INTERVAL_LEVEL:.0%}-INTERVAL", "P-BEST", "RUNS", "SEARCH", "PARAMETERS"]
    rows = [
        [
            row.trial,
            NOTHING if row.mean is None else text_of(row.mean),
            interval_text(row) or NOTHING,
            NOTHING if row.probability is None else share_text(row.probability),
            str(len(row.values)) + (f"+{len(row.lost)} lost" if row.lost else ""),
            text_of(row.search_value),
            " ".join(f"{name}={short(value)}" for name, value in row.parameters.items()),
        ]
        for row in found.configurations
    ]
    yield from aligned([head, *rows])


def sentences(found: Confirmation) -> tuple[str, ...]:
    """Return the result in sentences, the first one first."""
    return found.verdict, *found.notes
