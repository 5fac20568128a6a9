"""Bayesian optimization: a regression model of the objective, and the most promising point under it.

Notation: a row is a point as scikit-optimize sees it; y its value, lower is better, finite; t the duration in seconds.
Source: [Shahriari2016] Taking the Human Out of the Loop, Proceedings of the IEEE 104(1); constant liar from
[Ginsbourger2010] Kriging Is Well-Suited to Parallelize Optimization, section 5. The model is scikit-optimize's.

Each suggestion fits a new model to all known trials, so it depends only on the history and its number:

* measured trials have their value; failed and diverged ones the worst value, as evidence against their region;
* pending ones, and the points suggested before in the same request, a lie: the mean of the measured values;
* a known point, in whatever state, is not suggested again while others remain.

Differs from Katib's service: the prior follows the distribution (there always logarithmic), steps are respected, and
`gp_hedge` chooses between its three criteria with equal probability, since their past gains are not part of the
history.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor
from skopt import Optimizer
from skopt.space import Categorical, Integer, Real
from typing_extensions import override

from katib.model.space import Grid, Parameter, Point, SearchSpace, Value, ValueList
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, TrialOutcome
from suggestion_services.base.allowed import allowed_near
from suggestion_services.base.rules import BayesianRules, only_categories
from suggestion_services.base.shared_context import one_thread, quiet

_DRAWS = 100  # random points tried before a repetition is accepted: in a nearly exhausted space, few are new
_TREES = 30  # scikit-optimize's default
_QUANTILES = (0.16, 0.5, 0.84)  # one standard deviation to either side of the middle, if errors are normal


class BayesianOptimization(BayesianRules, Algorithm):
    """The algorithm `bayesianoptimization`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        settings = problem.settings
        self._dimensions = SkoptDimensions(problem.space)
        self._n_initial = settings.whole("n_initial_points", 10)
        self._acq_func = settings.text("acq_func", "gp_hedge")
        self._timed = self._acq_func.endswith("ps")
        self._estimator = settings.text("base_estimator", "GP")
        self._acq_optimizer = settings.text("acq_optimizer", "auto")
        if self._acq_optimizer == "auto":  # decided here, since the library's choice fails for trees with durations
            has_gradients = self._estimator == "GP" and not only_categories(problem.space)
            self._acq_optimizer = "lbfgs" if has_gradients else "sampling"

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        evidence = gather(self.problem, trials)
        for k in range(first, first + count):
            point = self._point(evidence, k)
            evidence.pending.append(point)
            yield point

    def _point(self, evidence: KnownPoints, k: int) -> Point:
        n_known = len(evidence.measured) + len(evidence.bad)
        random = self.problem.random(k)
        if evidence.measured and n_known >= self._n_initial and self._dimensions.library:
            point = allowed_near(self.problem.space, self._promising(evidence, self.problem.seed_of(k)))
        else:
            point = self.problem.space.sample(random)
        seen = evidence.points()
        for _ in range(_DRAWS):
            if point not in seen:
                break
            point = self.problem.space.sample(random)
        return point

    def _promising(self, evidence: KnownPoints, seed: int) -> Point:
        rows, values, seconds = evidence.table()
        with quiet, one_thread:
            optimizer = Optimizer(
                self._dimensions.library,
                base_estimator=BoostedTrees(seed) if self._estimator == "GBRT" else self._estimator,
                n_initial_points=0,
                acq_func=self._acq_func,
                acq_optimizer=self._acq_optimizer,
                random_state=seed,
            )
            optimizer.tell([self._dimensions.encode(row) for row in rows], self._answers(values, seconds))
            return self.problem.space.complete(self._dimensions.decode(optimizer.ask()))

    def _answers(self, values: Sequence[float], seconds: Sequence[float]) -> list[Any]:
        """Return the argument of the library's `tell` per row: the value, or the pair of value and duration.

        With pairs it takes the least of all numbers, durations included, as the best value so far. Shifting the values
        below every logarithm of a duration makes the best value that least number; the model centers them anyway.
        """
        if not self._timed:
            return list(values)
        offset = min(values) - min(map(math.log, seconds)) + 1.0
        return [[y - offset, t] for y, t in zip(values, seconds, strict=True)]


class BoostedTrees(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # the library has no types
    """Gradient boosted trees with an error estimate from three quantiles.

    Replaces scikit-optimize's own class, which works neither with current scikit-learn (not recognized as a regressor)
    nor with current numpy (it calls a removed function).
    """

    def __init__(self, random_state: Any = None) -> None:
        self.random_state = random_state

    def fit(self, x: Any, y: Any) -> Self:
        """Fit one model per quantile; x has shape (n, d), y (n,)."""
        self.models_ = [
            GradientBoostingRegressor(
                loss="quantile", alpha=alpha, n_estimators=_TREES, random_state=self.random_state
            ).fit(x, y)
            for alpha in _QUANTILES
        ]
        return self

    @override
    def predict(self, x: Any, *, return_std: bool = False) -> Any:
        """Return the medians and, if requested, the standard deviations, each of shape (n,)."""
        low, middle, high = (model.predict(x) for model in self.models_)
        return (middle, np.abs(high - low) / 2.0) if return_std else middle


_INT_LIMIT = 2**53  # beyond it a float cannot distinguish neighbors


class SkoptDimensions:
    """The parameters of a space with more than one value, as dimensions of scikit-optimize.

    Numbers with equal weights on a grid, and lists of numbers, are integers (the index); lists of texts are categories;
    everything else is the share of probability below the value, a real in [0, 1], which respects every distribution.
    Parameters with one value are left out.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._fixed = {p.name: p.at(0) for p in space.parameters if p.size == 1}
        self._free = [p for p in space.parameters if p.size != 1]
        self.library = [_dimension(p) for p in self._free]

    def encode(self, point: Point) -> list[Any]:
        return [_encode(p, point[p.name]) for p in self._free]

    def decode(self, row: list[Any]) -> Point:
        return {**self._fixed, **{p.name: _decode(p, x) for p, x in zip(self._free, row, strict=True)}}


def _by_index(parameter: Parameter) -> bool:
    match parameter:
        case Grid(spread=None, count=count):
            return count <= _INT_LIMIT
        case ValueList(ordered=ordered):
            return ordered
    return False


def _dimension(parameter: Parameter) -> Any:
    if _by_index(parameter):
        return Integer(0, (parameter.size or 1) - 1, transform="normalize", name=parameter.name)
    if isinstance(parameter, ValueList):
        return Categorical(parameter.values, name=parameter.name)
    return Real(0.0, 1.0, transform="normalize", name=parameter.name)


def _encode(parameter: Parameter, value: Value) -> Value:
    if _by_index(parameter):
        return parameter.index_of(value)
    return value if isinstance(parameter, ValueList) else parameter.to_unit(value)


def _decode(parameter: Parameter, x: Any) -> Value:
    if _by_index(parameter):
        return parameter.at(int(x))
    return parameter.parse(str(x)) if isinstance(parameter, ValueList) else parameter.from_unit(float(x))


_LARGEST = 1e100  # squares of values must stay finite in the model
_SHORTEST_SECONDS = 1.0  # trials carry whole seconds, and the model takes the logarithm


@dataclass(slots=True)
class KnownPoints:
    """Points by their outcome. Values are minimized.

    Attributes:
        measured: Points with a value and a duration, NaN when unknown.
        pending: Points without a result yet.
        silent: Points that ended without information; they are only not repeated.
    """

    measured: list[tuple[Point, float, float]] = field(default_factory=list)
    bad: list[Point] = field(default_factory=list)
    pending: list[Point] = field(default_factory=list)
    silent: list[Point] = field(default_factory=list)

    def points(self) -> list[Point]:
        return [point for point, _, _ in self.measured] + self.bad + self.pending + self.silent

    def table(self) -> tuple[list[Point], list[float], list[float]]:
        """Return points, values and durations of equal lengths; requires a measured point.

        Missing values are filled in: the worst value for bad points, the mean for pending ones, the mean duration.
        """
        values = [y for _, y, _ in self.measured]
        known = [t for _, _, t in self.measured if not math.isnan(t)]
        usual = max(fmean(known), _SHORTEST_SECONDS) if known else _SHORTEST_SECONDS
        seconds = [usual if math.isnan(t) else max(t, _SHORTEST_SECONDS) for _, _, t in self.measured]
        points = [point for point, _, _ in self.measured] + self.bad + self.pending
        values += [max(values)] * len(self.bad) + [fmean(values)] * len(self.pending)
        return points, values, seconds + [usual] * (len(points) - len(seconds))


def gather(problem: Problem, trials: Sequence[PastTrial]) -> KnownPoints:
    """Return the evidence of the trials; a trial outside this space is ignored."""
    evidence = KnownPoints()
    for trial in trials:
        point = problem.space.nearest(trial.assignments.items())
        if point is None:
            continue
        if trial.outcome is TrialOutcome.MEASURED:
            y = -trial.objective if problem.maximize else trial.objective
            evidence.measured.append((point, min(max(y, -_LARGEST), _LARGEST), trial.seconds))
        elif trial.outcome is TrialOutcome.BAD:
            evidence.bad.append(point)
        elif trial.outcome is TrialOutcome.PENDING:
            evidence.pending.append(point)
        else:
            evidence.silent.append(point)
    return evidence
