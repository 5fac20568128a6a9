"""The tuning service over a store in memory, with builders for its objects.

Nothing runs: trials move when `play` or the back door says so.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from katib.engine.controllers.kinds import EXPERIMENT, POD, TRIAL, key_of
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import NotFoundError
from katib.model.algorithms import AlgorithmInfo, SettingSpec
from katib.model.conditions import COMPLETED_TRIAL
from katib.model.metrics import MetricLog
from katib.model.names import EXPERIMENT_LABEL, TRIAL_LABEL
from katib.model.types import Experiment, Suggestion, Trial
from katib.places.machine.admission import HostCapacity
from katib.places.machine.repeating import Reruns
from katib.places.machine.submission import LocalHome
from katib.service.tuning.ports import ALL, CallersLog, Part, Records, no_file
from katib.service.tuning.replicas import find_replica, replica_name
from katib.service.tuning.service import DEFAULT_NAMESPACE, Diagnosis, Json, RecordedEvent, TrialFile
from katib.service.tuning.stored_service import ObjectTuningService
from katib.service.tuning.submission import Gate, StoredObjects
from tests.support.clock import VirtualClock
from tests.support.experiments import an_experiment
from tests.support.observations import MemoryObservationLog
from tests.support.stores import memory_store, owned_by

R = TypeVar("R", Experiment, Suggestion, Trial)

KEPT_CHANGES = 100
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


def make_experiment(
    name: str = "demo", *conditions: Json, namespace: str = DEFAULT_NAMESPACE, **status: Any
) -> Experiment:
    """Return an Experiment of twelve trials that minimizes `loss` over `x`."""
    objective = {
        "type": "minimize",
        "objectiveMetricName": "loss",
        "metricStrategies": [{"name": "loss", "value": "min"}],
    }
    spec = {"objective": objective, "maxTrialCount": 12, "maxFailedTrialCount": 3, "resumePolicy": "Never"}
    made = an_experiment(name=name, namespace=namespace, parameters=None, trialTemplate=None, **spec)
    made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": stamp(0)}
    return Experiment.read({**made, "status": {"startTime": stamp(0), "conditions": list(conditions), **status}})


def patched(obj: R, **parts: Any) -> R:
    """Return an object with some fields replaced, by their JSON name: `patched(trial, spec={"objective": ...})`.

    Mappings are merged; None removes a field.
    """
    return type(obj).read(_merged(obj.encode(), parts))


def _merged(old: Json, new: Json) -> Json:
    merged = {**old, **{k: _merged(old.get(k) or {}, v) if isinstance(v, dict) else v for k, v in new.items()}}
    return {name: value for name, value in merged.items() if value is not None}


def make_pareto_experiment(name: str = "demo", *conditions: Json, **status: Any) -> Experiment:
    """Return an Experiment that maximizes `accuracy` and minimizes `seconds` with at most 8 of `memory`.

    Two trials are named of three that no other beats.
    """
    names = ("accuracy", "seconds", "memory")
    objective = {
        "type": "maximize",
        "objectiveMetricName": "accuracy",
        "objectives": [{"name": "accuracy", "type": "maximize", "goal": 0.99}, {"name": "seconds", "type": "minimize"}],
        "constraints": [{"metricName": "memory", "max": 8}],
        "metricStrategies": [{"name": metric, "value": "latest"} for metric in names],
    }
    trials = [
        {
            "bestTrialName": trial,
            "parameterAssignments": [{"name": "x", "value": x}],
            "observation": {
                "metrics": [{"name": m, "latest": v, "min": v, "max": v} for m, v in zip(names, values, strict=True)]
            },
        }
        for trial, x, values in (("slow", "0.5", ("0.9", "30", "4")), ("quick", "0.25", ("0.70000001", "3", "2")))
    ]
    pareto = {
        "trials": trials,
        "trialCount": 3,
        "hypervolume": 12.5,
        "referencePoint": [{"name": "accuracy", "value": "0.1"}, {"name": "seconds", "value": "60"}],
    }
    made = make_experiment(name, *conditions, **{"currentOptimalTrial": trials[0], "paretoSet": pareto, **status})
    return patched(made, spec={"objective": objective})


def make_suggestion(
    *conditions: Json, name: str = "demo", algorithm: str = "tpe", requests: int = 2, count: int = 0, **status: Any
) -> Suggestion:
    """Return a Suggestion."""
    return Suggestion.read(
        {
            "apiVersion": GROUP_VERSION,
            "kind": "Suggestion",
            "metadata": {"name": name, "namespace": DEFAULT_NAMESPACE},
            "spec": {"algorithm": {"algorithmName": algorithm}, "requests": requests},
            "status": {"conditions": list(conditions), "suggestionCount": count, **status},
        }
    )


def make_trial(
    name: str,
    *conditions: Json,
    experiment: str = "demo",
    namespace: str = DEFAULT_NAMESPACE,
    loss: str | None = None,
    index: int = 0,
    **assignments: str,
) -> Trial:
    """Return a Trial; `index` orders trials in time, ten seconds apart and five seconds long."""
    status: Json = {"startTime": stamp(10 * index), "conditions": list(conditions)}
    if any(c["type"] in COMPLETED_TRIAL for c in conditions):
        status["completionTime"] = stamp(10 * index + 5)
    if loss is not None:
        status["observation"] = {"metrics": [{"name": "loss", "min": loss, "max": loss, "latest": loss}]}
    return Trial.read(
        {
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
                "objective": make_experiment().encode()["spec"]["objective"],
                "parameterAssignments": [{"name": key, "value": value} for key, value in assignments.items()],
            },
            "status": status,
        }
    )


def make_pod(
    name: str,
    trial: str = "demo-0",
    *,
    experiment: str = "demo",
    replica: str = "",
    code: int | None = None,
    **status: Any,
) -> Json:
    """Return a Pod that runs, or that ended with an exit code; `replica` is such as `worker-1`."""
    role, _, index = replica.rpartition("-")
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index} if role else {}
    ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": stamp(5)}}
    running = {"running": {"startedAt": stamp(0)}}
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    container = {
        "name": "main",
        "ready": code is None,
        "restartCount": 0,
        "state": running if code is None else ended,
        "containerID": "process://4711",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": DEFAULT_NAMESPACE,
            "labels": {"katib.kubeflow.org/experiment": experiment, "katib.kubeflow.org/trial": trial, **labels},
        },
        "spec": {"nodeName": "localhost", "containers": [{"name": "main", "image": "none"}]},
        "status": {"phase": phase, "containerStatuses": [container], **status},
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
                "objective": make_experiment().encode()["spec"]["objective"],
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


class Catalog:
    """The algorithms of these tests."""

    def all(self) -> Sequence[AlgorithmInfo]:
        return ALGORITHMS

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        return next((i for i in ALGORITHMS if (i.name, i.early_stopping) == (name, early_stopping)), None)


class _Kept:
    """What a home has beside its store, as a test put it there: output, events, explanations."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.changed = threading.Condition()
        self.logs: dict[Key, bytes] = {}
        self.left: dict[Key, dict[str, bytes]] = {}
        self.events: list[tuple[str, RecordedEvent]] = []
        self.diagnoses: dict[Key, Diagnosis] = {}

    def read(self, trial: Trial, part: Part = ALL) -> Iterator[bytes]:
        if part.replica or part.container:
            pods = self._store.list(POD, trial.namespace, labels={TRIAL_LABEL: trial.name}).items
            name = replica_name(find_replica(pods, part.replica, trial.name)[0]) if part.replica else "primary"
            yield f"{name} {part.container or 'main'}\n".encode()
            return
        data = self.logs.get(key_of(trial), b"")
        lines = data.splitlines(keepends=True)
        yield data if part.tail_lines is None else b"".join(lines[max(0, len(lines) - part.tail_lines) :])
        sent = len(data)
        while part.follow is not None:
            goes_on = part.follow()
            with self.changed:
                fresh = self.logs.get(key_of(trial), b"")[sent:]
                if not fresh and goes_on:
                    self.changed.wait(0.2)
            sent += len(fresh)
            if not fresh and not goes_on:
                return
            yield fresh

    def past_pods(self, _trial: Trial) -> Sequence[Object]:
        return ()

    def files(self, trial: Trial) -> Sequence[TrialFile]:
        return [TrialFile(path, len(data), START) for path, data in sorted(self.left.get(key_of(trial), {}).items())]

    def read_file(self, trial: Trial, path: str) -> Iterator[bytes]:
        if path not in self.left.get(key_of(trial), {}):
            raise no_file(trial, path)
        yield self.left[key_of(trial)][path]

    def events_of(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        names = {(kind, name)}
        if kind == "Experiment":
            trials = self._store.list(TRIAL, namespace, labels={EXPERIMENT_LABEL: name}).items
            names |= {("Trial", Key.of(trial).name) for trial in trials}
        return tuple(event for ns, event in self.events if ns == namespace and (event.kind, event.name) in names)

    def explain(self, namespace: str, name: str) -> Diagnosis:
        try:
            return self.diagnoses[Key(namespace, name)]
        except KeyError:
            raise NotFoundError(f'there is neither an experiment nor a trial "{name}" in {namespace}') from None


class MemoryTuningService(ObjectTuningService):
    """The tuning service over a store in memory, with a back door for what controllers and trials would do.

    Attributes:
        gate: Returns when a trial that is played may end.
        clock: Says when an object is created.
    """

    def __init__(self, start: datetime = START) -> None:
        self.gate: Callable[[], object] = lambda: None
        self.clock = VirtualClock(start)
        self.store = memory_store(self.clock, kept_changes=KEPT_CHANGES)
        self._log = MemoryObservationLog()
        self._kept = _Kept(self.store)
        super().__init__(
            Records(self.store, self._log, self._kept, lambda: self._kept, CallersLog(self._log)),
            Gate(Catalog(), LocalHome(HostCapacity.detect()), StoredObjects(self.store, knows_experiments=False)),
            self._kept.explain,
            SystemClock(),
            repeats=lambda: Reruns(self.store, lambda _trial: None, lambda *_names: None, SystemClock()),
        )

    def put(self, made: Experiment | Suggestion | Trial | Json) -> None:
        """Store an object as a controller would; of one that is there, the status."""
        obj = made if isinstance(made, dict) else made.encode()
        kind, key = Kind(obj["apiVersion"], obj["kind"]), Key.of(obj)
        try:
            stored = self.store.get(kind, key)
        except NotFoundError:
            metadata = {
                name: obj["metadata"][name]
                for name in ("name", "namespace", "labels", "annotations")
                if name in obj["metadata"]
            }
            if experiment := metadata.get("labels", {}).get(EXPERIMENT_LABEL):
                with suppress(NotFoundError):
                    owner = self.store.get(EXPERIMENT, Key(key.namespace, experiment))
                    metadata["ownerReferences"] = owned_by(owner)
            stored = self.store.create({**obj, "metadata": metadata})
        if stored.get("status") != obj["status"]:
            self.store.update_status({**stored, "status": obj["status"]})

    def write_log(self, namespace: str, trial: str, data: bytes) -> None:
        """Append to the output of a trial."""
        with self._kept.changed:
            key = Key(namespace, trial)
            self._kept.logs[key] = self._kept.logs.get(key, b"") + data
            self._kept.changed.notify_all()

    def leave_files(self, namespace: str, trial: str, files: Mapping[str, bytes]) -> None:
        """Put files into the folder of a trial."""
        self._kept.left.setdefault(Key(namespace, trial), {}).update(files)

    def store_readings(self, trial: str, *readings: MetricLog) -> None:
        """Append readings."""
        self._log.report(trial, readings)

    def record(self, namespace: str, event: RecordedEvent) -> None:
        """Note an event."""
        self._kept.events.append((namespace, event))

    def explain(self, namespace: str, diagnosis: Diagnosis) -> None:
        """Set what `why` says."""
        self._kept.diagnoses[Key(namespace, diagnosis.name)] = diagnosis

    def play(self, namespace: str, name: str, *, pause_seconds: float = 0) -> None:
        """Run an experiment to its end: one trial after the other, with losses 0.5, 0.4, 0.3 and so on."""
        limit = self.get(Experiment, namespace, name).spec.max_trial_count or 3
        start = self.trials(namespace, name, states=("Succeeded",)).total
        for index in range(start, limit):
            trial = self._play_trial(namespace, name, index, pause_seconds)
            done = index + 1
            ends = [condition("Succeeded", "ExperimentMaxTrialsReached")] if done == limit else []
            status = {
                "startTime": stamp(0),
                "conditions": [condition("Created"), condition("Running"), *ends],
                "trials": done,
                "trialsSucceeded": done,
                "currentOptimalTrial": {
                    "bestTrialName": trial["metadata"]["name"],
                    "parameterAssignments": trial["spec"]["parameterAssignments"],
                    "observation": trial["status"]["observation"],
                },
            }
            if ends:
                status["completionTime"] = stamp(10 * done)
            self.put({**self.get(Experiment, namespace, name).encode(), "status": status})

    def _play_trial(self, namespace: str, name: str, index: int, pause_seconds: float) -> Json:
        trial, value = f"{name}-{index:04d}", f"{0.5 - 0.1 * index:.1f}"
        running = condition("Running", "TrialRunning", at=10 * index)
        parts: Json = {"experiment": name, "namespace": namespace, "index": index, "x": value}
        self.put(make_trial(trial, running, **parts))
        time.sleep(pause_seconds)
        self.gate()
        self.write_log(namespace, trial, f"loss={value}\n".encode())
        moment = START + timedelta(seconds=10 * index)
        self.store_readings(trial, MetricLog(moment, "loss", value))
        done = condition("Succeeded", "TrialSucceeded", at=10 * index + 5)
        ended = make_trial(trial, running, done, loss=value, **parts)
        self.put(ended)
        self.record(namespace, RecordedEvent(moment, "Trial", trial, False, "JobSucceeded", f"Job {trial} succeeded"))
        return ended.encode()
