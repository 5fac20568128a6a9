"""The experiments of the pictures in docs/images: small ones, one of 1,000 trials, of two objectives, a running one.

Nothing runs: values follow from formulas that resemble trainings, with a fixed seed, so pictures differ only if the
page does.
"""

# ruff: noqa: PLR2004  # numbers of made-up trainings

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from katib.model.decoding import decode_stored
from katib.model.defaults import with_defaults
from katib.model.marks import MarkChanges
from katib.model.metrics import MetricLog
from katib.model.pareto import REFERENCE_TRIALS, hypervolume, reference_point
from katib.model.types import Experiment
from katib.service.tuning.service import Diagnosis, Json, RecordedEvent
from tests.support.experiments import a_choice, a_double, a_template, an_experiment, an_int
from tests.support.tuning import MemoryTuningService

Values = Mapping[str, Any]
_PARAMETERS = [
    a_double("lr", low="0.0001", high="0.5", distribution="logUniform"),
    an_int("hidden", low="16", high="256", step="16"),
    a_double("dropout", low="0", high="0.5"),
    a_choice("optimizer", ["adam", "sgd", "lion"]),
]
_ENDS = ("Succeeded", "EarlyStopped", "Failed")


@dataclass(frozen=True, slots=True)
class Shown:
    """One experiment.

    Attributes:
        name: Its name.
        count: Number of trials.
        limit: Its budget; it has ended if all of it is used.
        objective: As in an experiment file.
        measure: Returns the metrics of a trial from its parameters and random numbers.
        epochs: Readings of a complete trial.
        seconds: Duration of a trial.
        algorithm: The algorithm.
        stops: Whether hopeless trials are stopped.
        marks: Its marks.
    """

    name: str
    count: int
    limit: int
    objective: Json
    measure: Callable[[Values, Random], dict[str, float]]
    epochs: int = 0
    seconds: float = 40.0
    algorithm: str = "tpe"
    stops: bool = False
    marks: MarkChanges = field(default_factory=MarkChanges)


def _accuracy(values: Values, draw: Random) -> dict[str, float]:
    far = abs(math.log10(values["lr"]) + 1.6) ** 1.5 * 0.09 + abs(values["hidden"] - 160) / 2_000
    accuracy = 0.986 - far - values["dropout"] ** 2 / 6 - 0.03 * (values["optimizer"] == "sgd") - draw.random() * 0.012
    return {"accuracy": max(accuracy, 0.1), "loss": (1 - accuracy) * 3.1}


def _loss(values: Values, draw: Random) -> dict[str, float]:
    loss = 0.21 + (math.log10(values["lr"]) + 2.2) ** 2 * 0.35 + abs(values["dropout"] - 0.15)
    loss += 0.12 * (values["optimizer"] == "sgd") + draw.expovariate(9)
    return {"loss": loss * (40 if draw.random() < 0.01 else 1)}


def _trade(values: Values, draw: Random) -> dict[str, float]:
    accuracy = _accuracy(values, draw)["accuracy"] - 0.16 * math.exp(-values["hidden"] / 50)
    latency = 1.4 + values["hidden"] / 21 * (1 + draw.random() * 0.5)
    return {"accuracy": accuracy, "latency": latency, "memory": values["hidden"] / 30 + draw.random() * 2}


_MAXIMIZE = {"type": "maximize", "objectiveMetricName": "accuracy", "additionalMetricNames": ["loss"]}
_MINIMIZE = {"type": "minimize", "objectiveMetricName": "loss"}
_BOTH = {
    "objectives": [{"name": "accuracy", "type": "maximize"}, {"name": "latency", "type": "minimize"}],
    "constraints": [{"metricName": "memory", "max": 8}],
}
_DIGITS = MarkChanges(("digits", "baseline"), "asha ends hopeless ones after three epochs")
SHOWN = (
    Shown("digits", 16, 16, _MAXIMIZE, _accuracy, 30, stops=True, marks=_DIGITS),
    Shown("digits-wider", 12, 12, _MAXIMIZE, _accuracy, 30, marks=MarkChanges(("digits", "wide"))),
    Shown("resnet-sweep", 1_000, 1_000, _MINIMIZE, _loss, marks=MarkChanges(("vision", "paper"))),
    Shown("edge-models", 60, 60, _BOTH, _trade, algorithm="nsga2", marks=MarkChanges(("vision", "edge"))),
    Shown("augmentation", 23, 60, _MAXIMIZE, _accuracy, 30, stops=True, marks=MarkChanges(("vision",))),
)


def shown_service() -> MemoryTuningService:
    """Return a service with all of them, the newest created an hour ago."""
    now = datetime.now(UTC).replace(microsecond=0)
    service = MemoryTuningService(now - timedelta(hours=9))
    for shown in SHOWN:
        goes_on = shown.limit > shown.count
        _put(service, shown, now - timedelta(seconds=shown.count * shown.seconds / 2) if goes_on else None)
        service.clock.advance(7_200)
    return service


def _put(service: MemoryTuningService, shown: Shown, start: datetime | None) -> None:
    service.store.create(with_defaults(decode_stored(_document(shown))).encode())
    service.edit("default", shown.name, tags=shown.marks.tags or (), notes=shown.marks.notes or "")
    start, draw = start or service.clock.now(), Random(shown.name)
    trials = [_trial(service, shown, index, start, draw) for index in range(shown.count)]
    status = _status(shown, trials, start)
    service.put({**service.get(Experiment, "default", shown.name).encode(), "status": status})
    state = status["conditions"][-1]["type"]
    verdict = "It runs." if shown.limit > shown.count else "It has ended."
    service.explain("default", Diagnosis("Experiment", shown.name, state, verdict, saved_share=0.56))


def _document(shown: Shown) -> Json:
    names = [parameter["name"] for parameter in _PARAMETERS]
    command = " ".join(["python train.py", *(f"--{name}=${{trialParameters.{name}}}" for name in names)])
    return an_experiment(
        name=shown.name,
        objective=shown.objective,
        algorithm={"algorithmName": shown.algorithm},
        earlyStopping={"algorithmName": "asha"} if shown.stops else None,
        maxTrialCount=shown.limit,
        parallelTrialCount=2,
        maxFailedTrialCount=shown.limit,
        parameters=_PARAMETERS,
        trialTemplate=a_template(command, {name: name for name in names}),
    )


def _trial(service: MemoryTuningService, shown: Shown, index: int, start: datetime, draw: Random) -> Json:
    settled = min(1.0, index / shown.count * 1.4) * 0.7  # later trials stay nearer to the good region
    values = {
        "lr": float(f"{10 ** (draw.uniform(-4, -0.3) * (1 - settled) - 1.8 * settled):.4g}"),
        "hidden": draw.randrange(16, 257, 16),
        "dropout": round(draw.uniform(0, 0.5) * (1 - settled / 2), 4),
        "optimizer": draw.choice(["adam", "adam", "sgd", "lion"]),
    }
    metrics = shown.measure(values, draw)
    name = f"{shown.name}-{draw.getrandbits(32):08x}"
    begun = start + timedelta(seconds=index * shown.seconds / 2)
    runs = shown.limit > shown.count and index >= shown.count - 2
    hopeless = shown.stops and index > 2 and metrics["accuracy"] < 0.93
    state = "Running" if runs else "Failed" if draw.random() < 0.03 else "EarlyStopped" if hopeless else "Succeeded"
    length = shown.seconds * draw.uniform(0.6, 1) * (0.3 if state == "EarlyStopped" else 1)
    status: Json = {"startTime": _stamp(begun), "conditions": [_condition(state, begun)]}
    if state != "Running":
        status["completionTime"] = _stamp(begun + timedelta(seconds=length))
    if state in ("Succeeded", "EarlyStopped"):
        status["observation"] = {
            "metrics": [{"name": key, **dict.fromkeys(("min", "max", "latest"), repr(m))} for key, m in metrics.items()]
        }
    trial: Json = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Trial",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"katib.kubeflow.org/experiment": shown.name},
        },
        "spec": {
            "objective": service.get(Experiment, "default", shown.name).encode()["spec"]["objective"],
            "parameterAssignments": [{"name": key, "value": str(value)} for key, value in values.items()],
        },
        "status": status,
    }
    service.put(trial)
    share = {"Running": 0.6, "EarlyStopped": 0.3, "Failed": 0.2}.get(state, 1.0)
    for epoch in range(round(shown.epochs * share)):
        at, left = begun + timedelta(seconds=epoch * length / max(shown.epochs, 1)), math.exp(-epoch / 6)
        shown_now = {key: m + (1 - 2 * (m > 0.5)) * left * 0.6 + draw.gauss(0, 0.004) for key, m in metrics.items()}
        service.store_readings(name, *(MetricLog(at, key, f"{m:.4f}", epoch) for key, m in shown_now.items()))
    if state == "Failed":
        event = RecordedEvent(begun, "Trial", name, True, "JobFailed", "the program ended with exit code 1")
        service.record("default", event)
    return trial


def _status(shown: Shown, trials: list[Json], start: datetime) -> Json:
    ends = [trial["status"]["conditions"][-1]["type"] for trial in trials]
    end = start + timedelta(seconds=shown.count * shown.seconds / 2)
    status: Json = {
        "startTime": _stamp(start),
        "trials": len(trials),
        "trialsSucceeded": ends.count("Succeeded"),
        "trialsEarlyStopped": ends.count("EarlyStopped"),
        "trialsFailed": ends.count("Failed"),
        "trialsRunning": ends.count("Running"),
        "conditions": [_condition("Created", start), _condition("Running", start, "Experiment is running")],
    }
    if shown.limit == shown.count:
        message = "Experiment has succeeded because max trial count has reached"
        status["conditions"].append(_condition("Succeeded", end, message))
        status["completionTime"] = _stamp(end)
    terms = shown.objective.get("objectives") or [
        {"name": shown.objective["objectiveMetricName"], "type": shown.objective["type"]}
    ]
    signs = [-1 if term["type"] == "maximize" else 1 for term in terms]
    costs = {}
    for index, trial in enumerate(trials):
        metrics = {m["name"]: float(m["latest"]) for m in trial["status"].get("observation", {}).get("metrics", ())}
        if metrics and metrics.get("memory", 0) <= 8:
            costs[index] = tuple(sign * metrics[term["name"]] for sign, term in zip(signs, terms, strict=True))
    best = min(costs, key=costs.__getitem__)
    status["currentOptimalTrial"] = _entry(trials[best])
    if len(terms) > 1:
        front = [i for i, mine in costs.items() if not any(_beats(other, mine) for other in costs.values())]
        reference = reference_point([costs[i] for i in list(costs)[:REFERENCE_TRIALS]])
        status["trialsInfeasible"] = len([e for e in ends if e == "Succeeded"]) - len(costs)
        status["paretoSet"] = {
            "trials": [_entry(trials[i]) for i in sorted(front, key=costs.__getitem__)[:20]],
            "trialCount": len(front),
            "hypervolume": hypervolume([costs[i] for i in front], reference),
            "referencePoint": [
                {"name": term["name"], "value": repr(sign * value)}
                for term, sign, value in zip(terms, signs, reference, strict=True)
            ],
        }
    return status


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def _entry(trial: Json) -> Json:
    return {
        "bestTrialName": trial["metadata"]["name"],
        "parameterAssignments": trial["spec"]["parameterAssignments"],
        "observation": trial["status"]["observation"],
    }


def _condition(kind: str, at: datetime, message: str = "") -> Json:
    moment = {"lastUpdateTime": _stamp(at), "lastTransitionTime": _stamp(at)}
    return {"type": kind, "status": "True", "reason": kind, "message": message, **moment}


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
