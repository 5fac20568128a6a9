"""A tuning service in memory, with builders for its objects.

`FakeTuningService` keeps the contract of `TuningService`. Where it differs from the real ones: it runs nothing (trials
move when `play` or the back door says so), it validates no further than reading the document, and its `why` and its
algorithms are what the test put there.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from katib.api.algorithms import AlgorithmInfo, SettingSpec
from katib.api.loading import load_experiment
from katib.api.metrics import MetricLog
from katib.errors import ExpiredError, FieldError, InvalidError, NotFoundError
from katib.tuning.reading import COMPLETED_TRIAL, is_completed, name_of, namespace_of, objective_value, state_of
from katib.tuning.service import (
    DEFAULT_NAMESPACE,
    Change,
    Diagnosis,
    Json,
    Page,
    RecordedEvent,
    Submission,
)

START = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
GROUP_VERSION = "kubeflow.org/v1beta1"

ALGORITHMS = (
    AlgorithmInfo(
        "random",
        "Draws every parameter independently.",
        (SettingSpec("random_state", "int", "", "Seed of the draws.", at_least=0),),
        reads_history=False,
    ),
    AlgorithmInfo("house-special", "Known by its service only.", None),
    AlgorithmInfo("medianstop", "Stops a trial below the median.", (), early_stopping=True),
)


def stamp(seconds: float) -> str:
    """Return the time so many seconds after START as an object writes it."""
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, reason: str = "", message: str = "", *, at: float = 0) -> Json:
    """Return a condition that holds."""
    return {
        "type": type_,
        "status": "True",
        "reason": reason or type_,
        "message": message,
        "lastUpdateTime": stamp(at),
        "lastTransitionTime": stamp(at),
    }


def make_experiment(name: str = "demo", *conditions: Json, namespace: str = DEFAULT_NAMESPACE, **status: Any) -> Json:
    """Return an Experiment of twelve trials that minimizes `loss` over `x`."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "Experiment",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": stamp(0)},
        "spec": {
            "objective": {
                "type": "minimize",
                "objectiveMetricName": "loss",
                "metricStrategies": [{"name": "loss", "value": "min"}],
            },
            "algorithm": {"algorithmName": "random"},
            "maxTrialCount": 12,
            "parallelTrialCount": 2,
            "maxFailedTrialCount": 3,
            "resumePolicy": "Never",
        },
        "status": {"startTime": stamp(0), "conditions": list(conditions), **status},
    }


def make_trial(
    name: str,
    *conditions: Json,
    experiment: str = "demo",
    namespace: str = DEFAULT_NAMESPACE,
    loss: str | None = None,
    index: int = 0,
    **assignments: str,
) -> Json:
    """Return a Trial; `index` orders trials in time, ten seconds apart and five seconds long."""
    status: Json = {"startTime": stamp(10 * index), "conditions": list(conditions)}
    if any(c["type"] in COMPLETED_TRIAL for c in conditions):
        status["completionTime"] = stamp(10 * index + 5)
    if loss is not None:
        status["observation"] = {"metrics": [{"name": "loss", "min": loss, "max": loss, "latest": loss}]}
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "Trial",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(10 * index),
            "labels": {"katib.kubeflow.org/experiment": experiment},
        },
        "spec": {
            "objective": make_experiment()["spec"]["objective"],
            "parameterAssignments": [{"name": key, "value": value} for key, value in assignments.items()],
        },
        "status": status,
    }


def document(name: str = "demo", *, trials: int = 3, namespace: str | None = None) -> str:
    """Return an experiment file whose trials print their only parameter as the loss."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "echo loss=${trialParameters.x}"]}
    return json.dumps(
        {
            "apiVersion": GROUP_VERSION,
            "kind": "Experiment",
            "metadata": metadata,
            "spec": {
                "objective": {"type": "minimize", "objectiveMetricName": "loss"},
                "algorithm": {"algorithmName": "random"},
                "maxTrialCount": trials,
                "parallelTrialCount": 2,
                "maxFailedTrialCount": 1,
                "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "0.9"}}],
                "trialTemplate": {
                    "primaryContainerName": "main",
                    "trialParameters": [{"name": "x", "reference": "x"}],
                    "trialSpec": {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
                    },
                },
            },
        }
    )


@dataclass(frozen=True)
class _Key:
    kind: str
    namespace: str
    name: str


class FakeTuningService:
    """A TuningService in memory."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._objects: dict[_Key, Json] = {}
        self._specs: dict[_Key, Json] = {}
        self._history: list[Change] = []
        self._metrics: dict[tuple[str, str], list[MetricLog]] = {}
        self._logs: dict[tuple[str, str], bytes] = {}
        self._events: list[tuple[str, RecordedEvent]] = []
        self._diagnoses: dict[tuple[str, str], Diagnosis] = {}
        self.oldest_cursor = 0
        """Changes before this one are forgotten."""

    # --- back door ------------------------------------------------------------------------------------------------

    def put(self, obj: Json) -> None:
        """Store an object as a controller would, and tell the watchers."""
        with self._changed:
            key = _Key(obj["kind"], namespace_of(obj), name_of(obj))
            type_ = "MODIFIED" if key in self._objects else "ADDED"
            version = str(len(self._history) + 1)
            stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
            self._objects[key] = stored
            self._history.append(Change(type_, stored, version))
            self._changed.notify_all()

    def write_log(self, namespace: str, trial: str, data: bytes) -> None:
        """Append to the output of a trial."""
        with self._changed:
            self._logs[namespace, trial] = self._logs.get((namespace, trial), b"") + data
            self._changed.notify_all()

    def report(self, namespace: str, trial: str, *readings: MetricLog) -> None:
        """Append readings."""
        self._metrics.setdefault((namespace, trial), []).extend(readings)

    def record(self, namespace: str, event: RecordedEvent) -> None:
        """Note an event."""
        self._events.append((namespace, event))

    def explain(self, namespace: str, diagnosis: Diagnosis) -> None:
        """Set what `why` says."""
        self._diagnoses[namespace, diagnosis.name] = diagnosis

    def play(self, namespace: str, name: str, *, pause_seconds: float = 0) -> None:
        """Run an experiment to its end: one trial after the other, with losses 0.5, 0.4, 0.3 and so on."""
        experiment = self.get("Experiment", namespace, name)
        limit = experiment["spec"].get("maxTrialCount", 3)
        start = sum(state_of(t) == "Succeeded" for t in self._trials_of(namespace, name))
        for index in range(start, limit):
            self._play_trial(experiment, index, pause_seconds)
            done = index + 1
            ends = [condition("Succeeded", "ExperimentMaxTrialsReached")] if done == limit else []
            status = {
                "startTime": stamp(0),
                "conditions": [condition("Created"), condition("Running"), *ends],
                "trials": done,
                "trialsSucceeded": done,
                "currentOptimalTrial": self._optimum(namespace, name),
            }
            if ends:
                status["completionTime"] = stamp(10 * done)
            self.put({**self.get("Experiment", namespace, name), "status": status})

    def _optimum(self, namespace: str, name: str) -> Json:
        best = self.best(namespace, name) or {}
        return {
            "bestTrialName": name_of(best),
            "parameterAssignments": best["spec"]["parameterAssignments"],
            "observation": best["status"]["observation"],
        }

    def _play_trial(self, experiment: Json, index: int, pause_seconds: float) -> None:
        namespace, name = namespace_of(experiment), name_of(experiment)
        trial, value = f"{name}-{index:04d}", f"{0.5 - 0.1 * index:.1f}"
        running = condition("Running", "TrialRunning", at=10 * index)
        parts = {"experiment": name, "namespace": namespace, "index": index, "x": value}
        self.put(make_trial(trial, running, **parts))  # type: ignore[arg-type]  # built by hand just above
        time.sleep(pause_seconds)
        self.write_log(namespace, trial, f"loss={value}\n".encode())
        self.report(namespace, trial, MetricLog(START + timedelta(seconds=10 * index), "loss", value))
        done = condition("Succeeded", "TrialSucceeded", at=10 * index + 5)
        self.put(make_trial(trial, running, done, loss=value, **parts))  # type: ignore[arg-type]  # as above
        moment = START + timedelta(seconds=10 * index)
        self.record(namespace, RecordedEvent(moment, "Trial", trial, False, "JobSucceeded", f"Job {trial} succeeded"))

    # --- the service ----------------------------------------------------------------------------------------------

    def submit(self, document: str, *, source: str, namespace: str | None = None) -> Submission:
        loaded = self._load(document, source, namespace)
        key = _Key("Experiment", namespace_of(loaded), name_of(loaded))
        notices = ("image none is not run here; the command runs on this machine",)
        with self._changed:
            known = self._objects.get(key)
            if known is None:
                self._specs[key] = loaded["spec"]
                fresh = make_experiment(key.name, condition("Created"), namespace=key.namespace)
                self.put({**fresh, "spec": {**fresh["spec"], **loaded["spec"]}})
                return Submission(self._objects[key], "created", notices)
        if self._specs.get(key, loaded["spec"]) != loaded["spec"]:
            raise InvalidError(
                [FieldError("spec", "differs from the stored one", "choose another name", "spec-changed")]
            )
        return Submission(known, "unchanged" if is_completed(known) else "resumed", notices)

    def validate(self, document: str, *, source: str, namespace: str | None = None) -> Sequence[str]:
        self._load(document, source, namespace)
        return ("image none is not run here; the command runs on this machine",)

    def _load(self, document: str, source: str, namespace: str | None) -> Json:
        loaded = load_experiment(document, source, namespace or DEFAULT_NAMESPACE)
        if loaded.errors:
            raise InvalidError(loaded.errors)
        encoded = loaded.experiment.encode()
        encoded["metadata"].setdefault("namespace", namespace or DEFAULT_NAMESPACE)
        return encoded

    def get(self, kind: str, namespace: str, name: str) -> Json:
        try:
            return self._objects[_Key(kind, namespace, name)]
        except KeyError:
            raise NotFoundError(f'{kind} "{name}" does not exist in namespace {namespace}') from None

    def experiments(self, namespace: str | None = None) -> Sequence[Json]:
        return tuple(
            obj for key, obj in self._objects.items() if key.kind == "Experiment" and namespace in (None, key.namespace)
        )

    def trials(
        self, namespace: str, experiment: str, *, states: Sequence[str] = (), limit: int = 500, cursor: str = ""
    ) -> Page:
        self.get("Experiment", namespace, experiment)
        found = [t for t in self._trials_of(namespace, experiment) if not states or state_of(t) in states]
        start = int(cursor or 0)
        after = start + limit
        return Page(tuple(found[start:after]), str(after) if after < len(found) else "", len(found))

    def _trials_of(self, namespace: str, experiment: str) -> list[Json]:
        return [
            obj
            for key, obj in self._objects.items()
            if key.kind == "Trial"
            and key.namespace == namespace
            and obj["metadata"]["labels"]["katib.kubeflow.org/experiment"] == experiment
        ]

    def best(self, namespace: str, experiment: str) -> Json | None:
        valued = [(t, objective_value(t)) for t in self.trials(namespace, experiment).items]
        usable = [(float(value), name_of(t), t) for t, value in valued if value is not None]
        return min(usable)[2] if usable else None

    def metrics(self, namespace: str, trial: str, *, metric: str = "", limit: int = 100_000) -> Sequence[MetricLog]:
        self.get("Trial", namespace, trial)
        readings = self._metrics.get((namespace, trial), [])
        return tuple([r for r in readings if metric in ("", r.name)][-limit:])

    def logs(
        self, namespace: str, trial: str, *, follow: bool = False, tail_lines: int | None = None
    ) -> Iterator[bytes]:
        self.get("Trial", namespace, trial)
        return self._log_chunks(namespace, trial, follow, tail_lines)

    def _log_chunks(self, namespace: str, trial: str, follow: bool, tail_lines: int | None) -> Iterator[bytes]:
        data = self._logs.get((namespace, trial), b"")
        sent = len(data)
        if tail_lines is not None:
            lines = data.splitlines(keepends=True)
            data = b"".join(lines[len(lines) - tail_lines :] if tail_lines < len(lines) else lines)
        yield data
        while follow:
            with self._changed:
                ended = is_completed(self.get("Trial", namespace, trial))
                fresh = self._logs.get((namespace, trial), b"")[sent:]
                if not fresh and not ended:
                    self._changed.wait(0.2)
            sent += len(fresh)
            if not fresh and ended:
                return
            yield fresh

    def events(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        self.get(kind, namespace, name)
        names = {(kind, name)}
        if kind == "Experiment":
            names |= {("Trial", name_of(t)) for t in self._trials_of(namespace, name)}
        return tuple(event for ns, event in self._events if ns == namespace and (event.kind, event.name) in names)

    def changes(
        self, namespace: str, experiment: str, *, timeout_seconds: float | None = None, since: str = ""
    ) -> Iterator[Change]:
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._changed:
            position = int(since) if since else len(self._history)
            if since and position < self.oldest_cursor:
                raise ExpiredError("that change is no longer kept")
            self.get("Experiment", namespace, experiment)
            opening = [self.get("Experiment", namespace, experiment), *self._trials_of(namespace, experiment)]
        if not since:
            for i, obj in enumerate(opening, 1):
                yield Change("ADDED", obj, str(position) if i == len(opening) else "")
        while True:
            with self._changed:
                left = None if end is None else end - time.monotonic()
                if position == len(self._history) and (left is None or left > 0):
                    self._changed.wait(left)
                    left = None if end is None else end - time.monotonic()
                fresh = self._history[position:]
                position += len(fresh)
            for change in fresh:
                if _concerns(change.object, namespace, experiment):
                    yield change
                    if change.type == "DELETED" and change.object["kind"] == "Experiment":
                        return
            if left is not None and left <= 0:
                return

    def why(self, namespace: str, name: str) -> Diagnosis:
        try:
            return self._diagnoses[namespace, name]
        except KeyError:
            raise NotFoundError(f'there is neither an experiment nor a trial "{name}" in {namespace}') from None

    def delete(self, namespace: str, experiment: str) -> None:
        with self._changed:
            doomed = [*self._trials_of(namespace, experiment), self.get("Experiment", namespace, experiment)]
            for obj in doomed:
                del self._objects[_Key(obj["kind"], namespace, name_of(obj))]
                self._history.append(Change("DELETED", obj, str(len(self._history) + 1)))
            self._changed.notify_all()

    def algorithms(self) -> Sequence[AlgorithmInfo]:
        return ALGORITHMS


def _concerns(obj: Json, namespace: str, experiment: str) -> bool:
    labels = obj["metadata"].get("labels", {})
    names = {"Experiment": name_of(obj), "Trial": labels.get("katib.kubeflow.org/experiment")}
    return namespace_of(obj) == namespace and names.get(obj["kind"]) == experiment
