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

from scipy import stats  # noqa: E402 - behind the check
from sklearn.base import BaseEstimator, ClassifierMixin, clone  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.model_selection import RandomizedSearchCV, ShuffleSplit  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from katib.sklearn import KatibSearchCV, _SklearnSpace  # noqa: E402
from tests.support.refusals import refused  # noqa: E402

X, Y = load_iris(return_X_y=True)
SPACE = {"C": katib.search.double(0.01, 10, log=True)}
KEPT = {"algorithm": "random", "n_iter": 3, "cv": 2}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory whose engine continues between two searches."""
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
    assert clone(search).get_params()["n_iter"] == 3


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
    options = {"initial_trials": [{"quality": one} for one in [0.9, 0.5, 0.4, 0.3, 0.2]]}
    space = {"quality": katib.search.double(0, 1)}
    search = KatibSearchCV(Growing(), space, n_iter=5, cv=2, algorithm="random", halving=3, options=options).fit(
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


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_what_is_wrong_is_said_and_a_fit_that_fails_is_a_failed_trial() -> None:
    with refused("search-halving"):
        KatibSearchCV(model(), SPACE, halving=1, **KEPT).fit(X, Y)
    named = KatibSearchCV(model(), SPACE, **KEPT, options={"name": "twice"}).fit(X, Y)
    with refused("search-ended"):
        clone(named).fit(X, Y)

    space = {"solver": ["lbfgs", "unknown"]}
    options = {"initial_trials": [{"solver": "unknown"}, {"solver": "lbfgs"}]}
    with pytest.warns(Warning, match="fits failed"):
        search = KatibSearchCV(model(), space, **{**KEPT, "n_iter": 2}, options=options).fit(X, Y)

    assert [trial.state for trial in katib.open(search.experiment_name_).trials] == ["Failed", "Succeeded"]
    assert search.best_params_ == {"solver": "lbfgs"}
    assert list(np.isnan(search.cv_results_["mean_test_score"])) == [True, False]


def of_the_docstring(search: Any) -> Any:
    model = LogisticRegression(solver="saga", tol=1e-2, max_iter=200, random_state=0)
    return search(model, {"C": stats.uniform(loc=0, scale=4), "l1_ratio": [0, 1]}, random_state=0)


def of_the_user_guide(search: Any) -> Any:
    space = {
        "C": stats.expon(scale=100),
        "gamma": stats.expon(scale=0.1),
        "kernel": ["rbf"],
        "class_weight": ["balanced", None],
    }
    named = {"param_distributions": space, "n_iter": 4, "cv": 3, "return_train_score": True, "pre_dispatch": 2}
    return search(SVC(), **named, random_state=np.random.RandomState(1))


def of_several_spaces(search: Any) -> Any:
    C = stats.loguniform(1e-2, 1e2)  # noqa: N806 - the estimator's name
    spaces = [
        {"svc__kernel": ["rbf"], "svc__C": C, "svc__gamma": stats.loguniform(1e-4, 1)},
        {"svc__kernel": ["poly"], "svc__C": C, "svc__degree": stats.randint(2, 5), "s": ["passthrough", None]},
        {"svc": [LogisticRegression(max_iter=500)], "svc__C": stats.norm(3, 0.5)},
    ]
    pipeline = Pipeline([("s", StandardScaler()), ("svc", SVC())])
    scores = {"scoring": ["accuracy", "f1_macro"], "refit": "f1_macro"}
    return search(pipeline, spaces, n_iter=12, cv=2, random_state=3, **scores)


def of_fits_that_fail(search: Any) -> Any:
    return search(SVC(), {"C": [-1, 1, -2, 3]}, n_iter=4, error_score=0, return_train_score=True, random_state=0)


def of_a_score_of_many(search: Any) -> Any:
    def scores(fitted: Any, x: Any, y: Any) -> dict[str, float]:
        return {"one": fitted.score(x, y), "other": 1.0}

    return search(Ridge(), {"alpha": np.logspace(0, 1, 9).astype(int)}, n_iter=3, scoring=scores, refit=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "example", [of_the_docstring, of_the_user_guide, of_several_spaces, of_fits_that_fail, of_a_score_of_many]
)
def test_it_takes_the_place_of_randomized_search(example: Any) -> None:
    theirs, ours = (example(kind).fit(X, Y) for kind in (RandomizedSearchCV, KatibSearchCV))

    assert {key: len(value) for key, value in ours.cv_results_.items()} == {
        key: len(value) for key, value in theirs.cv_results_.items()
    }
    assert set(vars(theirs)) <= set(vars(ours))
    assert {name: type(value) for name, value in theirs.get_params().items()}.items() <= {
        name: type(value) for name, value in ours.get_params().items()
    }.items()
    kept = ("rank_test_score", "mean_test_score", "mean_train_score") if theirs.error_score == 0 else ()
    for key in kept:  # all four candidates of both, in another order
        assert sorted(ours.cv_results_[key]) == pytest.approx(sorted(theirs.cv_results_[key]))
    assert clone(ours).set_params(n_iter=1).n_iter == 1


def test_a_distribution_is_searched_within_its_own_bounds_and_as_it_is_spread() -> None:
    spaces = {
        "uniform": stats.uniform(1, 2),
        "standard": stats.uniform,
        "spread": stats.loguniform(1e-3, 10),
        "whole": stats.randint(2, 5),
        "normal": stats.norm(10, 1),
        "count": stats.poisson(4),
        "moved": stats.loguniform(1, 10, loc=5),
    }
    space = _SklearnSpace(spaces)

    assert {name: (p.type, *p.space.values()) for name, p in space.parameters.items()} == {
        "uniform": ("double", "1.002", "2.998"),
        "standard": ("double", "0.001", "0.999"),
        "spread": ("double", "0.001", "10.0", "logUniform"),
        "whole": ("int", "2", "4"),
        "normal.quantile": ("double", "0.001", "0.999"),
        "count.quantile": ("double", "0.001", "0.999"),
        "moved.quantile": ("double", "0.001", "0.999"),
    }
    for quantile in ("0.001", "0.25", "0.9"):
        values = {name: p.value(quantile) for name, p in space.parameters.items() if name.endswith(".quantile")}
        assert space.candidate(values) == {
            name: spaces[name].ppf(float(quantile)) for name in ("normal", "count", "moved")
        }
    assert isinstance(space.parameters["count.quantile"].value("0.5"), int)


def test_of_several_spaces_a_candidate_has_the_parameters_of_one() -> None:
    own = {"a": [1, 2], "b": katib.search.double(0, 1).when("a", 2)}
    space = _SklearnSpace([{**own, "c": stats.uniform(0, 1)}, {"a": [3, 4], "c": stats.uniform(0, 1)}])

    assert {name: parameter.condition for name, parameter in space.parameters.items()} == {
        "space.number": None,
        "a.1": ("space.number", ("0",)),
        "a.2": ("space.number", ("1",)),
        "b": ("a.1", ("2",)),
        "c": None,
    }
    assert space.candidate({"space.number": 0, "a.1": 2, "b": 0.5, "c": 0.1}) == {"a": 2, "b": 0.5, "c": 0.1}
    assert space.candidate({"space.number": 1, "a.2": 3, "c": 0.1}) == {"a": 3, "c": 0.1}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"C": "rbf"}, r"""param_distributions\["C"\]: 'rbf' is neither a list nor a distribution; write \['rbf'\]"""),
        ({"C": 1}, r"""param_distributions\["C"\]: 1 is neither a list nor a distribution; write \[1\]"""),
        ({"C": [1, "1"]}, r"""param_distributions\["C"\]: 1 and '1' are the same text"""),
        (
            {"C": stats.beta},
            r"""param_distributions\["C"\]: it has no quantile function \(ppf\) of one number; write""",
        ),
        ([{"C": [1]}, 2], r"""param_distributions: it is not a list of search spaces; write"""),
    ],
)
def test_what_cannot_be_searched_is_refused(space: Any, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        KatibSearchCV(SVC(), space, n_iter=1).fit(X, Y)


def test_folds_drawn_at_random_are_the_same_for_all_candidates() -> None:
    same = {"alpha": [1e9, 1e9 + 1]}
    scores = KatibSearchCV(Ridge(), same, n_iter=2, cv=ShuffleSplit(2)).fit(X, Y).cv_results_["split0_test_score"]

    assert scores[0] == pytest.approx(scores[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@parametrize_with_checks(
    [
        KatibSearchCV(
            estimator, {name: [0.1, 1.0]}, algorithm="random", n_iter=2, cv=2, error_score="raise", random_state=0
        )
        for estimator, name in ((Ridge(), "alpha"), (LogisticRegression(), "C"))
    ]
)
def test_the_checks_that_scikit_learns_own_searches_pass(estimator: Any, check: Any) -> None:
    if check.func.__name__ == "check_supervised_y_2d":
        pytest.skip("no DataConversionWarning, as scikit-learn knows of its own searches")
    check(estimator)
