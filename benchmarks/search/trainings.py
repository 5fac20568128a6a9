"""Real trainings on scikit-learn's data sets, each far below a second; the loss of held-out data.

The optimum is a little below the least loss found in long searches; `python -m benchmarks.search.suite` searches for
better ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from benchmarks.search.problems import Task, Values, Variable, doubles

_Data = tuple[Any, Any, Any, Any]
OPTIMA = {
    "boosting-diabetes": 0.537,
    "network-digits": 0.109,
    "kernel-diabetes": 0.5149,
    "descent-cancer": 0.0903,
    "forest-wine": 0.0885,
    "network-cancer": 0.085,
    "ridge-diabetes": 0.5231,
    "boosting-cancer": 0.0745,
}


@cache
def _data(name: str, size: int) -> _Data:
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:size]
    x_train, x_test, y_train, y_test = train_test_split(x[order], y[order], test_size=0.4, random_state=0)
    scaler = StandardScaler().fit(x_train)
    if name == "diabetes":
        y_train, y_test = (y_train - 150) / 77, (y_test - 150) / 77  # about standard deviations
    return scaler.transform(x_train), scaler.transform(x_test), y_train, y_test


def _regression(model: Any, data: _Data) -> float:
    x_train, x_test, y_train, y_test = data
    errors = model.fit(x_train, y_train).predict(x_test) - y_test
    return float(min(np.mean(errors**2), 10.0))


def _classification(model: Any, data: _Data) -> float:
    from sklearn.metrics import log_loss

    x_train, x_test, y_train, y_test = data
    probabilities = model.fit(x_train, y_train).predict_proba(x_test)
    return float(min(log_loss(y_test, probabilities, labels=np.unique(y_train)), 10.0))


def _boosting_diabetes(values: Values) -> float:
    from sklearn.ensemble import GradientBoostingRegressor

    return _regression(GradientBoostingRegressor(**values, random_state=0), _data("diabetes", 442))


def _network_digits(values: Values) -> float:
    return _classification(_network(values, epochs=12), _data("digits", 500))


def _network_cancer(values: Values) -> float:
    return _classification(_network(values, epochs=12), _data("breast_cancer", 400))


def _network(values: Values, epochs: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    hidden = (int(values["width"]),) * int(values["depth"])
    return MLPClassifier(
        hidden,
        activation=str(values["activation"]),
        learning_rate_init=float(values["rate"]),
        alpha=float(values["alpha"]),
        batch_size=int(values["batch"]),
        max_iter=epochs,
        random_state=0,
    )


def _kernel_diabetes(values: Values) -> float:
    from sklearn.svm import SVR

    return _regression(SVR(**values, max_iter=20_000), _data("diabetes", 442))


def _ridge_diabetes(values: Values) -> float:
    from sklearn.kernel_ridge import KernelRidge

    return _regression(KernelRidge(**values), _data("diabetes", 442))


def _descent_cancer(values: Values) -> float:
    from sklearn.linear_model import SGDClassifier

    return _classification(SGDClassifier(loss="log_loss", random_state=0, **values), _data("breast_cancer", 569))


def _forest_wine(values: Values) -> float:
    from sklearn.ensemble import RandomForestClassifier

    return _classification(RandomForestClassifier(**values, random_state=0), _data("wine", 178))


def _boosting_cancer(values: Values) -> float:
    from sklearn.ensemble import GradientBoostingClassifier

    return _classification(GradientBoostingClassifier(**values, random_state=0), _data("breast_cancer", 300))


_BOOSTING = (
    *doubles("learning_rate", 0.005, 1.0, log=True),
    Variable("n_estimators", "int", 5, 80),
    Variable("max_depth", "int", 1, 6),
    *doubles("subsample", 0.2, 1.0),
    *doubles("max_features", 0.1, 1.0),
    Variable("min_samples_leaf", "int", 1, 40),
)
_NETWORK = (
    *doubles("rate", 1e-5, 0.3, log=True),
    *doubles("alpha", 1e-6, 10.0, log=True),
    Variable("width", "int", 4, 64, log=True),
    Variable("depth", "int", 1, 3),
    Variable("batch", "discrete", values=("16", "32", "64", "128")),
    Variable("activation", "categorical", values=("relu", "tanh", "logistic")),
)
_TRAININGS: dict[str, dict[str, tuple[Callable[[Values], float], tuple[Variable, ...]]]] = {
    "development": {
        "boosting-diabetes": (_boosting_diabetes, _BOOSTING),
        "network-digits": (_network_digits, _NETWORK),
        "kernel-diabetes": (
            _kernel_diabetes,
            (
                *doubles("C", 1e-3, 1e3, log=True),
                *doubles("gamma", 1e-5, 10.0, log=True),
                *doubles("epsilon", 1e-3, 1.0, log=True),
                *doubles("coef0", 0.0, 2.0),
                Variable("kernel", "categorical", values=("rbf", "poly", "sigmoid", "linear")),
            ),
        ),
        "descent-cancer": (
            _descent_cancer,
            (
                *doubles("alpha", 1e-7, 1.0, log=True),
                *doubles("eta0", 1e-5, 1.0, log=True),
                *doubles("l1_ratio", 0.0, 1.0),
                Variable("max_iter", "int", 6, 60),
                Variable("penalty", "categorical", values=("l1", "l2", "elasticnet")),
                Variable("learning_rate", "categorical", values=("constant", "optimal", "invscaling", "adaptive")),
            ),
        ),
    },
    "final": {
        "forest-wine": (
            _forest_wine,
            (
                Variable("n_estimators", "int", 2, 40),
                Variable("max_depth", "int", 1, 12),
                *doubles("max_features", 0.05, 1.0),
                *doubles("max_samples", 0.2, 1.0),
                Variable("min_samples_leaf", "int", 1, 30),
                Variable("criterion", "categorical", values=("gini", "entropy", "log_loss")),
            ),
        ),
        "network-cancer": (_network_cancer, _NETWORK),
        "ridge-diabetes": (
            _ridge_diabetes,
            (
                *doubles("alpha", 1e-5, 100.0, log=True),
                *doubles("gamma", 1e-5, 10.0, log=True),
                *doubles("coef0", 0.0, 2.0),
                Variable("degree", "int", 1, 5),
                Variable("kernel", "categorical", values=("rbf", "poly", "sigmoid", "laplacian")),
            ),
        ),
        "boosting-cancer": (_boosting_cancer, _BOOSTING),
    },
}


_HISTOGRAM = (
    *doubles("learning_rate", 0.005, 1.0, log=True),
    Variable("max_iter", "int", 5, 40, log=True),
    Variable("max_leaf_nodes", "int", 2, 64, log=True),
    Variable("max_depth", "int", 1, 12),
    Variable("min_samples_leaf", "int", 1, 60, log=True),
    *doubles("l2_regularization", 1e-4, 100.0, log=True),
    *doubles("max_features", 0.1, 1.0),
    Variable("max_bins", "int", 4, 255, log=True),
    Variable("interaction_cst", "categorical", values=("all", "pairwise", "no_interactions")),
    *doubles("clip", 0.5, 4.0),
    *(Variable(f"levels{i}", "int", 1, 255, log=True) for i in range(10)),
    *(Variable(f"sign{i}", "discrete", values=("-1", "0", "1")) for i in range(10)),
)


def boosting_30d(split: str) -> Task:
    """Return histogram boosting with 30 options; ten each are the resolution and the monotonicity of a feature."""
    name, is_regression = ("diabetes", True) if split == "many" else ("breast_cancer", False)

    def train(values: Values) -> float:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        x_train, x_test, y_train, y_test = _data(name, 442)
        clip, levels = float(values["clip"]), np.array([float(values[f"levels{i}"]) for i in range(10)])
        x_train, x_test = (np.round(np.clip(x[:, :10] / clip, -1, 1) * levels) for x in (x_train, x_test))
        options: dict[str, object] = {variable.name: values[variable.name] for variable in _HISTOGRAM[:9]}
        options |= {"interaction_cst": None} if options["interaction_cst"] == "all" else {}
        signs = [int(values[f"sign{i}"]) for i in range(10)]
        kind = HistGradientBoostingRegressor if is_regression else HistGradientBoostingClassifier
        model = kind(**options, monotonic_cst=signs, early_stopping=False, random_state=0)
        return (_regression if is_regression else _classification)(model, (x_train, x_test, y_train, y_test))

    return Task(f"boosting-{name}-30d", "training", _HISTOGRAM, _quietly(train), 0.48 if is_regression else 0.1)


def tasks(split: str) -> Iterator[Task]:
    for name, (train, variables) in _TRAININGS[split].items():
        yield Task(name, "training", variables, _quietly(train), OPTIMA[name])


def _quietly(train: Callable[[Values], float]) -> Callable[[Values], float]:
    def evaluate(values: Values) -> float:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                return train(values)
            except (ValueError, FloatingPointError):
                return 10.0  # diverged, at which scikit-learn fails

    return evaluate
