"""Laws of early stopping algorithms, whatever trials report."""

from __future__ import annotations

import math
import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suggestion_services.early_stopping import Curve, Point, Standing
from tests.support.stopping_algorithms import NAMES, an_algorithm

VALUES = st.sampled_from([*(i / 4 for i in range(-8, 9)), math.nan, math.inf, -math.inf])
STANDINGS = st.sampled_from([Standing.RUNNING, Standing.RUNNING, Standing.SUCCEEDED, Standing.STOPPED])
READINGS = st.lists(st.tuples(VALUES, st.integers(0, 4)), max_size=9)


def a_curve(i: int, readings: list[tuple[float, int]], standing: Standing, *, by_number: bool) -> Curve:
    """Return a curve from values and the number of steps between them."""
    steps = None if by_number else accumulate(gap for _, gap in readings)
    return Curve.of(f"trial-{i}", [value for value, _ in readings], steps=steps, standing=standing)


EXPERIMENTS = st.lists(st.tuples(READINGS, STANDINGS, st.booleans()), max_size=8).map(
    lambda trials: [a_curve(i, readings, standing, by_number=how) for i, (readings, standing, how) in enumerate(trials)]
)


def mirrored(curve: Curve) -> Curve:
    """Return what the same trial looks like where the negated objective is maximised: the same."""
    values = [-cost for cost in curve.costs]
    steps = None if curve.by_number else curve.resources
    return Curve.of(curve.trial_name, values, steps=steps, standing=curve.standing, maximize=True)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(curves=EXPERIMENTS, seed=st.integers(0, 9))
def test_verdicts_depend_on_the_curves_alone(name: str, curves: list[Curve], seed: int) -> None:
    algorithm = an_algorithm(name)
    verdicts = algorithm.judge(curves)
    stopped = [verdict.trial_name for verdict in verdicts]

    assert algorithm.judge(curves) == verdicts
    assert set(an_algorithm(name).judge(random.Random(seed).sample(curves, len(curves)))) == set(verdicts)
    assert set(stopped) <= {c.trial_name for c in curves if c.standing is Standing.RUNNING and len(c)}
    up = an_algorithm(name, maximize=True).judge([mirrored(curve) for curve in curves])
    assert [verdict.trial_name for verdict in up] == stopped


@settings(max_examples=40)
@given(curves=EXPERIMENTS, factor=st.integers(2, 4), grace=st.integers(0, 5))
def test_asha_never_stops_the_best_trial_of_a_rung(curves: list[Curve], factor: int, grace: int) -> None:
    stopped = {v.trial_name for v in an_algorithm("asha", reduction_factor=factor, grace=grace).judge(curves)}

    for rung in (factor**k for k in range(6)):
        there = [curve for curve in curves if len(curve) and curve.resource >= rung]
        highest = [curve for curve in there if curve.resource < rung * factor]
        best = min((curve.best_by(rung) for curve in there), default=None)
        assert not [c.trial_name for c in highest if c.best_by(rung) == best and c.trial_name in stopped]


@settings(max_examples=40)
@given(curves=EXPERIMENTS)
def test_asha_leaves_a_share_running_or_ended_at_every_rung(curves: list[Curve]) -> None:
    """However often it is asked: stopped trials count at the rungs they reached, so the bar does not rise by itself."""
    algorithm = an_algorithm("asha")
    first = {verdict.trial_name for verdict in algorithm.judge(curves)}
    then = [curve.ended(Standing.STOPPED) if curve.trial_name in first else curve for curve in curves]

    assert algorithm.judge(then) == []


@settings(max_examples=40)
@given(values=st.lists(VALUES, max_size=30), cut=st.integers(0, 30))
def test_a_curve_does_not_depend_on_how_it_came(values: list[float], cut: int) -> None:
    whole = Curve.of("t", values)
    resources, costs = list(whole.resources), list(whole.costs)
    parts = Curve("t", by_number=True)
    for some in (slice(0, cut), slice(cut, None)):
        parts = parts.extended([Point(r, c) for r, c in zip(resources[some], costs[some], strict=True)])

    assert list(parts.bests) == list(whole.bests)
    assert parts.best == min((v for v in values if math.isfinite(v)), default=math.inf)
