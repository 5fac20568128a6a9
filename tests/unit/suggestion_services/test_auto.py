"""What `auto` chooses, why, and that the choice is a function of the problem and its trials."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from katib.model.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    ExperimentSpec,
    FeasibleSpace,
    NasConfig,
    ObjectiveSpec,
    ObjectiveType,
    ParameterSpec,
    ParameterType,
)
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.auto.auto import Auto, facts_of
from suggestion_services.auto.choice import ChoiceInputs, candidates
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.settings import Settings
from tests.support.golden import Golden
from tests.support.suggestion import a_trial, an_experiment, served_here

SMOOTH = ChoiceInputs(n_parameters=4, size=None, budget=60, parallel=3)
NAMES = [entry.info.name for entry in ENTRIES if not entry.info.early_stopping]


def a_double(name: str, *, step: str = "") -> ParameterSpec:
    return ParameterSpec(
        name=name, parameter_type=ParameterType.DOUBLE, feasible_space=FeasibleSpace(min="0", max="1", step=step)
    )


def a_problem(parameters: Sequence[ParameterSpec], *, seed: int | None = 3, **fields: object) -> Problem:
    settings = () if seed is None else (AlgorithmSetting(name="random_state", value=str(seed)),)
    spec = ExperimentSpec(
        parameters=tuple(parameters),
        objective=ObjectiveSpec(type=ObjectiveType.MINIMIZE, objective_metric_name="loss"),
        algorithm=AlgorithmSpec(algorithm_name="auto", algorithm_settings=settings),
        **fields,  # type: ignore[arg-type]  # by name
    )
    return Problem.of("demo", spec, find_entry("auto").info)


def ended(n: int, seconds: float = 60.0) -> list[PastTrial]:
    return [
        PastTrial(f"t{i:05}", TrialOutcome.MEASURED, {"x": repr(i / (n + 1)), "y": "0.5"}, float(i), seconds)
        for i in range(n)
    ]


def chosen(algorithm: Algorithm) -> str:
    return algorithm.explain().split(",")[0].removeprefix("auto uses ")


@pytest.mark.parametrize(
    ("facts", "expected", "reason"),
    [
        pytest.param(SMOOTH, "gp", "4 parameters and a budget of 60 trials", id="continuous"),
        pytest.param(replace(SMOOTH, resource="epochs", size=9), "asha", "epochs is a resource", id="a-resource"),
        pytest.param(replace(SMOOTH, n_objectives=2), "gp", "there are 2 objectives and a model", id="two-objectives"),
        pytest.param(replace(SMOOTH, n_objectives=5), "nsga2", "there are 5 objectives", id="five-objectives"),
        pytest.param(replace(SMOOTH, n_objectives=2, has_earlier=True), "nsga2", "there are 2 objectives", id="warm"),
        pytest.param(replace(SMOOTH, n_objectives=2, size=9), "grid", "all 9", id="two-objectives-covered"),
        pytest.param(replace(SMOOTH, n_constraints=1), "gp", "there is a constraint and a model", id="a-constraint"),
        pytest.param(
            replace(SMOOTH, n_constraints=2, n_ended=1000),
            "nsga2",
            "2 constraints and 1,000 trials",
            id="late-constraints",
        ),
        pytest.param(replace(SMOOTH, size=60), "grid", "all 60 combinations", id="covered-by-the-budget"),
        pytest.param(replace(SMOOTH, size=61), "gp", "4 parameters", id="just-not-covered"),
        pytest.param(replace(SMOOTH, size=50, budget=None), "grid", "all 50 combinations", id="small-without-budget"),
        pytest.param(replace(SMOOTH, size=51, budget=None), "gp", "no limit of trials", id="larger-without-budget"),
        pytest.param(replace(SMOOTH, budget=10, parallel=10), "sobol", "all 10 trials run at once", id="all-at-once"),
        pytest.param(replace(SMOOTH, budget=10, parallel=50), "sobol", "all 10 trials", id="more-than-all-at-once"),
        pytest.param(replace(SMOOTH, budget=10, parallel=9), "gp", "pays", id="nearly-all-at-once"),
        pytest.param(replace(SMOOTH, budget=1, parallel=1), "gp", "a budget of 1 trial", id="a-single-trial"),
        pytest.param(replace(SMOOTH, n_ended=999, seconds=60), "gp", "pays", id="many-long-trials"),
        pytest.param(replace(SMOOTH, stops_early=True), "multivariate-tpe", "early stopping ends", id="early-stopping"),
        pytest.param(replace(SMOOTH, n_ended=1000), "multivariate-tpe", "1,000 trials have ended", id="many-trials"),
        pytest.param(
            replace(SMOOTH, n_ended=200, seconds=0.0),
            "multivariate-tpe",
            "less than a second and 3 run",
            id="fast-trials",
        ),
        pytest.param(
            replace(SMOOTH, n_ended=19, seconds=0.0, parallel=99, budget=500), "gp", "pays", id="too-few-to-time"
        ),
        pytest.param(replace(SMOOTH, n_parameters=101), "tpe", "101 parameters are too many", id="many-parameters"),
        pytest.param(
            replace(SMOOTH, n_parameters=31, n_ended=1000), "tpe", "1,000 trials", id="many-trials-and-parameters"
        ),
    ],
)
def test_the_choice_follows_the_facts(facts: ChoiceInputs, expected: str, reason: str) -> None:
    choice = next(candidates(facts))

    assert choice.algorithm == expected
    assert reason in choice.reason


@pytest.mark.parametrize("n_objectives", [1, 2])
def test_the_last_resort_searches_everything_and_needs_nothing(n_objectives: int) -> None:
    choice = list(candidates(replace(SMOOTH, n_objectives=n_objectives, n_constraints=1)))[-1]

    assert (choice.algorithm, choice.needs) == ("random", ())


def test_with_several_objectives_nothing_is_chosen_that_knows_only_one() -> None:
    names = {choice.algorithm for choice in candidates(replace(SMOOTH, n_objectives=2, n_constraints=1))}

    assert names == {"gp", "nsga2", "random"}


def test_the_explanation_is_one_sentence_with_name_and_reason(golden: Golden) -> None:
    auto = Auto(a_problem([a_double("x", step="0.25"), a_double("y", step="0.5")], max_trial_count=20))
    assert auto.explain() == ""

    list(auto.suggest([], first=0, count=1))

    golden(auto.explain())


@pytest.mark.parametrize("seed", [3, None], ids=["seeded", "unseeded"])
def test_a_space_that_the_budget_covers_is_tried_out_in_a_shuffled_order(seed: int | None) -> None:
    problem = a_problem([a_double("x", step="0.25"), a_double("y", step="0.5")], seed=seed, max_trial_count=20)

    points = list(Auto(problem).suggest([], first=0, count=20))

    natural = [problem.space.at(i) for i in range(15)]
    assert sorted(map(str, points)) == sorted(map(str, natural))
    assert points != natural


def test_all_see_the_trials_of_all_and_the_answer_is_that_of_the_chosen_one() -> None:
    problem = a_problem([a_double("x"), a_double("y")])
    trials = ended(1000)
    auto = Auto(problem)

    points = list(auto.suggest(trials, first=1000, count=2))

    alone = find_entry("multivariate-tpe").load()(problem)
    assert chosen(auto) == "multivariate-tpe"
    assert points == list(alone.suggest(trials, first=1000, count=2))


def test_a_fresh_one_answers_as_one_that_chose_otherwise_before() -> None:
    problem = a_problem([a_double("x"), a_double("y")])
    old = Auto(problem)
    for n in (0, 30, 1000):
        list(old.suggest(ended(n), first=n, count=1))
    trials = ended(40, seconds=0.0)

    assert list(old.suggest(trials, first=40, count=2)) == list(Auto(problem).suggest(trials, first=40, count=2))
    assert old.explain()


def test_durations_are_those_of_own_trials_with_both_times() -> None:
    trials = [*ended(3, seconds=4.0), PastTrial("u", TrialOutcome.BAD, {}), PastTrial("v", TrialOutcome.PENDING, {})]
    earlier = [replace(trial, is_earlier=True, seconds=900.0) for trial in ended(5)]

    facts = facts_of(a_problem([a_double("x")], seed=None), [*earlier, *trials])

    assert (facts.n_ended, facts.seconds) == (4, 4.0)


@pytest.mark.parametrize(("seed", "parallel", "count"), [(3, 1, False), (3, 2, True), (None, 1, True)])
def test_a_seeded_search_of_one_trial_at_a_time_is_not_decided_by_durations(
    seed: int | None, parallel: int, *, count: bool
) -> None:
    problem = a_problem([a_double("x")], seed=seed, parallel_trial_count=parallel)

    assert (facts_of(problem, ended(1, seconds=4.0)).seconds == 4.0) == count


def test_architectures_are_left_to_their_algorithms(golden: Golden) -> None:
    golden(Auto.check(replace(a_problem([a_double("x")]), nas=NasConfig())))


def test_with_a_resource_trials_pause_at_its_rungs(golden: Golden) -> None:
    epochs = ParameterSpec(name="epochs", parameter_type="int", feasible_space=FeasibleSpace(min="1", max="9"))
    problem = a_problem([a_double("x"), epochs])
    named = replace(problem, settings=Settings({"resource_name": "epochs", "r_l": 9.0}))
    auto = Auto(named)

    proposals = list(auto.suggest([], first=0, count=2))

    assert [p.assignments["epochs"] for p in proposals if isinstance(p, Proposal)] == ["1", "1"]
    golden(auto.explain())
    assert Auto.check(problem) == Auto.check_before_start(problem) == Auto.check(named) == ()
    half = replace(problem, settings=Settings({"r_l": 9.0}))
    several = replace(named, directions=(False, True))
    unknown = replace(named, settings=Settings({"resource_name": "steps", "r_l": 9.0}))
    assert [error.origin for error in (*Auto.check(half), *Auto.check(several))] == [
        "setting-missing",
        "resource-objectives",
    ]
    assert [error.origin for error in Auto.check_before_start(unknown)] == ["resource-unknown"]


def test_what_is_not_chosen_is_not_imported() -> None:
    code = """
import sys
from katib.model.types import AlgorithmSpec, ExperimentSpec, FeasibleSpace, ParameterSpec
from suggestion_services.algorithms import find_entry
from suggestion_services.base.algorithm import Problem
values = ParameterSpec(name="c", parameter_type="categorical", feasible_space=FeasibleSpace(list=("a", "b")))
spec = ExperimentSpec(parameters=(values,), algorithm=AlgorithmSpec(algorithm_name="auto"), max_trial_count=9)
entry = find_entry("auto")
points = list(entry.load()(Problem.of("demo", spec, entry.info)).suggest([], first=0, count=9))
print(len(points), sorted({"optuna", "numpy", "scipy", "skopt", "cmaes"} & set(sys.modules)))
"""

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "2 []\n"


def test_the_reply_carries_the_explanation() -> None:
    trials = [a_trial(f"t{i}", {"x": "0.5", "y": "0.5"}, i) for i in range(3)]
    with served_here("auto") as service:
        service.ask(an_experiment("auto"), trials)

    assert service.reply.explanation.startswith("auto uses ")


def test_early_stopping_of_the_experiment_reaches_the_choice() -> None:
    stopping = AlgorithmSpec(algorithm_name="medianstop")

    assert facts_of(a_problem([a_double("x")], early_stopping=stopping), []).stops_early
    assert not facts_of(a_problem([a_double("x")]), []).stops_early
