"""The ledger against counting: after any sequence of changes, the counts are what a recount of all trials gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from katib.engine.controllers.ledger import TrialLedger
from katib.engine.runtime.objects import Key
from katib.model.metrics import is_usable
from katib.model.names import PAUSED, PAUSED_ANNOTATION
from katib.model.pareto import dominates, hypervolume, reference_point
from katib.model.types import ObjectiveSpec, Trial, TrialState
from tests.support.planning import KnownLedger, objective, readings, trial, two_objectives

STATES = ("", "Running", "Succeeded", "Failed", "Killed", "EarlyStopped", "MetricsUnavailable")
VALUES = (None, "0.5", "0.50", "-1", "2e-3", "nan", "inf", "-inf", "unavailable", "conv3x3", "conv5x5")
EXPERIMENTS = ("demo", "other")


@dataclass
class Model:
    """All trials in order of creation, counted from scratch each time."""

    trials: dict[str, tuple[int, Trial]] = field(default_factory=dict)
    created: int = 0

    def of(self, experiment: str) -> list[Trial]:
        found = sorted(self.trials.values(), key=lambda pair: pair[0])
        return [t for _, t in found if t.metadata.labels["katib.kubeflow.org/experiment"] == experiment]


def state(made: Trial) -> str:
    return made.status.conditions[0].type if made.status.conditions else "Pending"


def text(made: Trial) -> str:
    return made.status.observation.metrics[0].latest if made.status.observation else "unavailable"


def expected_best(trials: list[Trial], spec: ObjectiveSpec) -> str | None:
    """Scan all trials as Katib does: only a strictly better number replaces; without numbers the newest text stands."""
    sign = -1 if spec.type == "maximize" else 1
    best, text_best = None, None
    for made in trials:
        if state(made) not in ("Succeeded", "EarlyStopped"):
            continue
        value = text(made)
        if is_usable(value):
            if best is None or sign * float(value) < sign * float(text(best)):
                best = made
        elif value in ("conv3x3", "conv5x5"):
            text_best = made
    chosen = best or text_best
    return chosen.name if chosen else None


changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete"]),
        st.integers(0, 7),
        st.sampled_from(STATES),
        st.sampled_from(VALUES),
        st.sampled_from(EXPERIMENTS),
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(changes=changes, direction=st.sampled_from(["minimize", "maximize"]))
def test_a_tally_equals_a_recount(changes: list[tuple[str, int, str, str | None, str, bool]], direction: str) -> None:
    ledger, model, spec = KnownLedger(), Model(), objective(direction)
    for action, number, condition, value, home, is_paused in changes:
        name = f"t{number}"
        order, old = model.trials.get(name, (-1, None))
        if action == "delete":
            if old is not None:
                ledger.apply(old, None)
                del model.trials[name]
            continue
        uid = old.metadata.uid if old is not None else f"uid-{model.created}"
        owner = old.metadata.labels["katib.kubeflow.org/experiment"] if old is not None else home
        conditions = (condition,) if condition else ()
        new = trial(name, *conditions, value=value, experiment_name=owner, uid=uid, objective_spec=spec)
        if is_paused:
            new = structs.replace(new, metadata=structs.replace(new.metadata, annotations={PAUSED_ANNOTATION: PAUSED}))
        ledger.apply(old, new)
        if old is None:
            order, model.created = model.created, model.created + 1
        model.trials[name] = (order, new)

        for experiment in EXPERIMENTS:
            _compare(ledger, model, experiment, spec)
    for experiment in EXPERIMENTS:
        _compare(ledger, model, experiment, spec)


def _compare(ledger: TrialLedger, model: Model, experiment: str, spec: ObjectiveSpec) -> None:
    trials = model.of(experiment)
    counts = ledger.counts(Key("default", experiment))

    by_state = {word: tuple(t.name for t in trials if state(t) == word) for word in TrialState}
    assert dict(counts.counts) == {word: len(names) for word, names in by_state.items() if names}
    assert dict(counts.names) == {word: names for word, names in by_state.items() if names}
    assert sorted(counts.active) == sorted(by_state[TrialState.RUNNING] + by_state[TrialState.PENDING])
    paused = [t for t in trials if state(t) == "Pending" and PAUSED_ANNOTATION in t.metadata.annotations]
    assert counts.paused == len(paused)
    assert counts.total == len(trials)
    assert (counts.best.name if counts.best else None) == expected_best(trials, spec)


moves = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.sampled_from(["put", "put", "put", "delete"]),
        st.sampled_from(["Succeeded", "Succeeded", "EarlyStopped", "Running", "Failed"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(moves=moves, latency=st.sampled_from([None, 1.0]))
def test_the_pareto_set_equals_that_of_all_trials(
    moves: list[tuple[int, str, str, int, int, int]], latency: float | None
) -> None:
    """Also when trials change, or go away and those that they beat come to light."""
    ledger, spec = KnownLedger(), two_objectives(latency=latency)
    kept: dict[str, tuple[int, Trial, tuple[float, float], int]] = {}
    for i, (number, action, condition, accuracy, seconds, delay) in enumerate(moves):
        name = f"t{number}"
        old = kept.pop(name, None)
        if action == "delete":
            if old is not None:
                ledger.apply(old[1], None)
            continue
        uid = old[1].metadata.uid if old else f"uid-{i}"
        new = trial(name, condition, uid=uid, objective_spec=spec)
        observation = readings(accuracy=str(accuracy), seconds=str(seconds), latency=str(delay))
        new = structs.replace(new, status=structs.replace(new.status, observation=observation))
        ledger.apply(old[1] if old else None, new)
        kept[name] = (old[0] if old else i, new, (-float(accuracy), float(seconds)), delay)

        _compare_sets(ledger, kept, latency)


def _compare_sets(
    ledger: TrialLedger, kept: dict[str, tuple[int, Trial, tuple[float, float], int]], latency: float | None
) -> None:
    counts = ledger.counts(Key("default", "demo"))
    ended = sorted(entry for entry in kept.values() if state(entry[1]) in ("Succeeded", "EarlyStopped"))
    fit = [entry for entry in ended if latency is None or entry[3] <= latency]
    assert counts.infeasible == len(ended) - len(fit)
    if not fit:
        assert counts.pareto is None
        assert counts.best is None
        return

    points = [entry[2] for entry in fit]
    expected = sorted(p for p in points if not any(dominates(other, p) for other in points))
    reference = reference_point(points[:10])
    assert counts.pareto is not None
    assert list(counts.pareto.points) == expected
    assert counts.pareto.reference == reference
    assert abs(counts.pareto.hypervolume - hypervolume(points, reference)) < 1e-6
    assert tuple(t.name for t in counts.pareto_trials) == counts.pareto.names
    assert counts.best is not None
    assert counts.best.name == min(fit, key=lambda entry: (entry[2], entry[0]))[1].name
