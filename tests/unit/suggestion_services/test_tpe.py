"""The Parzen estimators: how they see parameters, what they learn, how they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from random import Random
from statistics import fmean

import optuna
import pytest

from benchmarks.several_objectives import PROBLEMS, searched_by_us, share_covered
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import find_entry
from suggestion_services.base import PastTrial, TrialOutcome
from suggestion_services.base.shared_context import quiet
from suggestion_services.tpe.dimensions import dimension_of
from suggestion_services.tpe.tpe import Motpe, best_first, sampler_options
from tests.support.searches import VALLEY, algorithm_for, problem_for, search, texts
from tests.support.suggestion import a_parameter


def valley_history(n: int) -> list[PastTrial]:
    random = Random(2)
    points = [{"x": repr(random.random()), "y": repr(random.random())} for _ in range(n)]
    return [PastTrial(f"t{i:04}", TrialOutcome.MEASURED, point, VALLEY.loss(point)) for i, point in enumerate(points)]


def suggested(name: str, trials: list[PastTrial], count: int = 1) -> list[dict[str, str]]:
    algorithm = algorithm_for(name, settings={"random_state": 3})
    return [point for k in range(count) for point in texts(algorithm, trials, first=len(trials) + k)]


def test_the_joint_model_knows_that_parameters_belong_together_and_the_other_does_not() -> None:
    trials = valley_history(200)
    distances = {
        name: fmean(abs(float(p["x"]) - float(p["y"])) for p in suggested(name, trials, 60))
        for name in ("tpe", "multivariate-tpe")
    }

    assert suggested("tpe", trials) != suggested("multivariate-tpe", trials)
    assert distances["multivariate-tpe"] < 0.9 * distances["tpe"]


@pytest.mark.parametrize("name", ["tpe", "multivariate-tpe"])
def test_a_region_where_trials_fail_is_avoided(name: str) -> None:
    algorithm = algorithm_for(name, [a_parameter("x")], settings={"random_state": 3})

    trials = search(algorithm, lambda p: float("nan") if float(p["x"]) > 0.5 else float(p["x"]) * 7 % 1, budget=60)

    assert (
        sum(trial.outcome is TrialOutcome.BAD for trial in trials[20:]) < 12
    )  # of 40, half of which chance would fail


@pytest.mark.parametrize("name", ["tpe", "multivariate-tpe"])
def test_a_history_of_failures_alone_is_no_obstacle(name: str) -> None:
    trials = [PastTrial(f"t{i}", TrialOutcome.BAD, {"x": repr(i / 20), "y": "0.5"}) for i in range(20)]

    assert len(suggested(name, trials, 3)) == 3


@pytest.mark.parametrize("name", ["tpe", "multivariate-tpe"])
def test_running_trials_push_the_next_ones_away(name: str) -> None:
    settings = {"random_state": 3, "n_startup_trials": 0}
    algorithm = algorithm_for(name, [a_parameter("x")], settings=settings)
    measured = [PastTrial(f"t{i:02}", TrialOutcome.MEASURED, {"x": repr(i / 30)}, abs(i / 30 - 0.5)) for i in range(30)]
    running = [PastTrial(f"u{i}", TrialOutcome.PENDING, {"x": repr(0.47 + i / 100)}) for i in range(7)]

    def near(trials: list[PastTrial]) -> int:
        return sum(abs(float(p["x"]) - 0.5) < 0.03 for k in range(40) for p in texts(algorithm, trials, first=30 + k))

    assert near(measured + running) < near(measured)


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": 0.9},
        {"prior_weight": 50.0},
        {"n_EI_candidates": 1},
        {"n_ei_candidates": 0},
        {"n_startup_trials": 1000},
    ],
    ids=lambda s: next(iter(s)),
)
def test_every_setting_has_its_effect(settings: dict[str, object]) -> None:
    trials = valley_history(60)
    plain, changed = (
        texts(algorithm_for("tpe", settings={"random_state": 3, **more}), trials, first=60) for more in ({}, settings)
    )

    assert plain != changed


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        pytest.param(a_parameter("x", min="1", max="2"), optuna.distributions.FloatDistribution(1, 2), id="uniform"),
        pytest.param(
            a_parameter("x", min="1", max="2", distribution=pb.LOG_UNIFORM),
            optuna.distributions.FloatDistribution(1, 2, log=True),
            id="log",
        ),
        pytest.param(
            a_parameter("x", min="1", max="2", step="0.5"), optuna.distributions.IntDistribution(0, 2), id="step"
        ),
        pytest.param(
            a_parameter("x", pb.INT, min="-5", max="5"), optuna.distributions.IntDistribution(0, 10), id="int"
        ),
        pytest.param(
            a_parameter("x", pb.INT, min="1", max="9", distribution=pb.LOG_UNIFORM),
            optuna.distributions.FloatDistribution(0, 1),
            id="int-log",
        ),
        pytest.param(
            a_parameter("x", min="1", max="2", distribution=pb.NORMAL),
            optuna.distributions.FloatDistribution(0, 1),
            id="normal",
        ),
        pytest.param(
            a_parameter("x", pb.DISCRETE, list=["8", "2", "4"]),
            optuna.distributions.IntDistribution(0, 2),
            id="discrete",
        ),
        pytest.param(
            a_parameter("x", pb.CATEGORICAL, list=["b", "a"]),
            optuna.distributions.CategoricalDistribution(["b", "a"]),
            id="categorical",
        ),
    ],
)
def test_a_parameter_is_shown_to_optuna_as_what_it_is(
    parameter: pb.ParameterSpec, expected: optuna.distributions.BaseDistribution
) -> None:
    (ours,) = problem_for("tpe", [parameter]).space.parameters
    dimension = dimension_of(ours)
    value = ours.from_unit(0.7)

    assert dimension.distribution == expected
    assert dimension.decode(dimension.encode(value)) == pytest.approx(value)


@pytest.mark.parametrize("name", ["tpe", "multivariate-tpe"])
def test_in_a_small_space_no_running_point_is_repeated_while_others_are_free(name: str) -> None:
    parameters = [a_parameter("i", pb.INT, min="1", max="4"), a_parameter("c", pb.CATEGORICAL, list=["a", "b"])]
    algorithm = algorithm_for(name, parameters, settings={"random_state": 3, "n_startup_trials": 5})
    measured = [
        PastTrial(f"t{i:02}", TrialOutcome.MEASURED, {"i": str(i % 4 + 1), "c": "a"}, float(i % 4)) for i in range(12)
    ]
    running = [PastTrial("u", TrialOutcome.PENDING, {"i": "1", "c": "a"})]

    points = texts(algorithm, measured + running, first=13, count=5)

    assert len({tuple(p.values()) for p in points} | {("1", "a")}) == 6


@pytest.mark.parametrize("name", ["tpe", "multivariate-tpe"])
def test_more_requests_than_points_are_answered_with_repetitions(name: str) -> None:
    assert len(texts(algorithm_for(name, [a_parameter("i", pb.INT, min="1", max="2")]), [], first=0, count=5)) == 5


SHAPES = [
    a_parameter("a", min="1e-3", max="1", distribution=pb.LOG_UNIFORM),
    a_parameter("b", pb.INT, min="1", max="9", step="2"),
    a_parameter("c", pb.CATEGORICAL, list=["p", "q", "r"]),
    a_parameter("d", pb.DISCRETE, list=["4", "2", "8"]),
]


MANY = [
    TrialOutcome.PENDING if i % 9 == 0 else TrialOutcome.BAD if i % 7 == 0 else TrialOutcome.MEASURED for i in range(60)
]
FEW = [
    TrialOutcome.PENDING if i % 9 == 0 else TrialOutcome.MEASURED if i % 29 == 0 else TrialOutcome.BAD
    for i in range(60)
]


@pytest.mark.parametrize(
    ("name", "settings"),
    [("tpe", {}), ("tpe", {"gamma": 0.9}), ("multivariate-tpe", {})],
    ids=["tpe", "gamma", "joint"],
)
@pytest.mark.parametrize("maximize", [False, True], ids=["minimize", "maximize"])
@pytest.mark.parametrize("outcomes", [MANY, FEW], ids=["many-measured", "fewer-measured-than-good"])
def test_the_answers_are_those_of_an_ordinary_study_with_the_same_trials(
    name: str, settings: dict[str, object], maximize: bool, outcomes: list[TrialOutcome]
) -> None:
    """Our storage and our shortcuts save time and change nothing, also where values are equal."""
    problem = replace(problem_for(name, SHAPES, settings={"random_state": 3, **settings}), maximize=maximize)
    algorithm = find_entry(name).load()(problem)
    space = algorithm.problem.space
    points = [space.sample(Random(i)) for i in range(60)]
    trials = [
        PastTrial(f"t{i:02}", outcome, space.format(point), float(i * 37 % 60 // 3))
        for i, (outcome, point) in enumerate(zip(outcomes, points, strict=True))
    ]
    dimensions = {p.name: dimension_of(p) for p in space.parameters}
    distributions = {key: dimension.distribution for key, dimension in dimensions.items()}
    options = sampler_options(algorithm.problem.settings, multivariate=name != "tpe")
    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    states = {
        TrialOutcome.PENDING: optuna.trial.TrialState.RUNNING,
        TrialOutcome.BAD: optuna.trial.TrialState.PRUNED,
        TrialOutcome.MEASURED: optuna.trial.TrialState.COMPLETE,
    }
    for trial, point in zip(trials, points, strict=True):
        study.add_trial(
            optuna.trial.create_trial(
                state=states[trial.outcome],
                value=trial.objective if trial.outcome is TrialOutcome.MEASURED else None,
                params={key: dimensions[key].encode(value) for key, value in point.items()},
                distributions=distributions,
            )
        )

    expected = []
    for k in range(60, 63):
        seed = algorithm.problem.random(k).getrandbits(32)
        with quiet:  # gamma leaves Optuna in version 6
            study.sampler = optuna.samplers.TPESampler(**options, seed=seed)
        asked = study.ask(distributions).params
        expected.append({key: dimensions[key].decode(value) for key, value in asked.items()})

    assert list(algorithm.suggest(trials, first=60, count=3)) == expected


@pytest.mark.parametrize("name", ["tpe", "multivariate-tpe"])
def test_conditions_help_a_search_that_knows_them(name: str) -> None:
    """Four branches with three parameters each: without conditions, every model has the noise of nine idle ones."""
    optimum = {"a": (0.2, 0.7, 0.5), "b": (0.9, 0.1, 0.3), "c": (0.5, 0.5, 0.9), "d": (0.3, 0.3, 0.3)}
    base = {"a": 0.1, "b": 0.05, "c": 0.0, "d": 0.2}

    def loss(point: Mapping[str, str]) -> float:
        branch = point["branch"]
        return base[branch] + sum((float(point[f"{branch}{i}"]) - x) ** 2 for i, x in enumerate(optimum[branch]))

    def best(seed: int, *, conditional: bool) -> float:
        parameters = [a_parameter("branch", pb.CATEGORICAL, list=list("abcd"))]
        for branch, i in product("abcd", range(3)):
            parameters.append(a_parameter(f"{branch}{i}"))
            if conditional:
                parameters[-1].when.CopyFrom(pb.ParameterCondition(parameter="branch", values=[branch]))
        trials = search(algorithm_for(name, parameters, settings={"random_state": seed}), loss, budget=40)
        return min(trial.objective for trial in trials)

    ours = [best(seed, conditional=True) for seed in range(4)]
    flat = [best(seed, conditional=False) for seed in range(4)]

    assert fmean(ours) < fmean(flat)


def test_a_branch_that_no_trial_has_seen_is_no_obstacle() -> None:
    """With a parent of one value, of which no model is made, and a parent that is a child."""
    parameters = [
        a_parameter("only", pb.CATEGORICAL, list=["on"]),
        a_parameter("second", pb.INT, min="1", max="1"),
        a_parameter("third", pb.CATEGORICAL, list=["a", "b"]),
        a_parameter("x"),
    ]
    for child, parent, value in ((1, "only", "on"), (2, "second", "1"), (3, "third", "b")):
        parameters[child].when.CopyFrom(pb.ParameterCondition(parameter=parent, values=[value]))
    trials = [
        PastTrial(f"t{i:02}", TrialOutcome.MEASURED, {"only": "on", "second": "1", "third": "a"}, float(i))
        for i in range(20)
    ]
    for name in ("tpe", "multivariate-tpe"):
        algorithm = algorithm_for(name, parameters, settings={"random_state": 3})
        points = [point for k in range(40) for point in texts(algorithm, trials, first=20 + k)]

        assert {tuple(point) for point in points} == {("only", "second", "third", "x")}  # nothing is known of `b`


def test_good_trials_of_several_objectives_are_front_after_front_and_the_last_one_is_covered() -> None:
    first, second = [(0.0, 0.5), (0.5, 0.0)], [(0.1, 2.0), (0.9, 0.9), (0.95, 0.85), (2.0, 0.1)]
    points = [*second, (3.0, 3.0), *first]

    chosen = [points[i] for i in best_first(points, 5)]

    assert set(chosen[:2]) == set(first)
    assert {(0.1, 2.0), (2.0, 0.1)} < set(chosen[2:5]) < set(second)
    assert sorted(chosen) == sorted(points)


def test_each_of_several_objectives_has_its_direction() -> None:
    """Both want what is small in one parameter and large in the other; then both want the opposite."""

    def middle(*directions: bool) -> dict[str, float]:
        made = replace(problem_for("motpe", [a_parameter("x"), a_parameter("y")]), directions=directions)
        trials: list[PastTrial] = []
        for k in range(60):
            (point,) = Motpe(made).suggest(trials, first=k, count=1)
            x, y = float(point["x"]), float(point["y"])
            text = made.space.format(point)
            trials.append(PastTrial(f"t{k:03}", TrialOutcome.MEASURED, text, x - y, others=((x - y) ** 3,)))
        return {name: sum(float(t.assignments[name]) for t in trials[20:]) / 40 for name in ("x", "y")}

    down, up = middle(False, False), middle(True, True)

    assert down["x"] < 0.4
    assert down["y"] > 0.6
    assert up["y"] < 0.4
    assert up["x"] > 0.6


@pytest.mark.slow
def test_several_objectives_are_covered_much_better_than_by_chance() -> None:
    for problem in (one for one in PROBLEMS if one.name in ("ZDT1", "ZDT3")):
        ours, chance = (
            share_covered(problem, searched_by_us(problem, name, seed=1, budget=150, parallel=2))
            for name in ("motpe", "random")
        )

        assert ours > 0.15 + chance
