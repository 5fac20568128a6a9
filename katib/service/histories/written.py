"""Trials in the formats of other programs: MLflow runs, and TensorBoard event files with hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from katib.errors import KatibError, UnavailableError, invalid
from katib.model.metrics import MetricLog, parse_value
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Experiment, Trial, TrialState
from katib.service.histories.records import FAILURE_TAG, STATE_TAG
from katib.service.tuning.reading import assignments_of, typed_value
from katib.service.tuning.service import MAX_READINGS, TuningService
from katib.service.tuning.states import failure_of, state_of
from katib.service.tuning.trial_pages import each_trial

_TRIAL_TAG, _EXPERIMENT_TAG = "katib.trial", "katib.experiment"
_BATCH = 500
_FAILED = (TrialState.FAILED, TrialState.METRICS_UNAVAILABLE)
_NAME = "mlflow.runName"


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An ended trial with all of its readings.

    Attributes:
        parameters: Its values by name, with their types.
        readings: Each with its number and its step, by default the number of earlier readings of the metric.
    """

    trial: Trial
    parameters: Mapping[str, Any]
    readings: list[tuple[MetricLog, float, int]]


class RunLog(Protocol):
    """Trials of an experiment in another program's format."""

    def write(self, ended: EndedRun) -> bool:
        """Write a trial; return False if it exists already.

        Raises:
            UnavailableError: The trial cannot be written.
        """


class MlflowLog:
    """The runs of an MLflow experiment; a tag of each names its trial.

    Args:
        experiment: The experiment; MLflow's gets its name.
        uri: The tracking server or database; empty: MLflow's configuration.

    Raises:
        InvalidError: MLflow is not installed.
        UnavailableError: The server does not answer.
    """

    def __init__(self, experiment: Experiment, uri: str) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise _missing("mlflow", "mlflow") from error
        self._name = f"{experiment.namespace}/{experiment.name}"
        self._where = uri or "MLflow"
        with self._explained():
            self._client = MlflowClient(uri or None)
            found = self._client.get_experiment_by_name(experiment.name)
            self._id = self._client.create_experiment(experiment.name) if found is None else found.experiment_id
            self._there = _runs_of(self._client, self._id)

    def write(self, ended: EndedRun) -> bool:
        from mlflow.entities import Metric, Param

        trial = ended.trial
        if trial.metadata.uid in self._there:
            return False
        start, end = trial.status.start_time, trial.status.completion_time
        tags = {_TRIAL_TAG: trial.metadata.uid, _EXPERIMENT_TAG: self._name, STATE_TAG: state_of(trial)}
        if trial_state(trial) is TrialState.FAILED and (failure := failure_of(trial)):
            tags[FAILURE_TAG] = failure
        began = round(start.timestamp() * 1e3) if start else None
        metrics = [
            Metric(one.name, value, round(one.time.timestamp() * 1e3), step) for one, value, step in ended.readings
        ]
        status = "FAILED" if trial_state(trial) in _FAILED else "FINISHED"
        with self._explained():
            run = self._client.create_run(self._id, start_time=began, tags={**tags, _NAME: trial.name}).info.run_id
            self._client.log_batch(run, params=[Param(key, str(value)) for key, value in ended.parameters.items()])
            for first in range(0, len(metrics), _BATCH):
                self._client.log_batch(run, metrics=metrics[first : first + _BATCH])
            self._client.set_terminated(run, status, end_time=round(end.timestamp() * 1e3) if end else None)
        self._there.add(trial.metadata.uid)
        return True

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            cause = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UnavailableError(f"{self._where} does not take the trials: {cause}") from error


def _runs_of(client: Any, experiment: str) -> set[str]:
    """Return the names of the trials in an MLflow experiment."""
    found, token = set(), None
    while True:
        page = client.search_runs([experiment], max_results=1_000, page_token=token)
        found |= {run.data.tags.get(_TRIAL_TAG, "") for run in page if run.info.status != "RUNNING"}
        if not (token := page.token):
            return found


class TensorboardLog:
    """A directory for each trial, with its parameters and objectives for the tab HPARAMS, and all of its curves.

    Args:
        directory: The parent directory; existing trials are left unchanged.

    Raises:
        InvalidError: tensorboardX is not installed.
    """

    def __init__(self, experiment: Experiment, directory: Path) -> None:
        if find_spec("tensorboardX") is None:
            raise _missing("tensorboardX", "tensorboardX")
        objective = experiment.spec.objective
        self._objectives = [] if objective is None else [term.name for term in objective.terms]
        self._directory = directory

    def write(self, ended: EndedRun) -> bool:
        """Write a trial to its directory."""
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams

        place = self._directory / ended.trial.name
        if place.exists():
            return False
        start = ended.trial.status.start_time
        try:
            with SummaryWriter(str(place), write_to_disk=True) as writer:
                for summary in hparams(dict(ended.parameters), dict.fromkeys(self._objectives, 0.0)):
                    writer.file_writer.add_summary(summary, walltime=start.timestamp() if start else None)
                for reading, value, step in ended.readings:
                    writer.add_scalar(reading.name, value, step, walltime=reading.time.timestamp())
        except OSError as error:
            raise UnavailableError(f"{place} cannot be written: {(error.strerror or str(error)).lower()}") from error
        return True


def open_log(experiment: Experiment, form: str, place: str) -> RunLog:
    """Open the log for an experiment's trials.

    Args:
        form: `mlflow` or `tensorboard`.
        place: The address of MLflow, by default its configuration; or the directory of TensorBoard, by default the
            name.

    Raises:
        InvalidError: The library is not installed.
        UnavailableError: MLflow does not answer.
    """
    if form == "mlflow":
        return MlflowLog(experiment, place)
    return TensorboardLog(experiment, Path(place or f"{experiment.name}-tensorboard"))


def write_ended(service: TuningService, experiment: Experiment, log: RunLog) -> int:
    """Write the ended trials of an experiment, the oldest first; return the number of new ones."""
    ended = (trial for trial in each_trial(service, experiment.namespace, experiment.name) if has_ended(trial))
    return sum(log.write(ended_run(service, experiment, trial)) for trial in ended)


def has_ended(trial: Trial) -> bool:
    return trial_state(trial) not in ACTIVE


def ended_run(service: TuningService, experiment: Experiment, trial: Trial) -> EndedRun:
    types = {one.name: one.parameter_type for one in experiment.spec.parameters}
    counts: dict[str, int] = {}
    readings = []
    for reading in service.metrics(trial.namespace, trial.name, limit=MAX_READINGS):
        value = parse_value(reading.value)
        number = counts[reading.name] = counts.get(reading.name, -1) + 1
        if value is not None:
            readings.append((reading, value, number if reading.step is None else reading.step))
    parameters = {key: typed_value(types.get(key, ""), text) for key, text in assignments_of(trial).items()}
    return EndedRun(trial, parameters, readings)


def _missing(package: str, command: str) -> KatibError:
    cause = f"it takes the package {package}, which is not installed"
    return invalid("--to", cause, f"pip install {command}", "extra-missing")
