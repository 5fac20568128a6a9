"""Regression models by the name that users give them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor
from typing_extensions import override

_TREES = 30  # as scikit-optimize has it
_QUANTILES = (0.16, 0.5, 0.84)  # one standard deviation to either side of the middle, if errors are normal


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


def estimator_of(name: str, seed: int) -> Any:
    """Return what scikit-optimize takes as `base_estimator`."""
    return BoostedTrees(seed) if name == "GBRT" else name
