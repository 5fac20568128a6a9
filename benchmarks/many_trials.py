"""Data directories with one experiment of many trials, ended or running, for benchmarks of reading."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION
from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import Key, Kind
from katib.engine.stores.sql import SqlStore, rows
from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.names import EXPERIMENT_FINALIZER
from katib.places.machine.data import STATUS_KINDS
from katib.places.machine.layout import Layout
from katib.service.tuning.trial_pages import TRIAL_FACTS
from tests.support.experiments import a_choice, a_double, a_job, a_template, an_experiment, an_int

NAME = "many"
API = "kubeflow.org/v1beta1"
START = datetime(2024, 1, 1, tzinfo=UTC)
"""A time long ago: an engine that starts checks recently ended trials once more."""
SECONDS_APART = 3
_OBJECTIVE = {
    "type": "minimize",
    "objectiveMetricName": "loss",
    "metricStrategies": [{"name": "loss", "value": "min"}],
}
_PARAMETERS = [
    a_double("lr", low="0.0001", high="1", distribution="logUniform"),
    an_int("units", low="8", high="512"),
    a_double("dropout", low="0", high="0.5"),
    a_choice("optimizer", ["sgd", "adam", "ftrl"]),
]
_NAMES = [parameter["name"] for parameter in _PARAMETERS]
_ENDS = {"Succeeded": 0.9, "EarlyStopped": 0.07, "Failed": 0.03}


def fill(
    directory: Path,
    count: int,
    *,
    goes_on: bool = False,
    is_taken_up: bool = False,
    command: str = "echo loss=1",
    parallel: int = 2,
) -> None:
    """Create a data directory with an experiment of four parameters.

    Args:
        count: Number of ended trials.
        goes_on: Whether a server that opens it runs trials.
        is_taken_up: Whether its controllers process it anyway, because additions of theirs are missing.
    """
    layout = Layout(directory)
    layout.create()
    with open_database(layout.database) as database:
        store = SqlStore(database, STATUS_KINDS, facts=TRIAL_FACTS)
        experiment = _experiment(count + 100_000 * goes_on, command, parallel)
        if is_taken_up:
            del experiment["metadata"]["finalizers"]
        made = store.create(experiment)
        owner = {"apiVersion": API, "kind": "Experiment", "name": NAME, "uid": made["metadata"]["uid"]}
        if goes_on:
            _make_suggestion(store, owner, count)
        random = Random(1)
        trials = [_trial(number, {**owner, "controller": True}, random) for number in range(count)]
        with database.transaction() as driver:
            objects = rows.SqlRows(driver, TRIAL_FACTS)
            for trial in trials:
                objects.next_revision()
                objects.insert(trial)
        store.update_status(_with_status(store, trials, goes_on=goes_on))


def stamp(second: int) -> str:
    return (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(second: int, *states: tuple[str, str]) -> list[dict[str, str]]:
    times = {"lastTransitionTime": stamp(second), "lastUpdateTime": stamp(second)}
    return [
        {"type": t, "status": s, "reason": f"Trial{t}", "message": f"Trial is {t.lower()}"} | times for t, s in states
    ]


def values(directory: Path) -> list[tuple[dict[str, str], float | None, str]]:
    """Return the parameters, the value and the state of each trial, for a rival with the same trials."""
    with open_database(Layout(directory).database) as database:
        store = SqlStore(database, STATUS_KINDS, facts=TRIAL_FACTS)
        found = store.list(Kind(API, "Trial")).items
    result = []
    for trial in found:
        metrics = trial["status"].get("observation", {}).get("metrics") or ()
        pairs = {pair["name"]: pair["value"] for pair in trial["spec"]["parameterAssignments"]}
        value = float(metrics[0]["min"]) if metrics else None
        result.append((pairs, value, trial["status"]["conditions"][-1]["type"]))
    return result


def _experiment(limit: int, command: str, parallel: int) -> dict[str, Any]:
    used = " ".join(f"${{trialParameters.{name}}}" for name in _NAMES)
    raw = an_experiment(
        name=NAME,
        objective=_OBJECTIVE,
        parallelTrialCount=parallel,
        maxTrialCount=limit,
        maxFailedTrialCount=limit,
        parameters=_PARAMETERS,
        trialTemplate=a_template(f"{command} # {used}", {name: name for name in _NAMES}),
    )
    raw["metadata"]["finalizers"] = [EXPERIMENT_FINALIZER]
    return with_defaults(decode_stored(raw)).encode()


def _make_suggestion(store: SqlStore, owner: dict[str, Any], count: int) -> None:
    suggestion = {
        "apiVersion": API,
        "kind": "Suggestion",
        "metadata": {"name": NAME, "namespace": "default", "ownerReferences": [{**owner, "controller": True}]},
        "spec": {"algorithm": {"algorithmName": "random"}, "requests": count},
    }
    store.create(suggestion)
    made = store.get(SUGGESTION, Key("default", NAME))
    store.update_status({**made, "status": {"suggestionCount": count, "startTime": stamp(0)}})


def _trial(number: int, owner: dict[str, Any], random: Random) -> dict[str, Any]:
    lr, units = 10 ** random.uniform(-4, 0), random.randint(8, 512)
    dropout, optimizer = random.uniform(0, 0.5), random.choice(["sgd", "adam", "ftrl"])
    value = abs(lr - 0.03) + abs(units - 300) / 1000 + dropout / 10 + random.random() / (1 + number) ** 0.3
    (end,) = random.choices(list(_ENDS), list(_ENDS.values()))
    begun = number * SECONDS_APART
    status: dict[str, Any] = {
        "startTime": stamp(begun),
        "completionTime": stamp(begun + random.randrange(1, 600)),
        "conditions": conditions(begun, ("Created", "True"), ("Running", "False"), (end, "True")),
    }
    if end != "Failed":
        metric = {"name": "loss", "min": repr(value), "max": repr(value + 1), "latest": repr(value)}
        status["observation"] = {"metrics": [metric]}
    return {
        "apiVersion": API,
        "kind": "Trial",
        "metadata": {
            "name": f"{NAME}-{random.getrandbits(16):04x}{number:06x}",
            "namespace": "default",
            "uid": str(UUID(int=random.getrandbits(128))),
            "creationTimestamp": stamp(begun),
            "generation": 1,
            "resourceVersion": str(number + 10),
            "labels": {"katib.kubeflow.org/experiment": NAME},
            "ownerReferences": [owner],
            "finalizers": ["clean-metrics-in-db"],
        },
        "spec": {
            "objective": _OBJECTIVE,
            "parameterAssignments": [
                {"name": name, "value": text}
                for name, text in zip(_NAMES, (repr(lr), str(units), repr(dropout), optimizer), strict=True)
            ],
            "runSpec": a_job("echo loss=1"),
            "primaryContainerName": "training",
            "metricsCollector": {"collector": {"kind": "StdOut"}},
        },
        "status": status,
    }


def _with_status(store: SqlStore, trials: list[dict[str, Any]], *, goes_on: bool) -> dict[str, Any]:
    ended = {end: [t for t in trials if t["status"]["conditions"][-1]["type"] == end] for end in _ENDS}
    best = min(
        ended["Succeeded"] + ended["EarlyStopped"],
        key=lambda trial: float(trial["status"]["observation"]["metrics"][0]["min"]),
    )
    end = len(trials) * SECONDS_APART
    status = {
        "startTime": stamp(0),
        "trials": len(trials),
        "trialsSucceeded": len(ended["Succeeded"]),
        "trialsEarlyStopped": len(ended["EarlyStopped"]),
        "trialsFailed": len(ended["Failed"]),
        "currentOptimalTrial": {
            "bestTrialName": best["metadata"]["name"],
            "parameterAssignments": best["spec"]["parameterAssignments"],
            "observation": best["status"]["observation"],
        },
    }
    if goes_on:
        status["conditions"] = conditions(0, ("Created", "True"), ("Running", "True"))
    else:
        status["completionTime"] = stamp(end)
        status["conditions"] = conditions(end, ("Created", "True"), ("Running", "False"), ("Succeeded", "True"))
    return {**store.get(EXPERIMENT, Key("default", NAME)), "status": status}
