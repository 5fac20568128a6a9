"""`katib.sklearn.KatibSearchCV` with scikit-learn, and with scikit-learn's own checks of searches."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import katib
from katib.errors import InvalidError

sklearn = pytest.importorskip("sklearn", exc_type=ImportError)

from sklearn.base import BaseEstimator, ClassifierMixin, clone  # noqa: E402 - behind the check
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from katib.sklearn import KatibSearchCV  # noqa: E402

X, Y = load_iris(return_X_y=True)
SPACE = {"C": katib.search.double(0.01, 10, log=True)}
KEPT = {"algorithm": "random", "n_trials": 3, "cv": 2}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory whose engine goes on between two searches."""
    directory = tmp_path_factory.mktemp("katib")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KATIB_HOME", str(directory))
        patch.setattr("katib.sdk.homes.DEFAULT_SERVER", "http://127.0.0.1:1")
        with katib.create("open", SPACE, max_trials=1):
            yield directory


@pytest.fixture(autouse=True)
def _kept(directory: Path) -> None:
    pass


def model() -> Any:
    return LogisticRegression(max_iter=500)


def test_a_search_has_what_searches_of_scikit_learn_have() -> None:
    search = KatibSearchCV(model(), SPACE, return_train_score=True, **KEPT).fit(X, Y)
    results = search.cv_results_

    assert len(results["params"]) == 3
    assert {"mean_test_score", "std_test_score", "rank_test_score", "split1_train_score", "param_C"} <= set(results)
    assert search.best_score_ == max(results["mean_test_score"]) > 0.8
    assert search.best_params_["C"] == search.best_estimator_.C
    assert search.predict(X).shape == Y.shape
    assert search.score(X, Y) > 0.8
    found = katib.open(search.experiment_name_)
    assert [trial.value for trial in found.trials] == list(results["mean_test_score"])
    assert found.best.metrics["fit_time"]
    assert pickle.loads(pickle.dumps(search)).best_params_ == search.best_params_
    assert clone(search).get_params()["n_trials"] == 3


def test_several_scores_are_kept_and_refit_names_the_one_to_maximize() -> None:
    pipeline = make_pipeline(StandardScaler(), model())
    space = {"logisticregression__C": SPACE["C"], "standardscaler__with_mean": [True, False]}
    search = KatibSearchCV(pipeline, space, scoring=["accuracy", "f1_macro"], refit="f1_macro", **KEPT).fit(X, Y)

    found = katib.open(search.experiment_name_)
    assert found.objectives == {"f1_macro": "maximize"}
    assert [trial.metrics["accuracy"] for trial in found.trials] == list(search.cv_results_["mean_test_accuracy"])
    assert isinstance(search.best_params_["standardscaler__with_mean"], bool)


class Growing(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Is as good as its parameter says; each fit takes a moment, which early stopping needs."""

    def __init__(self, quality: float = 0.5) -> None:
        self.quality = quality

    def fit(self, X: Any, y: Any) -> Growing:  # noqa: N803 - scikit-learn's name
        time.sleep(0.1)
        self.classes_, self.count_ = np.unique(y), len(X)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803 - as above
        return np.zeros(len(X))

    def score(self, X: Any, y: Any) -> float:  # noqa: N803 - as above
        return float(self.quality)


@pytest.mark.slow
def test_halving_stops_what_is_not_among_the_best_on_few_samples() -> None:
    qualities = [0.9, 0.5, 0.4, 0.3, 0.2]
    options = {"initial_trials": [{"quality": one} for one in qualities]}
    space = {"quality": katib.search.double(0, 1)}
    search = KatibSearchCV(Growing(), space, n_trials=5, cv=2, algorithm="random", halving=3, options=options).fit(
        np.repeat(X, 3, axis=0), np.repeat(Y, 3)
    )

    states = {trial.parameters["quality"]: trial.state for trial in katib.open(search.experiment_name_).trials}
    resources = search.cv_results_["n_resources"]
    assert states[0.9] == "Succeeded"
    assert list(states.values()).count("EarlyStopped") >= 3
    assert set(resources) <= {25, 75, 225}
    assert list(resources).count(225) == list(states.values()).count("Succeeded")
    assert search.best_params_ == {"quality": 0.9}
    assert search.best_estimator_.count_ == 450


def test_what_is_wrong_is_said_and_a_fit_that_fails_is_a_failed_trial() -> None:
    with pytest.raises(InvalidError, match="halving: 1 is not above 1; use 2, 3 or 4"):
        KatibSearchCV(model(), SPACE, halving=1, **KEPT).fit(X, Y)
    named = KatibSearchCV(model(), SPACE, **KEPT, options={"name": "twice"}).fit(X, Y)
    with pytest.raises(InvalidError, match="experiment twice: it has ended already; choose another name"):
        clone(named).fit(X, Y)

    space = {"solver": ["lbfgs", "unknown"]}
    options = {"initial_trials": [{"solver": "unknown"}, {"solver": "lbfgs"}]}
    with pytest.warns(Warning, match="fits failed"):
        search = KatibSearchCV(model(), space, **{**KEPT, "n_trials": 2}, options=options).fit(X, Y)

    assert [trial.state for trial in katib.open(search.experiment_name_).trials] == ["Failed", "Succeeded"]
    assert search.best_params_ == {"solver": "lbfgs"}


SEEDED = {"settings": {"random_state": 0}}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@parametrize_with_checks(
    [
        KatibSearchCV(
            estimator, {name: [0.1, 1.0]}, algorithm="random", n_trials=2, cv=2, error_score="raise", options=SEEDED
        )
        for estimator, name in ((Ridge(), "alpha"), (LogisticRegression(), "C"))
    ]
)
def test_the_checks_that_scikit_learns_own_searches_pass(estimator: Any, check: Any) -> None:
    if check.func.__name__ == "check_supervised_y_2d":
        pytest.skip("no DataConversionWarning, as scikit-learn knows of its own searches")
    check(estimator)
