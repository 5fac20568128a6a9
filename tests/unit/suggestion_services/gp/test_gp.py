"""The algorithm as a whole: what it makes of histories of every kind, and that it finds what it is made to find."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest

from katib.model.types import MetricConstraint
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import find_entry
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.gp.gp import GaussianProcess
from tests.support.golden import Golden
from tests.support.searches import ZOO, Animal, algorithm_for, problem_for, search, texts
from tests.support.suggestion import Assignments, a_parameter
from tests.unit.suggestion_services.test_race import losses

SEEDED = {"random_state": 1}


def bowl(point: Assignments) -> float:
    return sum((float(x) - 0.3) ** 2 for x in point.values())


def measured(points: list[Assignments], loss: Callable[[Assignments], float] = bowl) -> list[PastTrial]:
    return [PastTrial(f"t{i:05}", TrialOutcome.MEASURED, point, loss(point)) for i, point in enumerate(points)]


@pytest.mark.slow
@pytest.mark.parametrize("animal", ZOO, ids=lambda a: a.name)
def test_the_race_against_forty_random_searches_is_won(animal: Animal) -> None:
    (ours,) = losses("gp", animal, budget=40, seeds=range(1))

    assert ours < min(losses("random", animal, budget=40, seeds=range(100, 140)))


def test_an_object_that_saw_the_search_and_a_new_one_answer_alike() -> None:
    parameters = [a_parameter("x"), a_parameter("y")]
    old = algorithm_for("gp", parameters, settings=SEEDED)
    trials = search(old, bowl, budget=12)

    assert texts(old, trials, first=12, count=2) == texts(
        algorithm_for("gp", parameters, settings=SEEDED), trials, first=12, count=2
    )


def test_the_first_suggestion_is_the_middle_and_the_design_has_as_many_points_as_it_is_told() -> None:
    algorithm = algorithm_for("gp", settings={"n_startup_trials": 3, **SEEDED})

    points = texts(algorithm, [], first=0, count=3)

    assert points[0] == {"x": "0.5", "y": "0.5"}
    assert len({point["x"] for point in points}) == 3


@pytest.mark.parametrize("n_startup_trials", [0, 1])
def test_a_tiny_design_still_waits_for_values(n_startup_trials: int) -> None:
    algorithm = algorithm_for("gp", settings={"n_startup_trials": n_startup_trials, **SEEDED})

    assert len(search(algorithm, bowl, budget=5)) == 5


def test_points_of_one_request_and_beside_running_trials_are_apart() -> None:
    algorithm = algorithm_for("gp", settings=SEEDED)
    trials = search(algorithm, bowl, budget=8)

    points = [(float(p["x"]), float(p["y"])) for p in texts(algorithm, trials, first=8, count=6)]

    assert min(math.dist(p, q) for i, p in enumerate(points) for q in points[:i]) > 1e-4


@pytest.mark.slow
def test_a_batch_after_convergence_does_not_lie_in_one_place() -> None:
    """Of eight points, all were within 0.004 of each other."""
    algorithm = algorithm_for("gp", settings=SEEDED)
    trials = search(algorithm, bowl, budget=32)

    points = [(float(p["x"]), float(p["y"])) for p in texts(algorithm, trials, first=32, count=8)]
    nearest = sorted(math.dist(p, points[0]) for p in points)

    assert nearest[3] < 0.05
    assert nearest[4] > 0.01
    assert nearest[-1] > 0.1


def test_bad_trials_push_away() -> None:
    """Half of the space fails: fewer of the later trials go there than the eight that chance would send."""
    algorithm = algorithm_for("gp", settings=SEEDED)

    trials = search(algorithm, lambda p: math.nan if float(p["x"]) > 0.5 else -float(p["y"]), budget=24)

    assert sum(trial.outcome is TrialOutcome.BAD for trial in trials[8:]) <= 6


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["minimize", "maximize"])
def test_noise_is_told_with_the_trial_that_is_best_without_it(sign: float) -> None:
    draws = random.Random(0)
    points = [{"x": repr(draws.random()), "y": repr(draws.random())} for _ in range(40)]
    exact = measured(points, lambda point: sign * bowl(point))
    noisy = [replace(trial, objective=trial.objective + draws.gauss(0, 0.1)) for trial in exact]

    def told(trials: list[PastTrial]) -> str:
        algorithm = find_entry("gp").load()(replace(problem_for("gp", settings=SEEDED), maximize=sign < 0))
        texts(algorithm, trials, first=40)
        return algorithm.explain()

    assert told(exact) == ""
    deviation, name = re.findall(r"about (\S+); without it, (\S+) is", told(noisy))[0]
    assert 0.05 < float(deviation) < 0.2
    assert bowl(points[int(name[1:])]) < 0.05


def test_failures_by_chance_do_not_keep_the_search_from_the_optimum() -> None:
    chance = random.Random(4)

    trials = search(
        algorithm_for("gp", settings=SEEDED), lambda p: math.nan if chance.random() < 0.2 else bowl(p), budget=30
    )

    assert sum(trial.outcome is TrialOutcome.BAD for trial in trials) > 2
    assert min(t.objective for t in trials if t.outcome is TrialOutcome.MEASURED) < 1e-4


@pytest.mark.parametrize(
    "outcome", [TrialOutcome.BAD, TrialOutcome.SILENT, TrialOutcome.PENDING], ids=lambda o: o.value
)
def test_only_trials_without_values_get_a_design(outcome: TrialOutcome) -> None:
    algorithm = algorithm_for("gp", settings=SEEDED)
    trials = [PastTrial(f"t{i}", outcome, p) for i, p in enumerate(texts(algorithm, [], first=0, count=8))]

    points = texts(algorithm, trials, first=8, count=3)

    assert len({tuple(p.values()) for p in points} | {tuple(t.assignments.values()) for t in trials}) == 11


@pytest.mark.parametrize(
    "outcome", [TrialOutcome.BAD, TrialOutcome.SILENT, TrialOutcome.PENDING, TrialOutcome.MEASURED]
)
def test_no_point_is_suggested_again_while_there_are_others(outcome: TrialOutcome) -> None:
    algorithm = algorithm_for("gp", [a_parameter("i", pb.INT, min="1", max="12")], settings=SEEDED)
    trials = [PastTrial(f"t{i:02}", TrialOutcome.MEASURED, {"i": str(i)}, float(i)) for i in (2, 5, 9)]
    for k in range(3, 12):
        (point,) = texts(algorithm, trials, first=k)
        trials.append(PastTrial(f"t{k:02}", outcome, point, 1.0 if outcome is TrialOutcome.MEASURED else math.nan))

    assert sorted(int(t.assignments["i"]) for t in trials) == list(range(1, 13))
    assert len(texts(algorithm, trials, first=12)) == 1


def test_duplicates_and_equal_values_are_survived() -> None:
    algorithm = algorithm_for("gp", settings=SEEDED)
    same = [PastTrial(f"t{i}", TrialOutcome.MEASURED, {"x": "0.5", "y": "0.5"}, 1.0) for i in range(9)]

    (point,) = texts(algorithm, same, first=9)

    assert point != {"x": "0.5", "y": "0.5"}


def test_values_of_any_size_are_survived() -> None:
    algorithm = algorithm_for("gp", settings=SEEDED)
    points = texts(algorithm_for("random", settings=SEEDED), [], first=0, count=6)
    for huge in (1.7e308, -1.7e308, 5e-324):
        trials = [*measured(points), PastTrial("u", TrialOutcome.MEASURED, {"x": "0.1", "y": "0.9"}, huge)]

        assert len(texts(algorithm, trials, first=7)) == 1


def constrained() -> GaussianProcess:
    constraint = MetricConstraint(metric_name="size", max=1)
    return GaussianProcess(replace(problem_for("gp", settings=SEEDED), constraints=(constraint,)))


def test_the_best_that_keeps_the_constraint_is_found() -> None:
    """The least loss without the constraint is far outside of it."""
    algorithm, trials = constrained(), list[PastTrial]()
    for k in range(25):
        (point,) = texts(algorithm, trials, first=k)
        x, y = float(point["x"]), float(point["y"])
        violations = (max(0.0, x + y - 0.8),)
        trials.append(PastTrial(f"t{k:05}", TrialOutcome.MEASURED, point, -x - 0.5 * y, violations=violations))

    assert min(t.objective for t in trials if t.is_feasible) < -0.75  # the optimum is -0.8
    assert median(max(t.violations) for t in trials[8:]) < 0.2


def test_an_optimum_on_the_bound_is_approached_while_most_trials_are_feasible() -> None:
    """The loss falls towards the corner; a quarter of a disc around the origin is feasible."""
    algorithm, trials = constrained(), list[PastTrial]()
    for k in range(25):
        (point,) = texts(algorithm, trials, first=k)
        x, y = float(point["x"]), float(point["y"])
        violations = (x * x + y * y - 0.6,)
        trials.append(PastTrial(f"t{k:05}", TrialOutcome.MEASURED, point, -x - y, violations=violations))

    assert min(t.objective for t in trials if t.is_feasible) < -math.sqrt(1.2) + 1e-4
    assert sum(t.is_feasible for t in trials) >= 15


def test_while_nothing_keeps_the_constraint_only_that_is_sought() -> None:
    algorithm, trials = constrained(), list[PastTrial]()
    for k in range(20):
        (point,) = texts(algorithm, trials, first=k)
        x, y = float(point["x"]), float(point["y"])
        violations = (max(0.0, math.hypot(x - 0.9, y - 0.1) - 0.1),)
        trials.append(PastTrial(f"t{k:05}", TrialOutcome.MEASURED, point, x, violations=violations))

    assert any(t.is_feasible for t in trials)


def test_a_constraint_that_was_never_read_changes_nothing_but_survives() -> None:
    algorithm = constrained()
    points = texts(algorithm_for("random", settings=SEEDED), [], first=0, count=6)
    for violations in ((), (math.nan,), (0.0, 1.0)):
        trials = [
            PastTrial(f"t{i}", TrialOutcome.MEASURED, p, bowl(p), violations=violations) for i, p in enumerate(points)
        ]

        assert len(texts(algorithm, trials, first=6)) == 1


def test_noise_is_not_told_if_no_trial_is_known_to_be_feasible() -> None:
    draws, algorithm = random.Random(0), constrained()
    points = [{"x": repr(draws.random()), "y": repr(draws.random())} for _ in range(40)]
    noisy = measured(points, lambda point: bowl(point) + draws.gauss(0, 0.1))

    assert len(texts(algorithm, [replace(trial, violations=(math.nan,)) for trial in noisy], first=40)) == 1
    assert algorithm.explain() == ""


def test_where_trials_take_longer_is_searched_less_and_equal_or_unknown_durations_change_nothing() -> None:
    """Through `auto`, which hands its setting on."""

    def searched(seconds: Callable[[float], float], *, aware: bool) -> list[float]:
        settings = {**SEEDED, "cost_aware": str(aware).lower()}
        algorithm, trials = algorithm_for("auto", settings=settings), list[PastTrial]()
        for k in range(14):
            (point,) = texts(algorithm, trials, first=k)
            x, y = float(point["x"]), float(point["y"])
            loss = (y - 0.4) ** 2 + 0.05 * (x - 0.5) ** 2
            trials.append(PastTrial(f"t{k:05}", TrialOutcome.MEASURED, point, loss, seconds=seconds(x)))
        assert ("duration to the power of" in algorithm.explain()) is (aware and seconds is varying)
        return [float(trial.assignments["x"]) for trial in trials[5:]]

    varying, same, unknown = (lambda x: 1000**x), (lambda _x: 60.0), (lambda _x: float("nan"))
    without = searched(varying, aware=False)

    assert sum(1000**x for x in searched(varying, aware=True)) < 0.5 * sum(1000**x for x in without)
    assert searched(same, aware=True) == without
    assert searched(unknown, aware=True) == without


def test_a_hundred_parameters_are_searched() -> None:
    algorithm = algorithm_for("gp", [a_parameter(f"x{i}") for i in range(100)], settings=SEEDED)

    trials = search(algorithm, bowl, budget=20)

    assert len({tuple(t.assignments.values()) for t in trials}) == 20
    assert sum(t.objective for t in trials[10:]) < sum(t.objective for t in trials[1:5]) * 2


@pytest.mark.slow
def test_few_trials_suffice_for_many_parameters_that_act_alone() -> None:
    """Fewer trials than a quadratic function of 20 parameters has coefficients, and less than random search needs."""
    parameters = [a_parameter(f"x{i}") for i in range(20)]

    trials = search(algorithm_for("gp", parameters, settings=SEEDED), bowl, budget=60)

    assert min(t.objective for t in trials) < 0.3 * bowl({f"x{i}": "0.5" for i in range(20)})


@pytest.mark.slow
def test_ten_thousand_past_trials_are_answered() -> None:
    parameters = [a_parameter("x"), a_parameter("y"), a_parameter("c", pb.CATEGORICAL, list=["a", "b"])]

    def loss(point: Assignments) -> float:
        return (float(point["x"]) - 0.3) ** 2 + (float(point["y"]) - 0.3) ** 2 + (point["c"] == "b")

    points = texts(algorithm_for("random", parameters, settings=SEEDED), [], first=0, count=10_000)
    algorithm = algorithm_for("gp", parameters, settings=SEEDED)

    for point in texts(algorithm, measured(points, loss), first=10_000, count=2):
        assert loss(point) < 0.02


def test_beside_many_running_trials_the_model_still_chooses() -> None:
    algorithm = algorithm_for("gp", settings=SEEDED)
    points = texts(algorithm_for("random", settings=SEEDED), [], first=0, count=170)
    running = [PastTrial(f"u{i:03}", TrialOutcome.PENDING, point) for i, point in enumerate(points[20:])]

    (point,) = texts(algorithm, [*measured(points[:20]), *running], first=170)

    assert bowl(point) < 0.02


def test_a_thousand_suggestions_at_once_differ() -> None:
    points = texts(algorithm_for("gp", settings=SEEDED), [], first=0, count=1000)

    assert len({tuple(point.values()) for point in points}) == 1000


def test_a_space_of_one_point_has_one_suggestion() -> None:
    algorithm = algorithm_for("gp", [a_parameter("k", pb.CATEGORICAL, list=["only"])], settings=SEEDED)

    assert texts(algorithm, [], first=0, count=2) == [{"k": "only"}] * 2


def test_categories_alone_are_searched() -> None:
    parameters = [a_parameter(f"c{i}", pb.CATEGORICAL, list=list("abcdef")) for i in range(4)]
    algorithm = algorithm_for("gp", parameters, settings=SEEDED)

    trials = search(algorithm, lambda p: sum(abs(ord(v) - ord("b")) ** 0.5 for v in p.values()), budget=40)

    assert min(t.objective for t in trials) == 0.0  # one of 1,296 points


def test_it_declares_what_it_can_do() -> None:
    assert {feature.name for feature in find_entry("gp").info.features} == {
        "CONDITIONAL_PARAMETERS",
        "CONSTRAINTS",
        "EARLIER_TRIALS",
        "PRIORS",
        "SEVERAL_OBJECTIVES",
    }


@pytest.mark.parametrize("sign", [1, -1], ids=["minimize", "maximize"])
def test_several_objectives_are_searched_for_their_front(sign: int) -> None:
    """Of x and 1 - x, both worse by the distance of y from 0.3: all of the front is found, and little beside it."""
    space = [a_parameter("x"), a_parameter("y")]
    problem = replace(problem_for("gp", space, settings=SEEDED), maximize=sign < 0, directions=(sign < 0,) * 2)
    algorithm, trials = find_entry("gp").load()(problem), list[PastTrial]()
    for k in range(25):
        (point,) = texts(algorithm, trials, first=k)
        x, worse = float(point["x"]), (float(point["y"]) - 0.3) ** 2
        values = sign * (x + worse), sign * (1 - x + worse)
        trials.append(PastTrial(f"t{k:05}", TrialOutcome.MEASURED, point, values[0], others=values[1:]))

    late = trials[10:]
    assert sum((float(t.assignments["y"]) - 0.3) ** 2 < 0.01 for t in late) >= 12
    assert {int(4 * min(float(t.assignments["x"]), 0.99)) for t in late} == {0, 1, 2, 3}
    assert algorithm.explain() == ""


def test_with_several_objectives_it_says_that_earlier_trials_teach_nothing(golden: Golden) -> None:
    problem = replace(problem_for("gp", [a_parameter("x")], settings=SEEDED), directions=(False, False))
    algorithm = find_entry("gp").load()(problem)
    earlier = [PastTrial("e", TrialOutcome.MEASURED, {"x": "0.1"}, 1.0, others=(2.0,), is_earlier=True)]

    assert len(texts(algorithm, earlier, first=0)) == 1
    golden(algorithm.explain())
