"""Trials as other programs keep them: runs of MLflow, and event files of TensorBoard with their hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from katib.api.metrics import MetricLog, parse_value
from katib.api.trials import ACTIVE, TrialState, trial_state
from katib.api.types import Experiment, Trial
from katib.errors import KatibError, UnavailableError, invalid
from katib.tuning.reading import assignments_of, failure_of, state_of, typed_value
from katib.tuning.service import TuningService
from katib.tuning.trial_pages import each_trial

_TRIAL_TAG, _EXPERIMENT_TAG, _STATE_TAG, _FAILURE_TAG = (
    "katib.trial",
    "katib.experiment",
    "katib.state",
    "katib.failure",
)
_BATCH = 500
_FAILED = (TrialState.FAILED, TrialState.METRICS_UNAVAILABLE)
_NAME = "mlflow.runName"


@dataclass(frozen=True, slots=True)
class _Ended:
    """A trial that has ended, with all that it reported."""

    trial: Trial
    parameters: Mapping[str, Any]
    readings: list[tuple[MetricLog, float, int]]
    """Each with its number, and its step: where none is known, how many of the metric came before."""


def write_mlflow(service: TuningService, namespace: str, name: str, uri: str) -> int:
    """Write the trials of an experiment that have ended as runs of an MLflow experiment; return how many are new.

    A trial that is there already, which a tag says, is not written again.

    Args:
        service: Has the experiment.
        namespace: Of the experiment.
        name: Of the experiment, and of that of MLflow.
        uri: The tracking server or database; empty: as MLflow is configured.

    Raises:
        InvalidError: MLflow is not installed.
        UnavailableError: It does not take them.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
    except ImportError as error:
        raise _missing("mlflow", "mlflow") from error
    try:
        client = MlflowClient(uri or None)
        found = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if found is None else found.experiment_id
        there = _runs_of(client, experiment)
        new = 0
        for ended in _each_ended(service, namespace, name):
            trial = ended.trial
            if trial.metadata.uid in there:
                continue
            start, end = trial.status.start_time, trial.status.completion_time
            tags = {_TRIAL_TAG: trial.metadata.uid, _EXPERIMENT_TAG: f"{namespace}/{name}", _STATE_TAG: state_of(trial)}
            if trial_state(trial) is TrialState.FAILED:
                tags[_FAILURE_TAG] = failure_of(trial)
            began = round(start.timestamp() * 1e3) if start else None
            run = client.create_run(experiment, start_time=began, tags={**tags, _NAME: trial.name}).info.run_id
            client.log_batch(run, params=[Param(key, str(value)) for key, value in ended.parameters.items()])
            metrics = [
                Metric(one.name, value, round(one.time.timestamp() * 1e3), step) for one, value, step in ended.readings
            ]
            for first in range(0, len(metrics), _BATCH):
                client.log_batch(run, metrics=metrics[first : first + _BATCH])
            status = "FAILED" if trial_state(trial) in _FAILED else "FINISHED"
            client.set_terminated(run, status, end_time=round(end.timestamp() * 1e3) if end else None)
            new += 1
    except KatibError:
        raise
    except Exception as error:
        where = uri or "MLflow"
        raise UnavailableError(f"{where} does not take the trials: {str(error).strip().splitlines()[0]}") from error
    return new


def _runs_of(client: Any, experiment: str) -> set[str]:
    """Return the trials that an MLflow experiment has."""
    found, token = set(), None
    while True:
        page = client.search_runs([experiment], max_results=1_000, page_token=token)
        found |= {run.data.tags.get(_TRIAL_TAG, "") for run in page if run.info.status != "RUNNING"}
        if not (token := page.token):
            return found


def write_tensorboard(service: TuningService, namespace: str, name: str, directory: Path) -> int:
    """Write the trials of an experiment that have ended for TensorBoard; return how many are new.

    Each has a directory, with its parameters and objectives for the tab HPARAMS, and all of its curves. A directory
    that is there already is left as it is.

    Raises:
        InvalidError: tensorboardX is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams
    except ImportError as error:
        raise _missing("tensorboardX", "tensorboardX") from error
    experiment = service.get(Experiment, namespace, name)
    objectives = [] if experiment.spec.objective is None else [term.name for term in experiment.spec.objective.terms]
    new = 0
    for ended in _each_ended(service, namespace, name):
        place = directory / ended.trial.name
        if place.exists():
            continue
        start = ended.trial.status.start_time
        with SummaryWriter(str(place), write_to_disk=True) as writer:
            for summary in hparams(dict(ended.parameters), dict.fromkeys(objectives, 0.0)):
                writer.file_writer.add_summary(summary, walltime=start.timestamp() if start else None)
            for reading, value, step in ended.readings:
                writer.add_scalar(reading.name, value, step, walltime=reading.time.timestamp())
        new += 1
    return new


def _each_ended(service: TuningService, namespace: str, name: str) -> Iterator[_Ended]:
    """Yield the trials of an experiment that have ended, the oldest first."""
    experiment = service.get(Experiment, namespace, name)
    types = {one.name: one.parameter_type for one in experiment.spec.parameters}
    typed = partial(_typed, types)
    for trial in each_trial(service, namespace, name):
        if trial_state(trial) in ACTIVE:
            continue
        counts: dict[str, int] = {}
        readings = []
        for reading in service.metrics(namespace, trial.name):
            value = parse_value(reading.value)
            number = counts[reading.name] = counts.get(reading.name, -1) + 1
            if value is not None:
                readings.append((reading, value, number if reading.step is None else reading.step))
        yield _Ended(trial, {key: typed(key, text) for key, text in assignments_of(trial).items()}, readings)


def _typed(types: Mapping[str, str], name: str, text: str) -> Any:
    return typed_value(types.get(name, ""), text)


def _missing(package: str, command: str) -> KatibError:
    cause = f"it takes the package {package}, which is not installed"
    return invalid("--to", cause, f"pip install {command}", "extra-missing")
