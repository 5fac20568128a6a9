"""What learns must win against what does not, on functions with known optima."""

from __future__ import annotations

from statistics import mean, median

import pytest

from tests.support.searches import ZOO, Animal, algorithm_for, search


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


@pytest.mark.slow
@pytest.mark.parametrize("animal", ZOO, ids=lambda a: a.name)
@pytest.mark.parametrize("algorithm", ["tpe", "multivariate-tpe"])
def test_an_estimator_beats_random_search(algorithm: str, animal: Animal) -> None:
    ours = losses(algorithm, animal, budget=40, seeds=range(5))
    theirs = losses("random", animal, budget=40, seeds=range(25))

    assert median(ours) < median(theirs)


@pytest.mark.slow
def test_bayesian_optimization_beats_random_search() -> None:
    """Over three animals at once, since a search is expensive: two of each, compared with 99 random ones."""
    shares = []
    for animal in (animal for animal in ZOO if animal.name in {"branin", "valley", "learning-rate"}):
        theirs = losses("random", animal, budget=14, seeds=range(100, 199))
        ours = losses("bayesianoptimization", animal, budget=14, seeds=range(2), n_initial_points=6, acq_func="EI")
        shares += [mean(their < our for their in theirs) for our in ours]

    assert mean(shares) < 1 / 4  # 0.07; one draw in fifty of six random searches is below a quarter
