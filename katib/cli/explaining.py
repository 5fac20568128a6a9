"""`katib why` and `katib describe`: an object, explained to a user."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import click

from katib.api.types import EarlierTrialsStatus
from katib.cli import columns, options
from katib.cli.lineage import lineage_lines
from katib.cli.printing import NOTHING, aligned, print_data
from katib.cli.results import best_lines, pareto_lines
from katib.errors import ForbiddenError, NotFoundError
from katib.explaining.progress import savings_of
from katib.explaining.replicas import trouble_of
from katib.tuning.reading import (
    Json,
    assignments_of,
    condition_of,
    constraint_words,
    duration_of,
    failure_of,
    format_duration,
    infeasible_words,
    name_of,
    namespace_of,
    objective_values,
    objective_words,
    pareto_trials,
    state_of,
    status_of,
    violates_constraints,
)
from katib.tuning.replicas import (
    exit_words,
    newest_of_each,
    place_words,
    replica_name,
    restarts_of,
    state_words,
)
from katib.tuning.service import Diagnosis, RecordedEvent, TuningService


@click.command(
    epilog=options.examples(
        "katib why my-experiment",
        "katib why my-experiment-k4x8bq2z",
    ),
)
@click.argument("name", type=options.ANY_NAME)
@options.output("json", "yaml")
@options.connection
def why(
    name: str,
    form: str | None,
    target: options.Target,
) -> None:
    """Explain, on one screen, why an experiment or a trial does not progress, or how it ended."""
    from katib.cli.connection import connect

    with connect(target, read_only=True) as (service, namespace):
        diagnosis = service.why(namespace, name)
    if form:
        fields = {key: list(value) if isinstance(value, tuple) else value for key, value in _fields(diagnosis)}
        print_data(fields, form)
        return
    for line in diagnosis_lines(diagnosis):
        click.echo(line)


def _fields(diagnosis: Diagnosis) -> list[tuple[str, object]]:
    """Return the fields under the names that they have over HTTP."""
    pairs = dataclasses.asdict(diagnosis)
    pairs["logTail"] = pairs.pop("log_tail")
    return list(pairs.items())


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Return a diagnosis as lines: the answer, what it rests on, what to do, and the end of the output."""
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
@click.argument("name", type=options.ANY_NAME)
@options.connection
def describe(
    name: str,
    target: options.Target,
) -> None:
    """Show an experiment, or a trial of that name, in detail: what was asked, how far it is, and what happened."""
    from katib.cli.connection import connect

    with connect(target, read_only=True) as (service, space):
        try:
            lines = list(_experiment(service, service.get("Experiment", space, name)))
        except NotFoundError:
            try:
                trial = service.get("Trial", space, name)
            except NotFoundError:
                raise NotFoundError(
                    f'there is neither an experiment nor a trial "{name}" in namespace {space}; '
                    "`katib get -A` lists all experiments"
                ) from None
            lines = list(_trial(service, trial))
    for line in lines:
        click.echo(line)


def _experiment(service: TuningService, experiment: Json) -> Iterator[str]:
    spec = experiment.get("spec", {})
    namespace, name = namespace_of(experiment), name_of(experiment)
    yield from _head(experiment)
    yield _line("Objective", objective_words(experiment))
    yield _line("Algorithm", _algorithm(spec.get("algorithm") or {}))
    yield from _suggestion(service, experiment)
    if spec.get("earlyStopping"):
        yield _line("Early stopping", _algorithm(spec["earlyStopping"]))
        if savings := savings_of(service, experiment):
            yield _line("Savings", savings)
    yield _line("Budget", _budget(spec))
    yield _line("Progress", _progress(experiment))
    yield from _last_failure(service, experiment)
    yield from _parameters(spec.get("parameters") or ())
    best = service.best(namespace, name)
    if best is not None:
        yield ""
        yield from pareto_lines(experiment) if pareto_trials(experiment) else best_lines(best)
        yield from lineage_lines(service, best)
    elif infeasible := infeasible_words(experiment):
        yield _line("Best", infeasible)
    yield from _conditions(experiment)
    yield from _events(service.events("Experiment", namespace, name))


def _suggestion(service: TuningService, experiment: Json) -> Iterator[str]:
    """Yield what the suggestion service chose, what it learns from, and what it waits for."""
    try:
        suggestion = service.get("Suggestion", namespace_of(experiment), name_of(experiment))
    except NotFoundError:
        return
    status = status_of(suggestion)
    if explanation := status.get("explanation"):
        yield _line("Its choice", str(explanation))
    if earlier := status.get("earlierTrials"):
        yield _line("Warm start", str(EarlierTrialsStatus.decode(earlier)))
    if waiting := (condition_of(suggestion, "WaitingForTrials") or {}).get("message", ""):
        yield _line("Waiting", str(waiting))


def _last_failure(service: TuningService, experiment: Json) -> Iterator[str]:
    failed = (status_of(experiment).get("failedTrialList") or ())[-1:]
    for name in failed:
        with suppress(NotFoundError):
            trial = service.get("Trial", namespace_of(experiment), name)
            yield _line("Last failure", f"{name} failed: {failure_of(trial) or 'no reason was recorded'}")


def _trial(service: TuningService, trial: Json) -> Iterator[str]:
    namespace, name = namespace_of(trial), name_of(trial)
    yield from _head(trial)
    if failure := failure_of(trial):
        yield _line("Failure", failure)
    yield _line("Experiment", str(trial["metadata"].get("labels", {}).get("katib.kubeflow.org/experiment", "")))
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


def _replicas(service: TuningService, trial: Json) -> Iterator[str]:
    """Yield a table of the pods that its job has, the newest of each replica; nothing where none is known."""
    try:
        pods = newest_of_each(service.pods("Trial", namespace_of(trial), name_of(trial)))
    except ForbiddenError:  # the rest is worth showing without
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


def _head(obj: Json) -> Iterator[str]:
    yield _line("Name", name_of(obj))
    yield _line("Namespace", namespace_of(obj))
    yield _line("State", state_of(obj))
    yield _line("Age", columns.age_of(obj))


def _line(label: str, value: str) -> str:
    return f"{label + ':':<{_LABEL_WIDTH + 2}}{value or '-'}".rstrip()


def _algorithm(algorithm: Json) -> str:
    settings = ", ".join(f"{s.get('name')}={s.get('value')}" for s in algorithm.get("algorithmSettings") or ())
    return f"{algorithm.get('algorithmName', '')}{f' ({settings})' if settings else ''}"


def _budget(spec: Json) -> str:
    most = spec.get("maxTrialCount")
    failed = spec.get("maxFailedTrialCount")
    parts = [f"{most} trials" if most is not None else "no limit of trials"]
    parts.append(f"{spec.get('parallelTrialCount', 1)} at a time")
    if failed is not None:
        parts.append(f"at most {failed} failed")
    return ", ".join(parts)


def _progress(experiment: Json) -> str:
    status = status_of(experiment)
    counts = {
        "succeeded": status.get("trialsSucceeded"),
        "stopped early": status.get("trialsEarlyStopped"),
        "failed": status.get("trialsFailed"),
        "without metrics": status.get("trialMetricsUnavailable"),
        "killed": status.get("trialsKilled"),
        "running": status.get("trialsRunning"),
        "waiting": status.get("trialsPending"),
    }
    shown = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{columns.progress_of(experiment)}{f' ({shown})' if shown else ''}"


def _parameters(parameters: Sequence[Json]) -> Iterator[str]:
    if parameters:
        yield "Search space:"
    for parameter in parameters:
        space = parameter.get("feasibleSpace") or {}
        listed = space.get("list")
        values = ", ".join(listed) if listed else f"{space.get('min', '')} to {space.get('max', '')}"
        step = f" step {space['step']}" if space.get("step") else ""
        spread = f" {space['distribution']}" if space.get("distribution") else ""
        when = _when(parameter.get("when") or {})
        yield f"  {parameter.get('name')}: {parameter.get('parameterType')} {values}{step}{spread}{when}"


def _when(condition: Json) -> str:
    return (
        f", when {condition.get('parameter', '')} is {' or '.join(condition.get('values') or ())}" if condition else ""
    )


def _conditions(obj: Json) -> Iterator[str]:
    conditions = status_of(obj).get("conditions") or ()
    if conditions:
        yield ""
        yield "Conditions:"
    for c in conditions:
        message = f": {' '.join(str(c['message']).split())}" if c.get("message") else ""
        yield f"  {c.get('lastTransitionTime', '')}  {c.get('type')}={c.get('status')}  {c.get('reason', '')}{message}"


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
