"""`katib why` and `katib describe`: an object, explained to a user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import click
from msgspec import json

from katib.doors.cli import columns, options
from katib.doors.cli.printing import NOTHING, aligned, print_data
from katib.doors.cli.results import best_lines, pareto_lines
from katib.errors import ForbiddenError, NotFoundError
from katib.model.names import EXPERIMENT_LABEL, GENERATION_LABEL, PARENT_LABEL
from katib.model.types import Experiment, ExperimentSpec, ParameterSpec, Suggestion, Trial
from katib.model.wording import counted, format_duration
from katib.service.explaining.progress import savings_of
from katib.service.explaining.replicas import trouble_of
from katib.service.tuning.reading import (
    algorithm_words,
    assignments_of,
    compared_words,
    constraint_words,
    duration_of,
    infeasible_words,
    metric_of,
    objective_values,
    objective_words,
    parameters_of,
    pareto_trials,
    short,
    space_words,
    time_text,
    violates_constraints,
)
from katib.service.tuning.replicas import (
    exit_words,
    newest_of_each,
    place_words,
    replica_name,
    restarts_of,
    state_words,
)
from katib.service.tuning.service import Diagnosis, RecordedEvent, TuningService
from katib.service.tuning.states import failure_of, held_condition, objective_value, state_of, stops_early
from katib.service.tuning.trial_pages import MOST_GENERATIONS, generations_of


@click.command(
    epilog=options.examples(
        "katib why my-experiment",
        "katib why my-experiment-k4x8bq2z",
    ),
)
@options.any_or_newest
@options.output("json", "yaml")
@options.connection
def why(
    name: str | None,
    form: str | None,
    target: options.Target,
) -> None:
    """Explain, on one screen, why an experiment or a trial does not progress, or how it ended.

    The default is the newest experiment.
    """
    from katib.doors.cli.connection import connect, experiment_meant

    with connect(target, read_only=True) as (service, namespace):
        name = experiment_meant(service, namespace, name)
        diagnosis = service.why(namespace, name)
    if form:
        print_data(json.decode(json.encode(diagnosis)), form)
        return
    for line in diagnosis_lines(diagnosis):
        click.echo(target.complete(line))


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Return a diagnosis as lines: the answer, the evidence, the next steps, and the end of the output."""
    lines = [diagnosis.verdict]
    if findings := [*diagnosis.findings, *filter(None, [diagnosis.savings])]:
        lines += ["", *(f"  - {finding}" for finding in findings)]
    if diagnosis.remedies:
        lines += ["", "What you can do:", *(f"  - {remedy}" for remedy in diagnosis.remedies)]
    if diagnosis.log_tail:
        lines += ["", "The end of its output:", *(f"  | {line}" for line in diagnosis.log_tail)]
    return lines


_SHOWN_EVENTS = 20
_LABEL_WIDTH = 14


@click.command(
    epilog=options.examples(
        "katib describe my-experiment",
        "katib describe my-experiment-k4x8bq2z",
    ),
)
@options.any_or_newest
@options.connection
def describe(
    name: str | None,
    target: options.Target,
) -> None:
    """Show an experiment, or a trial of that name, in detail: its spec, its progress and its events.

    The default is the newest experiment.
    """
    from katib.doors.cli.connection import connect, experiment_meant, experiment_or_trial

    with connect(target, read_only=True) as (service, space):
        name = experiment_meant(service, space, name)
        found = experiment_or_trial(service, space, name)
        lines = list(_trial(service, found) if isinstance(found, Trial) else _experiment(service, found))
    for line in lines:
        click.echo(line)


def _experiment(service: TuningService, experiment: Experiment) -> Iterator[str]:
    spec = experiment.spec
    namespace, name = experiment.namespace, experiment.name
    yield from _head(experiment)
    yield _line("Objective", objective_words(experiment))
    yield _line("Algorithm", algorithm_words(spec.algorithm))
    yield from _suggestion(service, experiment)
    if stops_early(experiment):
        yield _line("Early stopping", algorithm_words(spec.early_stopping))
        if savings := savings_of(service, experiment):
            yield _line("Savings", savings)
    yield _line("Budget", _budget(spec))
    yield _line("Progress", _progress(experiment))
    for failed in experiment.status.failed_trial_list[-1:]:
        with suppress(NotFoundError):
            cause = failure_of(service.get(Trial, namespace, failed)) or "no reason was recorded"
            yield _line("Last failure", f"{failed} failed: {cause}")
    yield from parameter_lines(spec.parameters)
    for comparison in spec.parameter_constraints:
        yield f"  where {comparison}"
    best = service.best(namespace, name)
    if best is not None:
        yield ""
        yield from pareto_lines(experiment) if pareto_trials(experiment) else best_lines(best)
        yield from lineage_lines(service, best)
        if compared := compared_words(experiment):
            yield _line("Compared", compared)
    elif infeasible := infeasible_words(experiment):
        yield _line("Best", infeasible)
    yield from _conditions(experiment)
    yield from _events(service.events("Experiment", namespace, name))


def _suggestion(service: TuningService, experiment: Experiment) -> Iterator[str]:
    """Yield the suggestion service's choice of algorithm, the experiments it learns from, and the cause of a wait."""
    try:
        suggestion = service.get(Suggestion, experiment.namespace, experiment.name)
    except NotFoundError:
        return
    status = suggestion.status
    if status.explanation:
        yield _line("Its choice", status.explanation)
    if status.earlier_trials is not None:
        yield _line("Warm start", str(status.earlier_trials))
    if waiting := held_condition(suggestion, "WaitingForTrials").message:
        yield _line("Waiting", waiting)


def _trial(service: TuningService, trial: Trial) -> Iterator[str]:
    namespace, name = trial.namespace, trial.name
    yield from _head(trial)
    if failure := failure_of(trial):
        yield _line("Failure", failure)
    yield _line("Experiment", trial.metadata.labels.get(EXPERIMENT_LABEL, ""))
    yield _line("Duration", duration_of(trial))
    yield _line("Objective", " ".join(f"{metric}={value}" for metric, value in objective_values(trial)))
    if violates_constraints(trial):
        yield _line("Constraints", f"it does not satisfy {constraint_words(trial)}")
    yield "Parameters:"
    for key, value in assignments_of(trial).items():
        yield f"  {key}={value}"
    yield from lineage_lines(service, trial)
    yield from _replicas(service, trial)
    yield from _conditions(trial)
    yield from _events(service.events("Trial", namespace, name))


def _replicas(service: TuningService, trial: Trial) -> Iterator[str]:
    """Yield a table of the pods of its job, the newest of each replica; nothing if none is known."""
    try:
        pods = newest_of_each(service.pods("Trial", trial.namespace, trial.name))
    except ForbiddenError:  # show the rest without it
        return
    if not pods:
        return
    rows = [
        (replica_name(p), state_words(p), str(restarts_of(p)), exit_words(p) or NOTHING, place_words(p) or NOTHING)
        for p in pods
    ]
    yield ""
    yield "Replicas:"
    for line in aligned([("REPLICA", "STATE", "RESTARTS", "EXIT", "WHERE"), *rows]):
        yield f"  {line}"
    for pod in pods:
        if words := trouble_of(pod):
            yield f"  Replica {replica_name(pod)} {words}"


def _head(obj: Experiment | Trial) -> Iterator[str]:
    yield _line("Name", obj.name)
    yield _line("Namespace", obj.namespace)
    yield _line("State", state_of(obj))
    yield _line("Age", columns.age_of(obj.metadata.creation_timestamp))


def _line(label: str, value: str) -> str:
    return f"{label + ':':<{_LABEL_WIDTH + 2}}{value or '-'}".rstrip()


def _budget(spec: ExperimentSpec) -> str:
    most, parallel, failed = spec.max_trial_count, spec.parallel_trial_count, spec.max_failed_trial_count
    parts = [counted(most, "trial") if most is not None else "no limit of trials"]
    parts.append(f"{1 if parallel is None else parallel} at a time")
    if failed is not None:
        parts.append(f"at most {failed} failed")
    return ", ".join(parts)


def _progress(experiment: Experiment) -> str:
    status = experiment.status
    counts = {
        "succeeded": status.trials_succeeded,
        "stopped early": status.trials_early_stopped,
        "failed": status.trials_failed,
        "without metrics": status.trial_metrics_unavailable,
        "killed": status.trials_killed,
        "running": status.trials_running,
        "waiting": status.trials_pending,
    }
    shown = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{columns.progress_of(experiment)}{f' ({shown})' if shown else ''}"


def parameter_lines(parameters: Sequence[ParameterSpec]) -> Iterator[str]:
    """Yield the search space of an experiment."""
    if parameters:
        yield "Search space:"
    for parameter in parameters:
        condition = parameter.when
        when = f", when {condition.parameter} is {' or '.join(condition.values)}" if condition is not None else ""
        yield f"  {parameter.name}: {space_words(parameter)}{when}"


def _conditions(obj: Experiment | Trial) -> Iterator[str]:
    if obj.status.conditions:
        yield ""
        yield "Conditions:"
    for c in obj.status.conditions:
        message = f": {' '.join(c.message.split())}" if c.message else ""
        yield f"  {time_text(c.last_transition_time)}  {c.type}={c.status}  {c.reason}{message}"


def _events(events: Sequence[RecordedEvent]) -> Iterator[str]:
    if not events:
        return
    yield ""
    left_out = len(events) - _SHOWN_EVENTS
    yield f"Events (newest {_SHOWN_EVENTS}, {left_out} older):" if left_out > 0 else "Events:"
    for event in events[-_SHOWN_EVENTS:]:
        ago = format_duration((datetime.now(UTC) - event.time).total_seconds())
        times = f" (x{event.count})" if event.count > 1 else ""
        kind = "Warning" if event.warning else "Normal"
        yield f"  {ago:>8}  {kind:<7}  {event.name}  {event.reason}{times}: {event.message}"


# --- the lineage of a trial -------------------------------------------------------------------------------------------


def lineage_lines(service: TuningService, trial: Trial) -> Iterator[str]:
    """Yield the trials whose checkpoints led to that of a trial, itself first; nothing for a trial without a parent."""
    if not _label(trial, PARENT_LABEL):
        return
    yield ""
    yield "Lineage, each trial from the checkpoint of the next one:"
    generations = generations_of(service, trial)
    for one in generations:
        value = f"{metric_of(one)}={short(objective_value(one) or '-')}"
        generation = f"generation {_label(one, GENERATION_LABEL) or '0'}"
        yield f"  {generation:<14}  {one.name}  {value}  {parameters_of(one)}"
    if parent := _label(generations[-1], PARENT_LABEL):
        is_full = len(generations) == MOST_GENERATIONS
        older = _label(generations[-1], GENERATION_LABEL) or "some"
        yield f"  and {older} before them" if is_full else f"  {parent}, which was deleted"


def _label(trial: Trial, label: str) -> str:
    return trial.metadata.labels.get(label, "")
