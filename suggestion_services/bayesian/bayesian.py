"""Bayesian optimization: a regression model of the objective, and the point that promises most under it.

Notation: a row is a point as scikit-optimize sees it; y its value, lower is better, finite; t the duration in seconds.
Source: [Shahriari2016] Taking the Human Out of the Loop, Proceedings of the IEEE 104(1); constant liar from
[Ginsbourger2010] Kriging Is Well-Suited to Parallelize Optimization, section 5. The model is scikit-optimize's.

Each suggestion fits a new model to all known trials, so it depends on the history and its number alone:

* measured trials have their value; failed and diverged ones the worst value, as evidence against their region;
* pending ones, and the points suggested just before in the same request, a lie: the mean of the measured values;
* a point that is known already, in whatever state, is not suggested again while there are others.

Differs from Katib's service: the prior follows the distribution (there always logarithmic), steps are respected, and
`gp_hedge` chooses between its three criteria with equal chances, since their past gains are not part of the history.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor
from skopt import Optimizer
from typing_extensions import override

from katib.errors import FieldError
from katib.space import Point
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem
from suggestion_services.base.shared_context import one_thread, quiet
from suggestion_services.bayesian.dimensions import Dimensions
from suggestion_services.bayesian.evidence import Evidence, gather

_DRAWS = 100  # random points tried before a repetition is accepted: in a space that is nearly used up, few are new
_TREES = 30  # as scikit-optimize has it
_QUANTILES = (0.16, 0.5, 0.84)  # one standard deviation to either side of the middle, if errors are normal


class BayesianOptimization(Algorithm):
    """The algorithm `bayesianoptimization`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        settings = problem.settings
        self._dimensions = Dimensions(problem.space)
        self._n_initial = settings.whole("n_initial_points", 10)
        self._acq_func = settings.text("acq_func", "gp_hedge")
        self._timed = self._acq_func.endswith("ps")
        self._estimator = settings.text("base_estimator", "GP")
        self._acq_optimizer = settings.text("acq_optimizer", "auto")
        if self._acq_optimizer == "auto":  # decided here, since the library's own choice fails for trees with durations
            has_gradients = self._estimator == "GP" and not self._dimensions.only_categories
            self._acq_optimizer = "lbfgs" if has_gradients else "sampling"

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        estimator = problem.settings.text("base_estimator", "GP")
        if problem.settings.text("acq_optimizer", "auto") != "lbfgs":
            return ()
        if estimator != "GP":
            cause = f"acq_optimizer lbfgs needs gradients, which base_estimator {estimator} does not have"
        elif Dimensions(problem.space).only_categories:
            cause = "acq_optimizer lbfgs needs gradients, which a space of nothing but categories does not have"
        else:
            return ()
        return [FieldError("spec.algorithm.algorithmSettings", cause, "use auto or sampling", "setting-conflict")]

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        evidence = gather(self.problem, trials)
        for k in range(first, first + count):
            point = self._point(evidence, k)
            evidence.pending.append(point)
            yield point

    def _point(self, evidence: Evidence, k: int) -> Point:
        n_known = len(evidence.measured) + len(evidence.bad)
        random = self.problem.random(k)
        if evidence.measured and n_known >= self._n_initial and self._dimensions.library:
            point = self._promising(evidence, self.problem.seed_of(k))
        else:
            point = self.problem.space.sample(random)
        seen = evidence.points()
        for _ in range(_DRAWS):
            if point not in seen:
                break
            point = self.problem.space.sample(random)
        return point

    def _promising(self, evidence: Evidence, seed: int) -> Point:
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
        """Return what to pass to the library's `tell` per row: the value, or the pair of value and duration.

        With pairs it takes the least number of all, durations included, for the best value so far. Moving the values
        below every logarithm of a duration makes the best value that least number; the model centers them anyway.
        """
        if not self._timed:
            return list(values)
        offset = min(values) - min(map(math.log, seconds)) + 1.0
        return [[y - offset, t] for y, t in zip(values, seconds, strict=True)]


class BoostedTrees(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # the library has no types
    """Gradient boosted trees with an idea of their error, from three quantiles.

    Stands for scikit-optimize's own class, which neither current scikit-learn (it is not recognized as a regressor) nor
    current numpy (it calls a function that is gone) can run.
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
        """Return the medians, and if asked the standard deviations, each of shape (n,)."""
        low, middle, high = (model.predict(x) for model in self.models_)
        return (middle, np.abs(high - low) / 2.0) if return_std else middle
