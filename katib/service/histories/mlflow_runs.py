"""Runs of MLflow: a database of SQLite, a directory `mlruns`, or a tracking server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from katib.errors import invalid
from katib.model.metrics import MetricLog
from katib.model.types import TrialState
from katib.service.histories.records import FAILURE_TAG, STATE_TAG, Record, TrialSource, moment, parsed

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ENDED = {"FINISHED": None, "FAILED": "it failed in MLflow", "KILLED": "it was killed in MLflow"}
_FILE_STATES = {"3": "FINISHED", "4": "FAILED", "5": "KILLED"}
"""Run states as numbers in `meta.yaml`."""

_DEFAULT = "Default"
"""The default experiment, which always exists."""


@dataclass(slots=True)
class _MlflowRun:
    """A run as stored: points of a metric are time in milliseconds, value and step."""

    id: str
    status: str
    start: float | None
    end: float | None
    params: dict[str, str] = field(default_factory=dict)
    points: dict[str, list[tuple[float, float, int]]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


def read_database(path: Path, experiment: str) -> TrialSource:
    """Read the runs of an MLflow experiment in a SQLite database.

    Raises:
        InvalidError: The experiment does not exist.
    """
    with closing(sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True)) as database:
        rows = database.execute(
            "SELECT name, experiment_id FROM experiments WHERE experiment_id IN (SELECT experiment_id FROM runs)"
        )
        chosen = _chosen(dict(rows.fetchall()), experiment, str(path))
        query = "FROM runs WHERE experiment_id = ? AND lifecycle_stage = 'active'"
        runs = {
            row[0]: _MlflowRun(*row)
            for row in database.execute(
                f"SELECT run_uuid, status, start_time, end_time {query} ORDER BY start_time",
                (chosen.id,),
            )
        }
        own = f"run_uuid IN (SELECT run_uuid {query})"
        for run, key, value in database.execute(f"SELECT run_uuid, key, value FROM params WHERE {own}", (chosen.id,)):  # noqa: S608
            runs[run].params[key] = value
        for run, key, value in database.execute(f"SELECT run_uuid, key, value FROM tags WHERE {own}", (chosen.id,)):  # noqa: S608
            runs[run].tags[key] = value
        for run, key, *point, is_nan in database.execute(
            f"SELECT run_uuid, key, timestamp, value, step, is_nan FROM metrics WHERE {own}",  # noqa: S608
            (chosen.id,),
        ):
            reading = float("nan") if is_nan else float(point[1])
            runs[run].points.setdefault(key, []).append((float(point[0]), reading, int(point[2])))
    return _source(chosen.name, runs.values())


def read_directory(directory: Path, experiment: str) -> TrialSource:
    """Read the runs of an MLflow experiment in a directory `mlruns`. Raises as `read_database`."""
    found = {}
    for meta in directory.glob("*/meta.yaml"):
        if any(meta.parent.glob("*/meta.yaml")):
            found[str(_read_meta(meta).get("name", meta.parent.name))] = meta.parent
    chosen = _chosen(found, experiment, str(directory))
    runs = []
    for meta in sorted(chosen.id.glob("*/meta.yaml")):
        data, run = _read_meta(meta), meta.parent
        if data.get("lifecycle_stage", "active") != "active":
            continue
        state = str(data.get("status", ""))
        one = _MlflowRun(run.name, _FILE_STATES.get(state, state), data.get("start_time"), data.get("end_time"))
        one.params = {str(path.relative_to(run / "params")): path.read_text() for path in _files(run / "params")}
        one.tags = {path.name: path.read_text() for path in _files(run / "tags")}
        for path in _files(run / "metrics"):
            lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
            points = [(float(line[0]), float(line[1]), int(line[2]) if len(line) > 2 else 0) for line in lines]  # noqa: PLR2004
            one.points[str(path.relative_to(run / "metrics"))] = points
        runs.append(one)
    return _source(chosen.name, sorted(runs, key=lambda one: one.start or 0))


def read_server(uri: str, experiment: str) -> TrialSource:
    """Read the runs of an MLflow experiment on a tracking server; requires the package `mlflow`.

    Raises:
        InvalidError: The package is not installed, or as `read_database`.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the default takes minutes
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        cause, remedy = "it takes the package mlflow, which is not installed", "pip install mlflow-skinny"
        raise invalid(uri, cause, remedy, "extra-missing") from error
    try:
        return _read_client(MlflowClient(uri), uri, experiment)
    except MlflowException as error:
        cause = f"MLflow cannot read it: {str(error).partition(chr(10))[0][:200]}"
        raise invalid(uri, cause, "check the address, and that the server runs", "import-unreadable") from error


def _read_client(client: MlflowClient, uri: str, experiment: str) -> TrialSource:
    chosen = _chosen({one.name: one.experiment_id for one in client.search_experiments()}, experiment, uri)
    runs, token = [], ""
    while True:
        page = client.search_runs([chosen.id], order_by=["start_time ASC"], max_results=1_000, page_token=token or None)
        for found in page:
            info = found.info
            run = _MlflowRun(info.run_id, info.status, info.start_time, info.end_time, dict(found.data.params))
            run.tags = dict(found.data.tags)
            for key in found.data.metrics:
                history = client.get_metric_history(info.run_id, key)
                run.points[key] = [(point.timestamp, point.value, point.step) for point in history]
            runs.append(run)
        if not (token := page.token or ""):
            return _source(chosen.name, runs)


@dataclass(frozen=True, slots=True)
class _MlflowExperiment:
    name: str
    id: Any


def _chosen(experiments: Mapping[str, Any], name: str, path: str) -> _MlflowExperiment:
    if not name and len(experiments) > 1:
        experiments = {key: value for key, value in experiments.items() if key != _DEFAULT}
    if name not in experiments and (name or len(experiments) != 1):
        cause = (
            f'there is no MLflow experiment "{name}"' if name else f"{len(experiments)} MLflow experiments have runs"
        )
        remedy = f"choose one with --study: {', '.join(experiments)}" if experiments else "check the path"
        raise invalid(path, cause, remedy, "import-study")
    name = name or next(iter(experiments))
    return _MlflowExperiment(name, experiments[name])


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text())
    except yaml.YAMLError:
        return {}
    return data if isinstance(data, dict) else {}


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _source(name: str, runs: Any) -> TrialSource:
    found: Sequence[_MlflowRun] = list(runs)
    ended = [run for run in found if run.status in _ENDED]
    title = f'the MLflow experiment "{name}"'
    return TrialSource(title, name, [_record(run) for run in ended], unfinished=len(found) - len(ended))


def _record(run: _MlflowRun) -> Record:
    began = _time(run.start)
    curve = [
        MetricLog(_time(time), key, repr(value), max(step, 0))
        for key, points in run.points.items()
        for time, value, step in sorted(points, key=lambda point: (point[2], point[0]))
    ]
    last = {key: max(points, key=lambda point: (point[2], point[0]))[1] for key, points in run.points.items() if points}
    failure = _ENDED[run.status] and (run.tags.get(FAILURE_TAG) or _ENDED[run.status])
    stopped = run.tags.get(STATE_TAG) == TrialState.EARLY_STOPPED
    parameters = {key: parsed(text) for key, text in run.params.items()}
    ended = _time(run.end, began)
    return Record(run.id, parameters, {} if failure else last, began, ended, failure, stopped, tuple(curve))


def _time(milliseconds: float | None, default: datetime | None = None) -> datetime:
    return moment(None if milliseconds is None else milliseconds / 1e3, default)
