"""`katib describe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click

from katib.cli import columns, options
from katib.cli.best import best_lines
from katib.errors import NotFoundError
from katib.tuning.reading import (
    Json,
    assignments_of,
    format_duration,
    name_of,
    namespace_of,
    objective_of,
    objective_value,
    state_of,
    status_of,
)
from katib.tuning.service import RecordedEvent, TuningService

_SHOWN_EVENTS = 20
_LABEL_WIDTH = 14


@click.command(
    short_help="Show an experiment or a trial in detail.",
    epilog=options.examples(
        "katib describe my-experiment",
        "katib describe my-experiment-k4x8bq2z",
    ),
)
@click.argument("name", type=options.ANY_NAME)
@options.connection
def command(
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
    spec, objective = experiment.get("spec", {}), objective_of(experiment)
    namespace, name = namespace_of(experiment), name_of(experiment)
    yield from _head(experiment)
    goal = f", goal {objective['goal']}" if objective.get("goal") is not None else ""
    yield _line("Objective", f"{objective.get('type', '')} {objective.get('objectiveMetricName', '')}{goal}")
    yield _line("Algorithm", _algorithm(spec.get("algorithm") or {}))
    if spec.get("earlyStopping"):
        yield _line("Early stopping", _algorithm(spec["earlyStopping"]))
    yield _line("Budget", _budget(spec))
    yield _line("Progress", _progress(experiment))
    yield from _parameters(spec.get("parameters") or ())
    best = service.best(namespace, name)
    if best is not None:
        yield ""
        yield from best_lines(best)
    yield from _conditions(experiment)
    yield from _events(service.events("Experiment", namespace, name))


def _trial(service: TuningService, trial: Json) -> Iterator[str]:
    namespace, name = namespace_of(trial), name_of(trial)
    yield from _head(trial)
    yield _line("Experiment", str(trial["metadata"].get("labels", {}).get("katib.kubeflow.org/experiment", "")))
    yield _line("Duration", columns.duration_of(trial))
    yield _line("Objective", f"{objective_of(trial).get('objectiveMetricName', '')}={objective_value(trial) or '-'}")
    yield "Parameters:"
    for key, value in assignments_of(trial).items():
        yield f"  {key}={value}"
    yield from _conditions(trial)
    yield from _events(service.events("Trial", namespace, name))


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
        yield f"  {parameter.get('name')}: {parameter.get('parameterType')} {values}{step}{spread}"


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
