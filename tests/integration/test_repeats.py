"""Two searches with one seed and different names, one trial at a time: the same proposals through every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import katib
from suggestion_services.algorithms import ENTRIES
from tests.support.cli import katib_here
from tests.support.experiments import a_template, an_experiment

COUNT = 7
HALVING = {"r_l": 9, "resource_name": "n"}
SETTINGS: dict[str, dict[str, Any]] = {
    "asha": HALVING,
    "bayesianoptimization": {"n_initial_points": 3},
    "bohb": {**HALVING, "rounds": 0},
    "gp": {"n_startup_trials": 3},
    "hyperband": {**HALVING, "rounds": 0},
    "nsga2": {"population_size": 3},
    "pbt": {"n_population": 5},
}
SETTINGS["tpe"] = SETTINGS["multivariate-tpe"] = SETTINGS["motpe"] = {"n_startup_trials": 3}
ALGORITHMS = [entry.info.name for entry in ENTRIES if not entry.info.early_stopping and not entry.info.graph_fields]
SPACE = {
    "n": katib.search.int(1, 9),
    "x": katib.search.double(0, 1, step=0.001),
    "c": katib.search.categorical(["a", "b"]),
}

Proposals = list[dict[str, Any]]


def settings_of(algorithm: str, directory: Path) -> dict[str, Any]:
    checkpoints = {"suggestion_trial_dir": str(directory / "checkpoints")} if algorithm == "pbt" else {}
    return {**SETTINGS.get(algorithm, {}), **checkpoints}


def loss(n: int, x: float, c: str) -> int:
    """Return one of few values, so that many trials are equal."""
    return round(2 * x) + n // 4 + (c == "b")


def by_search_cv(name: str, algorithm: str, directory: Path) -> Proposals:
    pytest.importorskip("sklearn", exc_type=ImportError)
    from sklearn.base import BaseEstimator

    from katib.sklearn import KatibSearchCV

    class Model(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
        def __init__(self, n: int = 1, x: float = 0.0, c: str = "a") -> None:
            self.n, self.x, self.c = n, x, c

        def fit(self, X: Any, y: Any) -> Model:  # noqa: N803 - scikit-learn's name
            del X, y
            return self

        def score(self, X: Any, y: Any) -> float:  # noqa: N803 - as above
            del X, y
            return -loss(self.n, self.x, self.c)

    options = {"name": name, "data_dir": directory, "settings": settings_of(algorithm, directory)}
    search = KatibSearchCV(Model(), SPACE, n_iter=COUNT, algorithm=algorithm, random_state=0, cv=2, options=options)
    return list(search.fit([[0], [1]], [0, 1]).cv_results_["params"])


def by_tune(name: str, algorithm: str, directory: Path) -> Proposals:
    settings = {"random_state": 0, **settings_of(algorithm, directory)}
    preload = None if algorithm == "pbt" else ()  # its checkpoints need a job
    budget = {"max_trials": COUNT, "parallel": 1, "data_dir": directory, "verbose": False, "preload": preload}
    result = katib.tune(loss, SPACE, objective="loss", name=name, algorithm=algorithm, settings=settings, **budget)
    return [trial.parameters for trial in result.trials]


def by_command(name: str, algorithm: str, directory: Path) -> Proposals:
    settings = {"random_state": 0, **settings_of(algorithm, directory)}
    names = {one: one for one in SPACE}
    value = "int(3 * ${trialParameters.x}) + int(${trialParameters.n} / 4)"
    command = f"awk 'BEGIN {{print \"loss=\" {value}}}' # ${{trialParameters.c}}"
    document = an_experiment(
        name=name,
        parameters=[parameter.spec(one) for one, parameter in SPACE.items()],
        algorithm={
            "algorithmName": algorithm,
            "algorithmSettings": [{"name": key, "value": str(value)} for key, value in settings.items()],
        },
        trialTemplate=a_template(command, names),
        maxTrialCount=COUNT,
        parallelTrialCount=1,
    )
    file = directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump(document))
    done = katib_here("run", file, cwd=directory)
    assert done.returncode == 0, done.stderr
    return [trial.parameters for trial in katib.open(name, data_dir=directory / ".katib").trials]


CASES = [
    (door, algorithm)
    for door in (by_search_cv, by_tune, by_command)
    for algorithm in ALGORITHMS
    if (door, algorithm) != (by_search_cv, "pbt")  # its checkpoints need a job
]


@pytest.mark.slow
@pytest.mark.parametrize(("door", "algorithm"), CASES, ids=[f"{door.__name__}-{name}" for door, name in CASES])
def test_a_seed_gives_the_same_proposals_under_another_name(
    door: Callable[[str, str, Path], Proposals], algorithm: str, tmp_path: Path
) -> None:
    first, again = (door(name, algorithm, tmp_path) for name in ("one", "other"))

    assert len(first) == COUNT
    assert first == again
