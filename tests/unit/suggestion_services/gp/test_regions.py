"""The region of a search in many parameters: where its box is, and when it restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from suggestion_services.base.algorithm import PastTrial, Proposal, TrialOutcome
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.optimize import FloatArray
from suggestion_services.gp.regions import NUMBER_LABEL, RESTARTS_LABEL, labels_of, restarts_of, trust_region
from tests.support.golden import Golden
from tests.support.searches import algorithm_for, problem_for, texts
from tests.support.suggestion import Assignments, a_parameter

PARAMETERS = [a_parameter(f"x{i}") for i in range(15)]
ENCODING = Encoding(problem_for("gp", PARAMETERS).space)
PATIENCE = 7 * 15
SEEDED = {"random_state": 1}


def stuck(count: int, restarts: int = 0) -> list[PastTrial]:
    """Return trials around a point, of which the first is the best."""
    near = 0.3 + 1e-3 * np.random.default_rng(restarts).uniform(-1, 1, (count, 15))
    return [
        PastTrial(
            f"{restarts}-{k}",
            TrialOutcome.MEASURED,
            {f"x{i}": repr(float(x)) for i, x in enumerate(row)},
            float(k > 0) + k % 7,
            labels=labels_of(1000 * restarts + k, restarts),
        )
        for k, row in enumerate(near)
    ]


def test_a_trust_region_shrinks_as_it_fills_and_is_the_whole_space_where_dimensions_are_few() -> None:
    many = Encoding(problem_for("gp", [a_parameter(f"x{i}") for i in range(30)]).space)
    few = Encoding(problem_for("gp").space)
    center, lengths = np.full(30, 0.5), np.ones(30)
    crowd = 0.5 + 0.02 * np.random.default_rng(0).uniform(-1, 1, (60, 30))

    def side(rows: FloatArray) -> float:
        box = trust_region(many, rows, center, lengths)
        return float((box.high - box.low).max())

    assert side(crowd[:3]) > side(crowd)
    assert trust_region(few, crowd[:, :2], center[:2], lengths[:2]).low == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("outcome", [TrialOutcome.MEASURED, TrialOutcome.BAD])
def test_a_search_restarts_after_too_many_trials_without_improvement_whatever_their_order(
    outcome: TrialOutcome,
) -> None:
    trials = stuck(PATIENCE + 2)
    trials[-1] = replace(trials[-1], outcome=outcome)
    better = PastTrial("better", TrialOutcome.MEASURED, trials[0].assignments, -1.0, labels=labels_of(80, 0))

    def restarts(some: Sequence[PastTrial], *, maximize: bool = False) -> int:
        return restarts_of(ENCODING, some, maximize=maximize)

    assert restarts([]) == restarts(trials[:-1]) == 0
    assert restarts(trials) == restarts(trials[::-1]) == 1
    assert restarts([*trials, better]) == 0
    assert restarts([*trials, replace(better, objective=-1e-5)]) == 1
    assert restarts([*trials, replace(better, violations=(1.0,))]) == 1
    assert restarts([replace(trial, objective=-trial.objective) for trial in trials], maximize=True) == 1
    assert restarts([replace(trial, labels={}) for trial in trials]) == 0
    assert restarts([*trials, *stuck(3, restarts=1)]) == 1
    assert restarts([*trials, *stuck(PATIENCE + 2, restarts=1)]) == 2
    assert restarts([replace(trial, objective=float("nan"), outcome=TrialOutcome.BAD) for trial in trials]) == 0


def test_a_restarted_search_learns_from_its_own_trials_and_says_so(golden: Golden) -> None:
    known = stuck(PATIENCE + 2)
    algorithm = algorithm_for("gp", PARAMETERS, settings=SEEDED)

    def following(trials: Sequence[PastTrial], count: int) -> list[Proposal]:
        found = algorithm_for("gp", PARAMETERS, settings=SEEDED).suggest(trials, first=len(trials), count=count)
        return [one for one in found if isinstance(one, Proposal)]

    def apart(one: Proposal) -> float:
        return max(abs(float(text) - 0.3) for text in one.assignments.values())

    texts(algorithm, known[:-1], first=len(known) - 1)
    golden(algorithm.explain())
    assert max(map(apart, following(known[:-1], 3))) < 0.1

    design = following(known, 6)
    assert [one.labels[RESTARTS_LABEL] for one in design] == ["1"] * 6
    assert [one.labels[NUMBER_LABEL] for one in design] == [str(len(known) + k) for k in range(6)]
    assert min(map(apart, design)) > 0.1

    began = [
        PastTrial(f"b{k}", TrialOutcome.MEASURED, one.assignments, 10.0 + k, labels=one.labels)
        for k, one in enumerate(design)
    ]
    (after,) = following([*known, *began], 1)
    assert following([*began, *known[::-1]], 1) == [after]
    assert apart(after) > 0.1
    texts(algorithm, [*known, *began], first=len(known) + 6)
    golden(algorithm.explain())


def test_values_of_trials_far_from_the_best_do_not_matter_if_a_hundred_are_near() -> None:
    near = stuck(100)
    rows = np.random.default_rng(5).uniform(0.6, 0.9, (10, 15))
    assignments = [{f"x{i}": repr(float(x)) for i, x in enumerate(row)} for row in rows]

    def following(trials: Sequence[PastTrial], values: FloatArray) -> list[Assignments]:
        far = [PastTrial(f"f{k}", TrialOutcome.MEASURED, p, float(values[k])) for k, p in enumerate(assignments)]
        return texts(algorithm_for("gp", PARAMETERS, settings=SEEDED), [*trials, *far], first=110)

    values = np.linspace(20.0, 30.0, 10)
    assert following(near, values) == following(near, values[::-1])
    assert following(near[:50], values) != following(near[:50], values[::-1])


@pytest.mark.parametrize("noisy", [True, False])
def test_if_the_model_finds_noise_a_suggestion_keeps_most_numbers_of_the_best_trial(*, noisy: bool) -> None:
    random = np.random.default_rng(3)
    rows = random.random((40, 15))
    values = random.random(40) if noisy else np.sum((rows - 0.3) ** 2, axis=1)
    points = [{f"x{i}": repr(float(x)) for i, x in enumerate(row)} for row in rows]
    trials = [
        PastTrial(f"t{k}", TrialOutcome.MEASURED, point, float(values[k]), labels=labels_of(k, 0))
        for k, point in enumerate(points)
    ]
    best = points[int(np.argmin(values))]

    for found in texts(algorithm_for("gp", PARAMETERS, settings=SEEDED), trials, first=40, count=3):
        kept = sum(abs(float(found[name]) - float(best[name])) < 1e-9 for name in best)

        assert kept == 11 if noisy else kept < 8
