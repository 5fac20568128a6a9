"""What Katib's own tests of its services ask, asked of ours."""

from __future__ import annotations

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from tests.support.refusals import INVALID, refusal
from tests.support.suggestion import a_parameter, a_trial, an_experiment, served_here

SQUARE = [a_parameter(name, pb.INT, min="1", max="5") for name in ("a", "b")]
KINDS = [
    a_parameter("param-1", pb.INT, min="1", max="5", distribution=pb.UNIFORM),
    a_parameter("param-2", pb.INT, min="1", max="5", step="2", distribution=pb.LOG_UNIFORM),
    a_parameter("param-3", pb.CATEGORICAL, list=["cat1", "cat2", "cat3"]),
    a_parameter("param-4", pb.DISCRETE, list=["3", "2", "6"]),
    a_parameter("param-5", min="1", max="5", step="0.5", distribution=pb.NORMAL),
    a_parameter("param-6", min="1", max="5", step="0.5", distribution=pb.LOG_NORMAL),
]


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(an_experiment("tpe", SQUARE, settings={"n_startup_trials": -1}), id="startup-below-zero"),
        pytest.param(an_experiment("tpe", SQUARE, settings={"n_ei_candidate": 24}), id="misspelt"),
        pytest.param(an_experiment("tpe", SQUARE, settings={"random_state": -1}), id="seed-below-zero"),
        pytest.param(an_experiment("multivariate-tpe", SQUARE, settings={"gamma": 0.2}), id="setting-of-another"),
        pytest.param(an_experiment("random", SQUARE, settings={"prior_weight": 1}), id="random-has-no-prior"),
        pytest.param(an_experiment("cmaes", SQUARE, settings={"restart_strategy": "invalid"}), id="cmaes-strategy"),
        pytest.param(an_experiment("cmaes", SQUARE, settings={"sigma": -10}), id="cmaes-sigma"),
        pytest.param(an_experiment("cmaes", SQUARE, settings={"random_state": -1}), id="cmaes-seed"),
        pytest.param(an_experiment("cmaes", SQUARE[:1]), id="cmaes-one-parameter"),
        pytest.param(an_experiment("grid", [*SQUARE, a_parameter("x")]), id="grid-without-step"),
        pytest.param(an_experiment("grid", SQUARE, max_trial_count=26), id="grid-26-of-25"),
    ],
)
def test_it_is_refused(experiment: pb.Experiment) -> None:
    with served_here(experiment.spec.algorithm.algorithm_name) as service:
        assert refusal(service.validate, experiment)[0] == INVALID


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(an_experiment("grid", SQUARE[:1], max_trial_count=5), id="grid-5-of-5"),
        pytest.param(an_experiment("grid", SQUARE), id="grid-without-budget"),
        pytest.param(an_experiment("cmaes", SQUARE, settings={"restart_strategy": "ipop"}), id="cmaes-ipop"),
        pytest.param(an_experiment("cmaes", SQUARE, settings={"restart_strategy": "None"}), id="cmaes-none"),
        pytest.param(an_experiment("tpe", SQUARE, settings={"n_startup_trials": 0, "n_ei_candidates": 0}), id="zeros"),
    ],
)
def test_it_is_accepted(experiment: pb.Experiment) -> None:
    with served_here(experiment.spec.algorithm.algorithm_name) as service:
        service.validate(experiment)


@pytest.mark.parametrize(
    "algorithm", ["random", "grid", "tpe", "multivariate-tpe", "bayesianoptimization", "cmaes", "sobol"]
)
def test_the_requested_count_comes_first_without_and_then_with_finished_trials(algorithm: str) -> None:
    experiment = an_experiment(algorithm, KINDS, settings={"random_state": 10}, maximize=True)
    with served_here(algorithm) as service:
        first = service.ask(experiment, count=2)
        trials = [a_trial(f"test-{i}", point, 0.9 + i / 10) for i, point in enumerate(first)]
        second = service.ask(experiment, trials, count=2)

    assert [len(first), len(second)] == [2, 2]
    assert all(len(point) == len(KINDS) for point in first + second)
