"""Our algorithms as samplers of Optuna, with Optuna's own tests of samplers."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from katib.errors import InvalidError
from katib.integrations.optuna import Sampler

pytestmark = [pytest.mark.filterwarnings("default")]

SINGLE, SEVERAL = ["cmaes", "multivariate-tpe"], ["gp", "nsga2"]

Make = Callable[[], BaseSampler]


def samplers(names: list[str]) -> list[Make]:
    return [pytest.param(lambda name=name: Sampler(name, seed=0), id=name) for name in names]  # type: ignore[misc]


@pytest.mark.parametrize("sampler", samplers([*SINGLE, *SEVERAL]))
@pytest.mark.slow
class TestBasics(BasicSamplerTestCase):
    """Optuna's own."""


@pytest.mark.parametrize("sampler", samplers([*SINGLE, *SEVERAL]))
@pytest.mark.slow
class TestRelative(RelativeSamplerTestCase):
    """Optuna's own."""


@pytest.mark.parametrize("sampler", samplers(SEVERAL))
@pytest.mark.slow
class TestSeveralObjectives(MultiObjectiveSamplerTestCase):
    """Optuna's own."""


@pytest.mark.parametrize("sampler", samplers(SINGLE))
class TestOneObjective(SingleOnlySamplerTestCase):
    """Optuna's own."""


def objective(trial: optuna.Trial) -> float:
    x, n = trial.suggest_float("x", -5, 5), trial.suggest_int("n", 1, 32, log=True)
    return (x - 2) ** 2 + abs(n - 8) + (trial.suggest_categorical("kind", ["a", None, 1, "1"]) == "1")


def test_a_seed_repeats_a_search_and_a_copy_goes_on_with_it() -> None:
    def searched(split: bool) -> list[float | None]:
        study = optuna.create_study(sampler=Sampler("gp", seed=3))
        study.optimize(objective, n_trials=6)
        if split:
            study.sampler = pickle.loads(pickle.dumps(study.sampler))
        study.optimize(objective, n_trials=6)
        return [trial.value for trial in study.trials]

    assert searched(split=False) == searched(split=True)


@pytest.mark.parametrize("name", ["auto", "cmaes", "grid", "nsga2", "random", "sobol", "tpe"])
def test_every_algorithm_samples(name: str) -> None:
    study = optuna.create_study(sampler=Sampler(name, seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1, step=0.25) + trial.suggest_int("n", 1, 3), n_trials=8)

    assert len(study.trials) == 8


def test_it_finds_what_chance_does_not() -> None:
    def best(sampler: BaseSampler) -> float:
        study = optuna.create_study(sampler=sampler)
        study.optimize(objective, n_trials=25)
        return study.best_value

    assert best(Sampler("gp", seed=0)) < best(optuna.samplers.RandomSampler(seed=0))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"algorithm": "pbt"}, "such as auto"), ({"settings": {"tempo": 1}}, "tempo")],
    ids=["name", "setting"],
)
def test_what_is_wrong_is_said_at_once(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        Sampler(**arguments)  # type: ignore[arg-type]
