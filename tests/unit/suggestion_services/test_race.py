"""What learns must win against what does not, on functions with known optima."""

from __future__ import annotations

from statistics import median

import pytest

from tests.support.notebook import algorithm_for, search
from tests.support.zoo import VALLEY, ZOO, Animal


def losses(algorithm: str, animal: Animal, *, budget: int, seeds: range, **settings: object) -> list[float]:
    """Return the best loss of a search per seed."""
    return [
        min(
            trial.objective
            for trial in search(
                algorithm_for(algorithm, animal.parameters, settings={"random_state": seed, **settings}),
                animal.loss,
                budget=budget,
            )
        )
        for seed in seeds
    ]


@pytest.mark.parametrize("animal", ZOO, ids=lambda a: a.name)
@pytest.mark.parametrize("algorithm", ["tpe", "multivariate-tpe"])
def test_an_estimator_beats_random_search(algorithm: str, animal: Animal) -> None:
    ours, theirs = (losses(name, animal, budget=40, seeds=range(7)) for name in (algorithm, "random"))

    assert median(ours) < median(theirs)


def test_bayesian_optimization_beats_random_search_in_a_narrow_valley() -> None:
    ours = losses("bayesianoptimization", VALLEY, budget=15, seeds=range(3), n_initial_points=6)
    theirs = losses("random", VALLEY, budget=15, seeds=range(3))

    assert median(ours) < median(theirs) / 5


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("animal", ZOO, ids=lambda a: a.name)
def test_bayesian_optimization_beats_random_search_everywhere(animal: Animal) -> None:
    ours = losses("bayesianoptimization", animal, budget=20, seeds=range(5), n_initial_points=6)
    theirs = losses("random", animal, budget=20, seeds=range(5))

    assert median(ours) < median(theirs)
