"""Builders of what the controllers' plans look at: valid as they are, so that a test says only what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from katib.engine.controllers.kinds import key_of
from katib.engine.controllers.ledger import OrderOf, TrialLedger
from katib.engine.runtime.objects import Key
from katib.model.defaults import with_defaults
from katib.model.names import EXPERIMENT_LABEL
from katib.model.types import (
    Condition,
    Experiment,
    Metric,
    MetricConstraint,
    MetricStrategySpec,
    ObjectiveSpec,
    ObjectiveTerm,
    ObjectMeta,
    Observation,
    Suggestion,
    SuggestionSpec,
    SuggestionStatus,
    Trial,
    TrialSpec,
    TrialStatus,
)
from tests.support.experiments import an_experiment

NOW = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2024, 5, 1, 13, 0, tzinfo=UTC)


def holding(type_: str, reason: str = "", *, status: str = "True", message: str = "") -> Condition:
    """Return a condition that was set at NOW."""
    return Condition(
        type=type_, status=status, reason=reason, message=message, last_update_time=NOW, last_transition_time=NOW
    )


def story(conditions: tuple[Condition, ...]) -> list[tuple[str, str, str]]:
    """Return type, status and reason of conditions in their order."""
    return [(c.type, c.status, c.reason) for c in conditions]


def experiment(*conditions: Condition, annotations: Mapping[str, str] | None = None, **spec: Any) -> Experiment:
    """Return an experiment with defaults and a status with these conditions."""
    made = with_defaults(Experiment.decode(an_experiment(**spec)))
    metadata = structs.replace(made.metadata, annotations=dict(annotations or {}), uid="uid-demo")
    status = structs.replace(made.status, conditions=conditions)
    return structs.replace(made, metadata=metadata, status=status)


def suggestion(*conditions: Condition, requests: int = 0, **status: Any) -> Suggestion:
    """Return the Suggestion of the experiment `demo`; status fields by their Python name."""
    return Suggestion(
        metadata=ObjectMeta(name="demo", namespace="default", uid="uid-suggestion"),
        spec=SuggestionSpec(requests=requests),
        status=SuggestionStatus(conditions=conditions, **status),
    )


def two_objectives(
    *, goals: tuple[float | None, float | None] = (None, None), latency: float | None = None
) -> ObjectiveSpec:
    """Return objectives `accuracy`, to be maximized, and `seconds`, to be minimized; latency is the most allowed."""
    types = (("accuracy", "maximize"), ("seconds", "minimize"))
    terms = tuple(ObjectiveTerm(name=n, type=t, goal=g) for (n, t), g in zip(types, goals, strict=True))
    bounds = () if latency is None else (MetricConstraint(metric_name="latency", max=latency),)
    names = ("accuracy", "seconds", *(bound.metric_name for bound in bounds))
    return ObjectiveSpec(
        type="maximize",
        goal=goals[0],
        objective_metric_name="accuracy",
        objectives=terms,
        constraints=bounds,
        metric_strategies=tuple(MetricStrategySpec(name=name, value="latest") for name in names),
    )


def readings(**values: str) -> Observation:
    """Return an observation of several metrics with one reading each."""
    return Observation(metrics=tuple(Metric(name=n, min=v, max=v, latest=v) for n, v in values.items()))


def objective(type_: str = "minimize", *, goal: float | None = None, strategy: str = "latest") -> ObjectiveSpec:
    """Return an objective called `loss`."""
    return ObjectiveSpec(
        type=type_,
        goal=goal,
        objective_metric_name="loss",
        metric_strategies=(MetricStrategySpec(name="loss", value=strategy),),
    )


def observed(latest: str, *, low: str | None = None, high: str | None = None, name: str = "loss") -> Observation:
    """Return the observation of one metric; min and max are the latest reading unless given."""
    low, high = latest if low is None else low, latest if high is None else high
    return Observation(metrics=(Metric(name=name, min=low, max=high, latest=latest),))


def trial(
    name: str = "demo-1",
    *conditions: str | Condition,
    value: str | None = None,
    experiment_name: str = "demo",
    uid: str = "",
    objective_spec: ObjectiveSpec | None = None,
    **spec: Any,
) -> Trial:
    """Return a trial in which these conditions hold, with `value` as its observed loss."""
    made = tuple(holding(c) if isinstance(c, str) else c for c in conditions)
    return Trial(
        metadata=ObjectMeta(
            name=name, namespace="default", uid=uid or f"uid-{name}", labels={EXPERIMENT_LABEL: experiment_name}
        ),
        spec=TrialSpec(objective=objective_spec or objective(), **spec),
        status=TrialStatus(conditions=made, observation=None if value is None else observed(value)),
    )


class KnownLedger(TrialLedger):
    """A ledger beside a cache that holds what was applied."""

    def __init__(self, order_of: OrderOf | None = None) -> None:
        self._known: dict[Key, Trial] = {}
        super().__init__(self._known.get, order_of)

    def apply(self, old: Trial | None, new: Trial | None) -> None:
        if old is not None:
            del self._known[key_of(old)]
        if new is not None:
            self._known[key_of(new)] = new
        super().apply(old, new)
