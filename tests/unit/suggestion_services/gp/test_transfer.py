"""What earlier trials of other experiments are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
import pytest

from katib.model.names import EXPERIMENT_LABEL
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import fit
from suggestion_services.gp.optimize import FloatArray
from suggestion_services.gp.ranks import EarlierRanks
from suggestion_services.gp.transfer import SourceModel, TransferModels, agreement, fit_guided
from suggestion_services.gp.warping import fit_transform
from tests.support.golden import Golden
from tests.support.searches import algorithm_for, problem_for, search, texts
from tests.support.suggestion import Assignments, a_parameter

PARAMETERS = [a_parameter("x"), a_parameter("y"), a_parameter("z")]
LAYOUT = ThetaLayout(np.arange(2), np.arange(0), np.arange(2))
OLD, NEW = np.random.default_rng(3).random((25, 2)), np.random.default_rng(4).random((8, 2))


def bowl(point: Assignments, at: float = 0.3) -> float:
    return sum((float(x) - at) ** 2 for x in point.values())


def earlier(loss: Callable[[Assignments], float], source: str = "old", count: int = 20) -> list[PastTrial]:
    points = texts(algorithm_for("random", PARAMETERS, settings={"random_state": 3}), [], first=0, count=count)
    labels = {EXPERIMENT_LABEL: source}
    return [
        PastTrial(f"{source}-{i:02}", TrialOutcome.MEASURED, p, loss(p), labels=labels, is_earlier=True)
        for i, p in enumerate(points)
    ]


def test_a_source_has_the_weight_with_which_it_ranks_the_trials() -> None:
    scores = np.arange(10.0)

    assert agreement(np.exp(scores), scores) == 1
    assert agreement(-scores, scores) == 0
    assert agreement(scores[:3], scores[:3]) == 0, "three trials say nothing"
    assert 0 < agreement(np.array([1.0, 0, 3, 2, 5, 4, 7, 6, 9, 8]), scores) < 1
    assert agreement(np.array([0.0, 2, 1, 3]), np.arange(4.0)) == 0, "of four trials all have to agree"


def a_source(values: FloatArray, at: FloatArray = OLD) -> SourceModel:
    return SourceModel(fit(at, fit_transform(values)(values), LAYOUT), values)


def learned(sources: Sequence[SourceModel], values: FloatArray) -> TransferModels:
    return fit_guided(NEW[: len(values)], values, fit_transform(values), LAYOUT, sources)


def squares(x: FloatArray, at: float) -> FloatArray:
    return np.asarray(np.sum((x - at) ** 2, axis=1))


def test_three_trials_tell_a_source_whose_optimum_moved_from_one_that_disagrees() -> None:
    values = squares(NEW, 0.45)
    moved, unlike = a_source(7 * squares(OLD, 0.4) - 20), a_source(np.sin(20 * OLD[:, 0]) + OLD[:, 1])

    three, all_of_them = learned([unlike, moved], values[:3]), learned([unlike, moved], values)

    assert three.guided is not None
    assert three.weights[1] > 0.9
    assert sum(three.weights) <= 1
    assert all_of_them.weights[0] < 0.01
    assert all_of_them.guided is not None
    axis = np.linspace(0, 1, 101)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    assert np.allclose(grid[np.argmin(all_of_them.guided.predict(grid)[0])], 0.45, atol=0.03)


def test_without_a_source_that_explains_the_trials_the_model_is_the_usual_one() -> None:
    values = squares(NEW, 0.45)
    unlike, constant, huge = (
        a_source(-squares(OLD, 0.4)),
        a_source(np.ones(len(OLD))),
        a_source(-1e100 * squares(OLD, 0.5)),
    )

    for n in (2, 3, 8):
        found = learned([unlike, constant, huge], values[:n])

        assert found.guided is None
        assert list(found.weights) == [0, 0, 0]
        assert np.array_equal(found.own.theta, fit(NEW[:n], fit_transform(values[:n])(values[:n]), LAYOUT).theta)
    assert learned([a_source(squares(OLD, 0.45))], np.ones(5)).guided is None


def test_slopes_are_those_of_means_and_variances() -> None:
    at = np.random.default_rng(1).random((4, 2))
    model = learned([a_source(np.sin(5 * OLD[:, 0]) + OLD[:, 1])], np.sin(5 * NEW[:, 0]) + 0.9 * NEW[:, 1]).guided
    assert model is not None

    means, variances, by_mean, by_variance = model.predict_with_slopes(at)

    assert np.allclose(model.predict(at), (means, variances))
    for i in range(2):
        step = np.zeros(2)
        step[i] = 1e-6
        up, down = model.predict(at + step), model.predict(at - step)
        assert np.allclose((up[0] - down[0]) / 2e-6, by_mean[:, i], atol=1e-4)
        assert np.allclose((up[1] - down[1]) / 2e-6, by_variance[:, i], atol=1e-4)
    believing = model.believing(at)
    assert np.allclose(believing.predict(at)[0], means, atol=0.02)
    assert np.all(believing.predict(at)[1] < variances)


@pytest.mark.parametrize(
    ("name", "old", "most"),
    [
        pytest.param("gp", lambda p: 100 * bowl(p) - 20, 0.2, id="gp, another scale"),
        pytest.param("gp", lambda p: bowl(p, 0.6) - 20, 1.5, id="gp, another optimum"),
        pytest.param("tpe", lambda p: 100 * bowl(p) - 20, 0.9, id="tpe, another scale"),
        pytest.param("tpe", lambda p: bowl(p, 0.9) - 20, 1.5, id="tpe, another optimum"),
    ],
)
def test_earlier_trials_of_another_scale_help_or_do_little_harm(
    name: str, old: Callable[[Assignments], float], most: float
) -> None:
    """Of values that were pooled as they are, those of the other task would all be better than any of this one."""

    def reached(known: Sequence[PastTrial], seed: int) -> float:
        algorithm, trials = algorithm_for(name, PARAMETERS, settings={"random_state": seed}), list[PastTrial]()
        for k in range(12):
            (point,) = texts(algorithm, [*known, *trials], first=k)
            trials.append(PastTrial(f"t{k:02}", TrialOutcome.MEASURED, point, bowl(point)))
        return min(trial.objective for trial in trials)

    known = earlier(old)
    with_them, without = ([reached(some, seed) for seed in range(3)] for some in (known, ()))

    assert median(with_them) < most * median(without)


def test_gp_says_from_what_it_learns_and_forgets_a_source_that_disagrees(golden: Golden) -> None:
    known = [*earlier(bowl, "alike"), *earlier(lambda p: -bowl(p), "unlike"), *earlier(bowl, "", count=5)]
    algorithm = algorithm_for("gp", PARAMETERS, settings={"random_state": 1})
    own = search(algorithm_for("random", PARAMETERS, settings={"random_state": 9}), bowl, budget=11)

    texts(algorithm, [*known, *own[:8]], first=8)

    golden(algorithm.explain())
    (next_one,) = texts(algorithm, [*known, *own], first=11)
    golden(algorithm.explain())
    assert [next_one] == texts(algorithm_for("gp", PARAMETERS, settings={"random_state": 1}), own, first=11)


def test_a_source_that_explains_the_first_points_chooses_the_next_and_others_cost_nothing() -> None:
    alike, unlike = earlier(lambda p: 9 * bowl(p) - 5, "alike"), earlier(lambda p: -bowl(p), "unlike", 21)
    settings = {"random_state": 1}
    own = search(algorithm_for("gp", PARAMETERS, settings=settings), bowl, budget=8)

    def suggested(known: Sequence[PastTrial], k: int) -> Assignments:
        (point,) = texts(algorithm_for("gp", PARAMETERS, settings=settings), [*known, *own[:k]], first=k)
        return point

    assert [suggested(unlike, k) for k in range(8)] == [trial.assignments for trial in own]
    assert [suggested([*unlike, *alike], k) for k in range(3)] == [trial.assignments for trial in own[:3]]
    assert bowl(suggested([*unlike, *alike], 3)) < 0.02


def test_ranks_count_once_they_agree_take_the_values_of_this_experiment_and_thin_as_it_grows() -> None:
    known = earlier(lambda p: 100 * bowl(p) - 20)
    ranks = EarlierRanks(problem_for("tpe", PARAMETERS))
    own = search(algorithm_for("random", PARAMETERS, settings={"random_state": 9}), bowl, budget=30)

    at_first, sooner, later = ranks.values(known), ranks.values([*known, *own[:10]]), ranks.values([*known, *own])

    assert not at_first
    assert 0 < len(later) < len(sooner) <= 10
    values = [trial.objective for trial in own]
    assert later[min(known, key=lambda trial: trial.objective).name] == min(later.values()) == min(values)
    assert max(later.values()) <= max(values)
    assert all(map(math.isfinite, later.values()))
    assert ranks.values([*earlier(lambda p: -bowl(p), "unlike"), *own]) == {}
    assert ranks.weights == {"unlike": 0}


def test_tpe_tries_the_best_of_each_source_and_is_its_own_search_beside_one_that_disagrees(golden: Golden) -> None:
    unlike, failed = earlier(lambda p: -bowl(p), "unlike"), {"x": "0.5", "y": "0.5", "z": "0.5"}
    labels = {EXPERIMENT_LABEL: "unlike"}
    unlike.append(PastTrial("unlike-bad", TrialOutcome.BAD, failed, labels=labels, is_earlier=True))
    own = search(algorithm_for("random", PARAMETERS, settings={"random_state": 9}), bowl, budget=15)
    tpe = algorithm_for("tpe", PARAMETERS, settings={"random_state": 1})

    first, second = texts(tpe, [*earlier(bowl), *unlike], first=0, count=2)
    third = texts(tpe, [*unlike, *own], first=15)

    assert first == min(earlier(bowl), key=lambda trial: trial.objective).assignments
    assert second == max(unlike[:-1], key=lambda trial: bowl(trial.assignments)).assignments
    assert third == texts(algorithm_for("tpe", PARAMETERS, settings={"random_state": 1}), own, first=15)
    golden(tpe.explain())
