"""What every suggestion service promises where a parameter has a value only next to certain values of another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from katib.model.algorithms import Feature
from katib.model.space import check_assignments
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.services import calls_over
from suggestion_services.algorithms import ENTRIES
from suggestion_services.base.messages import experiment_spec
from tests.support.refusals import INVALID, refusal
from tests.support.suggestion import (
    PATIENCE_SECONDS,
    Service,
    Status,
    a_parameter,
    a_trial,
    an_experiment,
    assignments_of,
    served_here,
)

HALVING = ("hyperband", "bohb", "asha")
"""What they search has a resource, which all trials have."""
ALGORITHMS = [
    entry.info.name
    for entry in ENTRIES
    if Feature.CONDITIONAL_PARAMETERS in entry.info.features and entry.info.name not in HALVING
]
LEARNING = [entry.info.name for entry in ENTRIES if entry.info.name in ALGORITHMS and entry.info.reads_history]
QUICK: dict[str, dict[str, object]] = {
    "bayesianoptimization": {"n_initial_points": 3, "acq_func": "EI"},
    "tpe": {"n_startup_trials": 3},
    "multivariate-tpe": {"n_startup_trials": 3},
    "motpe": {"n_startup_trials": 3},
    "hyperband": {"r_l": 3, "resource_name": "layers", "rounds": 0},
    "bohb": {"r_l": 3, "resource_name": "layers", "n_startup_trials": 3},
    "asha": {"r_l": 3, "resource_name": "layers"},
}


def when(parameter: str, *values: str) -> pb.ParameterCondition:
    return pb.ParameterCondition(parameter=parameter, values=values)


def experiment_for(algorithm: str, **fields: object) -> pb.Experiment:
    """Return an experiment with a child of a child that stands before its parent, and a number that decides."""
    parameters = [
        a_parameter("nesterov", pb.CATEGORICAL, list=["yes", "no"]),
        a_parameter("optimizer", pb.CATEGORICAL, list=["adam", "sgd", "none"]),
        a_parameter("momentum", pb.DISCRETE, list=["0", "0.5", "0.9"]),
        a_parameter("layers", pb.INT, min="1", max="3"),
        a_parameter("second", pb.INT, min="8", max="64", step="8"),
    ]
    parameters[0].when.CopyFrom(when("momentum", "0.50", "0.9"))
    parameters[2].when.CopyFrom(when("optimizer", "sgd"))
    parameters[4].when.CopyFrom(when("layers", "2", "3"))
    settings = {"random_state": 7, **QUICK.get(algorithm, {})}
    return an_experiment(algorithm, parameters, **{"settings": settings, **fields})  # type: ignore[arg-type]  # by name


SIZE = (1 + (1 + 2 * 2) + 1) * (1 + 2 * 8)
"""Of the space above: adam, sgd with its children, none; one layer, or two or three with their second width."""


def a_loss(point: dict[str, str]) -> float:
    """Return a loss of the points above, least where most of them is present."""
    return abs(float(point.get("momentum", 3)) - 0.9) + abs(int(point.get("second", 0)) - 40) / 8


def problems(experiment: pb.Experiment, point: dict[str, str]) -> list[str]:
    """Return what the controller would refuse of a reply."""
    assignments = [pb.ParameterAssignment(name=name, value=value) for name, value in point.items()]
    return list(map(str, check_assignments(experiment_spec(experiment).parameters, assignments)))  # type: ignore[arg-type]  # the same fields


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_absent_parameters_are_absent_and_present_ones_feasible(here: Callable[[str], Service], algorithm: str) -> None:
    experiment = experiment_for(algorithm)

    points = assignments_of(here(algorithm).search(experiment, a_loss, budget=16, parallel=4))

    assert [problem for point in points for problem in problems(experiment, point)] == []
    assert len({frozenset(point) for point in points}) > 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fresh_service_answers_as_the_one_that_saw_the_trials_arrive(
    here: Callable[[str], Service], algorithm: str
) -> None:
    experiment = experiment_for(algorithm)
    trials = here(algorithm).search(experiment, a_loss, budget=8, parallel=2)
    trials[-1].status.Clear()
    trials[-1].status.condition = Status.RUNNING

    with served_here(algorithm) as fresh:
        assert fresh.ask(experiment, trials, count=2) == here(algorithm).ask(experiment, trials, count=2)


@pytest.mark.parametrize("algorithm", LEARNING)
def test_values_of_absent_parameters_in_past_trials_say_nothing(here: Callable[[str], Service], algorithm: str) -> None:
    """They may come from an earlier experiment that had no conditions."""
    experiment = experiment_for(algorithm)
    lean = [a_trial(f"t{i}", {"optimizer": "adam", "layers": "1"}, i) for i in range(6)]
    rich = [
        a_trial(f"t{i}", {"optimizer": "adam", "layers": "1", "momentum": "0.9", "second": str(8 * i)}, i)
        for i in range(6)
    ]

    assert here(algorithm).ask(experiment, lean, count=3) == here(algorithm).ask(experiment, rich, count=3)


@pytest.mark.parametrize(
    "algorithm", [name for name in LEARNING if name != "pbt"]
)  # whose members continue with theirs
def test_points_that_differ_only_in_what_is_absent_are_not_repeated(
    here: Callable[[str], Service], algorithm: str
) -> None:
    parameters = [
        a_parameter("optimizer", pb.CATEGORICAL, list=["adam", "sgd"]),
        a_parameter("momentum", pb.INT, min="1", max="99"),
        a_parameter("decay", pb.INT, min="1", max="9"),
    ]
    for child in parameters[1:]:
        child.when.CopyFrom(when("optimizer", "sgd"))
    experiment = an_experiment(algorithm, parameters, settings={"random_state": 7, **QUICK.get(algorithm, {})})
    running = [a_trial("u", {"optimizer": "adam", "decay": "3"}, condition=Status.RUNNING)]
    ended = [a_trial(f"t{i}", {"optimizer": "adam", "decay": "3"}, 0) for i in range(4)]
    sgd = {"optimizer": "sgd", "decay": "1"}
    ended += [a_trial(f"t{4 + i}", {**sgd, "momentum": str(1 + i)}, 10) for i in range(3)]

    points = [here(algorithm).ask(experiment, [*ended, *running], first=8 + k)[0] for k in range(6)]

    assert {point["optimizer"] for point in points} == {"sgd"}


@pytest.mark.parametrize("seeded", [False, True], ids=["in-order", "shuffled"])
def test_a_grid_ends_after_each_different_point_once(here: Callable[[str], Service], *, seeded: bool) -> None:
    service = here("grid")
    experiment = experiment_for("grid", settings={"random_state": 1} if seeded else {})
    points = service.ask(experiment, count=200)

    assert service.exhausted
    assert len(points) == SIZE
    assert len({tuple(sorted(point.items())) for point in points}) == SIZE


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_service_says_that_it_knows_conditions(here: Callable[[str], Service], algorithm: str) -> None:
    request = pb.ValidateAlgorithmSettingsRequest(experiment=experiment_for(algorithm))
    stub = calls_over(here(algorithm).channel, pb)

    reply = stub.ValidateAlgorithmSettings(request, timeout=PATIENCE_SECONDS)

    assert pb.ValidateAlgorithmSettingsReply.CONDITIONAL_PARAMETERS in reply.features


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wrong_condition_is_refused_with_its_path(here: Callable[[str], Service], algorithm: str) -> None:
    experiment = experiment_for(algorithm)
    experiment.spec.parameter_specs.parameters[2].when.CopyFrom(when("optimiser", "sgd"))

    assert refusal(here(algorithm).validate, experiment) == (
        INVALID,
        (
            'spec.parameters[2].when.parameter: "optimiser" is not a parameter of the search space; '
            "did you mean optimizer? use one of nesterov, optimizer, layers, second"
        ),
    )


def halving_experiment(algorithm: str) -> pb.Experiment:
    """Return the experiment above with a resource, from one to nine epochs."""
    settings = {"r_l": 9, "resource_name": "epochs", "random_state": 7}
    experiment = experiment_for(algorithm, settings=settings)
    experiment.spec.parameter_specs.parameters.append(a_parameter("epochs", pb.INT, min="1", max="9"))
    return experiment


@pytest.mark.parametrize("algorithm", HALVING)
def test_a_trial_goes_on_with_the_parameters_that_it_has(here: Callable[[str], Service], algorithm: str) -> None:
    experiment = halving_experiment(algorithm)

    points = assignments_of(here(algorithm).search(experiment, a_loss, budget=22, parallel=4))
    most = [
        {name: text for name, text in point.items() if name != "epochs"} for point in points if point["epochs"] == "9"
    ]

    assert [problem for point in points for problem in problems(experiment, point)] == []
    assert len({frozenset(point) for point in points}) > 1
    assert most[0] in [{name: t for name, t in p.items() if name != "epochs"} for p in points if p["epochs"] == "1"]


@pytest.mark.parametrize(("child", "parent"), [("epochs", "optimizer"), ("momentum", "epochs")])
@pytest.mark.parametrize("algorithm", HALVING)
def test_the_resource_is_no_part_of_a_condition(
    here: Callable[[str], Service], algorithm: str, child: str, parent: str
) -> None:
    experiment = halving_experiment(algorithm)
    value = "sgd" if parent == "optimizer" else "9"
    [parameter] = [p for p in experiment.spec.parameter_specs.parameters if p.name == child]
    parameter.when.CopyFrom(when(parent, value))

    _, details = refusal(here(algorithm).validate, experiment)
    assert details == "resource_name epochs must not depend on a parameter, nor a parameter on it"
