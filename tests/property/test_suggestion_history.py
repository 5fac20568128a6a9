"""Laws of suggestions and of early stopping, whatever trials report: both are functions of the history."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from katib.model.types import ObjectiveSpec
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated.suggestions_pb2 import UndecodedSuggestionsRequest
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.base import PastTrial, Problem
from suggestion_services.base.algorithm import AwaitingTrials
from suggestion_services.base.messages import experiment_spec, past_trial
from suggestion_services.base.sessions import SearchSession, place_of
from suggestion_services.early_stopping import CostCurve, CurvePoint, CurveState
from tests.support.searches import algorithm_for
from tests.support.stopping_algorithms import NAMES, an_algorithm
from tests.support.suggestion import a_parameter, a_trial, an_experiment

OBJECTIVE = ObjectiveSpec(objective_metric_name="loss")
LEARNING = [
    entry.info.name
    for entry in ENTRIES
    if entry.info.reads_history and not entry.info.early_stopping and not entry.info.graph_fields
]
SLOW = {"bayesianoptimization"}
SETTINGS: dict[str, dict[str, object]] = {
    "tpe": {"n_startup_trials": 2},
    "multivariate-tpe": {"n_startup_trials": 2},
    "motpe": {"n_startup_trials": 2},
    "nsga2": {"population_size": 3},
    "hyperband": {"r_l": 9, "resource_name": "epochs", "rounds": 0},
    "bohb": {"r_l": 9, "resource_name": "epochs", "rounds": 0, "n_startup_trials": 3},
    "asha": {"r_l": 9, "resource_name": "epochs"},
    "pbt": {"n_population": 5},
}


@st.composite
def trials(draw: st.DrawFn) -> pb.Trial:
    """Draw one of few trials, so that the same comes again, changed or not."""
    condition = draw(st.sampled_from([pb.TrialStatus.RUNNING, pb.TrialStatus.SUCCEEDED, pb.TrialStatus.FAILED]))
    value = draw(st.sampled_from(["1", "2.5", "-3", "nan", None]))
    labels = {"cmaes.suggestion.katib.kubeflow.org/number": str(draw(st.integers(0, 5))), "generation": "0"}
    point = {"x": draw(st.sampled_from(["0.1", "0.5", "0.9"])), "y": draw(st.sampled_from(["0.2", "0.7"]))}
    point["epochs"] = draw(st.sampled_from(["1", "3", "9"]))
    ended = condition != pb.TrialStatus.RUNNING
    return a_trial(f"t{draw(st.integers(0, 9))}", point, value if ended else None, condition, labels=labels)


histories = st.lists(trials(), max_size=12)
requests = st.lists(st.tuples(histories, st.lists(trials(), max_size=3)), min_size=1, max_size=5)


def request_of(own: Sequence[pb.Trial], earlier: Sequence[pb.Trial]) -> UndecodedSuggestionsRequest:
    request = pb.GetSuggestionsRequest(trials=own, earlier_trials=earlier)
    return UndecodedSuggestionsRequest.FromString(request.SerializeToString())


def expected(own: Sequence[pb.Trial], earlier: Sequence[pb.Trial]) -> list[PastTrial]:
    """Return what a request says, decoded without any cache."""
    found: dict[tuple[bool, str], PastTrial] = {}
    for is_earlier, messages in ((True, earlier), (False, own)):
        for message in messages:
            found[not is_earlier, message.name] = past_trial(message, OBJECTIVE, is_earlier=is_earlier)
    return sorted(found.values(), key=lambda trial: (not trial.is_earlier, place_of(trial)))


@settings(deadline=None)
@given(requests)
def test_trials_are_what_the_request_says_whatever_was_asked_before(
    asked: list[tuple[list[pb.Trial], list[pb.Trial]]],
) -> None:
    session = SearchSession(algorithm_for("random"), OBJECTIVE)
    for own, earlier in asked:
        assert repr(session.history(request_of(own, earlier))) == repr(expected(own, earlier))


@pytest.mark.parametrize("name", [name for name in LEARNING if name not in SLOW])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(requests)
def test_an_algorithm_that_saw_other_histories_answers_as_a_new_one(
    name: str, asked: list[tuple[list[pb.Trial], list[pb.Trial]]]
) -> None:
    parameters = [a_parameter("x"), a_parameter("y"), a_parameter("epochs", pb.INT, min="1", max="9")]
    experiment = an_experiment(name, parameters, settings={"random_state": 3, **SETTINGS.get(name, {})})
    entry = find_entry(name)
    problem = Problem.of("demo", experiment_spec(experiment), entry.info)
    old = entry.load()(problem)
    session = SearchSession(old, OBJECTIVE)
    for own, earlier in asked:
        history, first = session.history(request_of(own, earlier)), len({trial.name for trial in own})

        assert _answers(old, history, first) == _answers(entry.load()(problem), expected(own, earlier), first)


def _answers(algorithm: object, history: list[PastTrial], first: int) -> list[str]:
    """Return the next suggestions in words, and how they end."""
    found: list[str] = []
    try:
        found.extend(map(repr, algorithm.suggest(history, first=first, count=2)))  # type: ignore[attr-defined]  # any algorithm
    except AwaitingTrials:
        found.append("not yet")
    return found


VALUES = st.sampled_from([*(i / 4 for i in range(-8, 9)), math.nan, math.inf, -math.inf])
STANDINGS = st.sampled_from([CurveState.RUNNING, CurveState.RUNNING, CurveState.SUCCEEDED, CurveState.STOPPED])
READINGS = st.lists(st.tuples(VALUES, st.integers(0, 4)), max_size=9)


def a_curve(i: int, readings: list[tuple[float, int]], standing: CurveState, *, by_number: bool) -> CostCurve:
    """Return a curve from values and the number of steps between them."""
    steps = None if by_number else accumulate(gap for _, gap in readings)
    return CostCurve.of(f"trial-{i}", [value for value, _ in readings], steps=steps, standing=standing)


EXPERIMENTS = st.lists(st.tuples(READINGS, STANDINGS, st.booleans()), max_size=8).map(
    lambda trials: [a_curve(i, readings, standing, by_number=how) for i, (readings, standing, how) in enumerate(trials)]
)


def mirrored(curve: CostCurve) -> CostCurve:
    """Return what the same trial looks like where the negated objective is maximised: the same."""
    values = [-cost for cost in curve.costs]
    steps = None if curve.by_number else curve.resources
    return CostCurve.of(curve.trial_name, values, steps=steps, standing=curve.standing, maximize=True)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(curves=EXPERIMENTS, seed=st.integers(0, 9))
def test_verdicts_depend_on_the_curves_alone(name: str, curves: list[CostCurve], seed: int) -> None:
    algorithm = an_algorithm(name)
    verdicts = algorithm.judge(curves)
    stopped = [verdict.trial_name for verdict in verdicts]

    assert algorithm.judge(curves) == verdicts
    assert set(an_algorithm(name).judge(random.Random(seed).sample(curves, len(curves)))) == set(verdicts)
    assert set(stopped) <= {c.trial_name for c in curves if c.standing is CurveState.RUNNING and len(c)}
    up = an_algorithm(name, maximize=True).judge([mirrored(curve) for curve in curves])
    assert [verdict.trial_name for verdict in up] == stopped


@settings(max_examples=40)
@given(curves=EXPERIMENTS, factor=st.integers(2, 4), grace=st.integers(0, 5))
def test_asha_never_stops_the_best_trial_of_a_rung(curves: list[CostCurve], factor: int, grace: int) -> None:
    stopped = {v.trial_name for v in an_algorithm("asha", reduction_factor=factor, grace=grace).judge(curves)}

    for rung in (factor**k for k in range(6)):
        there = [curve for curve in curves if len(curve) and curve.resource >= rung]
        highest = [curve for curve in there if curve.resource < rung * factor]
        best = min((curve.best_by(rung) for curve in there), default=None)
        assert not [c.trial_name for c in highest if c.best_by(rung) == best and c.trial_name in stopped]


@settings(max_examples=40)
@given(curves=EXPERIMENTS)
def test_asha_leaves_a_share_running_or_ended_at_every_rung(curves: list[CostCurve]) -> None:
    """However often it is asked: stopped trials count at the rungs they reached, so the bar does not rise by itself."""
    algorithm = an_algorithm("asha")
    first = {verdict.trial_name for verdict in algorithm.judge(curves)}
    then = [curve.ended(CurveState.STOPPED) if curve.trial_name in first else curve for curve in curves]

    assert algorithm.judge(then) == []


@settings(max_examples=40)
@given(values=st.lists(VALUES, max_size=30), cut=st.integers(0, 30))
def test_a_curve_does_not_depend_on_how_it_came(values: list[float], cut: int) -> None:
    whole = CostCurve.of("t", values)
    resources, costs = list(whole.resources), list(whole.costs)
    parts = CostCurve("t", by_number=True)
    for some in (slice(0, cut), slice(cut, None)):
        parts = parts.extended([CurvePoint(r, c) for r, c in zip(resources[some], costs[some], strict=True)])

    assert list(parts.bests) == list(whole.bests)
    assert parts.best == min((v for v in values if math.isfinite(v)), default=math.inf)
