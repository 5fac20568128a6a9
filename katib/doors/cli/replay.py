"""`katib replay`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from katib.doors.cli import options
from katib.doors.cli.printing import Table, print_data
from katib.errors import invalid
from katib.model.wording import format_duration
from katib.service.tuning.reading import short
from katib.service.tuning.replay_report import HARMLESS, Compared, Cut, ReplayReport, compared, recommended, report_of
from katib.service.tuning.states import state_of

if TYPE_CHECKING:
    from katib.model.metrics import MetricLog
    from katib.model.types import AlgorithmSetting, AlgorithmSpec, Experiment, ObjectiveSpec, Trial
    from katib.service.tuning.service import TuningService

_MOST_READINGS = 100_000


@click.command(
    epilog=options.examples(
        "katib replay my-experiment --early-stopping asha -s reduction_factor=3",
        "katib replay my-experiment another --compare",
        "katib replay my-experiment -o json | jq .readingsSaved",
    ),
)
@click.argument("names", type=options.EXPERIMENT_NAME, nargs=-1, required=True, metavar="NAME...")
@click.option("--early-stopping", "algorithm", metavar="NAME", help="The algorithm.  [default: the experiment's own]")
@click.option(
    "-s", "--setting", "given", multiple=True, metavar="NAME=VALUE", help="A setting of it; may be given several times."
)
@click.option("--compare", is_flag=True, help="Compare all algorithms, over all these experiments.")
@options.output("json", "yaml")
@options.connection
def replay(
    names: tuple[str, ...],
    algorithm: str | None,
    given: tuple[str, ...],
    compare: bool,
    form: str | None,
    target: options.Target,
) -> None:
    """Show which trials of a finished experiment an early stopping algorithm would have stopped.

    Every trial is judged by the readings available when its own arrived. Trials that early stopping ended already count
    with their readings until then.
    """
    from pydantic import TypeAdapter

    from katib.doors.cli.connection import connect, experiment_meant

    if compare and (algorithm or given):
        raise click.UsageError("--compare takes all algorithms with the settings that they have by default")
    if len(names) > 1 and not compare:
        raise click.UsageError("several experiments need --compare")
    with connect(target, read_only=True) as (service, namespace):
        read = [_Replayed.of(service, namespace, experiment_meant(service, namespace, name)) for name in names]
    if compare:
        from katib.engine.algorithm_services.replay import stopping_names
        from katib.model.types import AlgorithmSpec

        specs = [AlgorithmSpec(algorithm_name=name) for name in stopping_names()]
        table = [compared(spec.algorithm_name, [one.replay(spec) for one in read]) for spec in specs]
        if form:
            print_data(TypeAdapter(list[Compared]).dump_python(table, mode="json", by_alias=True), form)
        else:
            _print_comparison(table, read)
        return
    (one,) = read
    chosen = _chosen(one.experiment.spec.early_stopping, algorithm, given)
    found = one.replay(chosen)
    if form:
        print_data(TypeAdapter(ReplayReport).dump_python(found, mode="json", by_alias=True), form)
        return
    _print(chosen.algorithm_name, one.experiment.name, one.metric, found)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """An experiment with its trials, and their curves of the objective metric."""

    experiment: Experiment
    objective: ObjectiveSpec
    trials: Sequence[Trial]
    curves: Mapping[str, list[MetricLog]]

    @property
    def metric(self) -> str:
        return self.objective.objective_metric_name

    @classmethod
    def of(cls, service: TuningService, namespace: str, name: str) -> _Replayed:
        from katib.model.types import Experiment
        from katib.service.tuning.trial_pages import pages_of

        experiment = service.get(Experiment, namespace, name)
        objective = experiment.spec.objective
        if objective is None:
            raise invalid(
                "spec.objective", "the experiment has none", "replay one that has an objective", "no-objective"
            )
        trials = [trial for page in pages_of(service, namespace, name) for trial in page.items]
        metric = objective.objective_metric_name
        curves = {
            trial.name: _curve(service.metrics(namespace, trial.name, metric=metric, limit=_MOST_READINGS))
            for trial in trials
        }
        return cls(experiment, objective, trials, curves)

    def replay(self, chosen: AlgorithmSpec) -> ReplayReport:
        """Return the decisions that an algorithm would have made."""
        from katib.engine.algorithm_services.replay import RecordedTrial, early_stops

        recorded = [RecordedTrial(t.name, state_of(t) == "Succeeded", self.curves[t.name]) for t in self.trials]
        stops = early_stops(chosen.algorithm_name, chosen.algorithm_settings, self.objective, recorded)
        return report_of(
            self.objective,
            self.trials,
            self.curves,
            {
                stop.trial_name: Cut(
                    f"{'reading' if stop.by_number else 'step'} {stop.resource}", stop.reason, stop.readings, stop.time
                )
                for stop in stops
            },
        )


def _print_comparison(table: Sequence[Compared], read: Sequence[_Replayed]) -> None:
    """Print the savings and losses of each algorithm, and a recommendation."""
    count = len(read)
    rows = sorted(table, key=lambda one: (one.lost > HARMLESS, -one.saved))
    Table(("ALGORITHM", "STOPPED", "SAVED", "LOST", "BEST-KEPT")).print(
        (one.algorithm, f"{one.stopped}/{one.trials}", f"{one.saved:.0%}", f"{one.lost:.0%}", f"{one.kept}/{count}")
        for one in rows
    )
    click.echo()
    best = recommended(table)
    if best is None:
        click.echo("None of them would have saved anything without a loss.")
    else:
        click.echo(
            f"{best.algorithm} would have saved most of those that would have lost nothing: "
            f"`--early-stopping {best.algorithm}`, or spec.earlyStopping.algorithmName in a file."
        )
    stopped = sum(one.experiment.status.trials_early_stopped for one in read)
    if stopped:
        click.echo(f"{stopped} trials were stopped early in reality, so what they would have reached is unknown.")


def _chosen(own: AlgorithmSpec | None, algorithm: str | None, given: Sequence[str]) -> AlgorithmSpec:
    """Return the algorithm with its settings; the experiment's own unless another one is named."""
    from katib.model.types import AlgorithmSpec

    settings = tuple(map(_setting, given))
    if algorithm is not None:
        return AlgorithmSpec(algorithm_name=algorithm, algorithm_settings=settings)
    if own is None:
        remedy = "name one, such as --early-stopping asha"
        raise invalid("--early-stopping", "the experiment has no early stopping", remedy, "early-stopping-missing")
    kept = tuple(one for one in own.algorithm_settings if one.name not in {setting.name for setting in settings})
    return AlgorithmSpec(algorithm_name=own.algorithm_name, algorithm_settings=(*kept, *settings))


def _setting(text: str) -> AlgorithmSetting:
    from katib.model.types import AlgorithmSetting

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f'"{text}" is not a setting; write NAME=VALUE, such as -s reduction_factor=3')
    return AlgorithmSetting(name=name.strip(), value=value.strip())


def _curve(readings: Sequence[MetricLog]) -> list[MetricLog]:
    """Return the readings by step, then by time."""
    return sorted(readings, key=lambda reading: (-1 if reading.step is None else reading.step, reading.time))


def _print(algorithm: str, experiment: str, metric: str, found: ReplayReport) -> None:
    if not found.trials:
        click.echo(f"no trial of {experiment} has reported {metric}; `katib why {experiment}` says why", err=True)
        return
    if found.stopped:
        Table(("TRIAL", "STATE", "OBJECTIVE", "STOPPED-AT", "SAVED", "REASON")).print(
            (t.name, t.state, short(t.objective), t.stopped_at, f"{t.readings_saved}/{t.readings}", t.reason)
            for t in found.stopped
        )
        click.echo()
    for line in _summary(algorithm, metric, found):
        click.echo(line)


def _summary(algorithm: str, metric: str, found: ReplayReport) -> Iterator[str]:
    count, trials = len(found.stopped), "1 trial" if found.trials == 1 else f"{found.trials} trials"
    yield f"{algorithm} would have stopped {count} of {trials}."
    if count:
        share = found.readings_saved / found.readings
        work = f"{found.readings_saved} of {found.readings} readings ({share:.0%})"
        if found.seconds:
            work += f", {format_duration(found.seconds_saved)} of {format_duration(found.seconds)} that trials ran"
        yield f"It would have saved {work}."
    if not found.best_trial:
        yield f"No trial has a usable value of {metric}."
    elif found.best_survives:
        yield f"The best trial, {found.best_trial} ({metric} {short(found.best_value)}), would have survived."
    else:
        yield (
            f"The best trial, {found.best_trial} ({metric} {short(found.best_value)}), would have been stopped; "
            f"the best one would be {found.best_left} ({short(found.best_value_left)})."
        )
