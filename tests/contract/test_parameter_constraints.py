"""What every suggestion service promises if parameters have constraints, or trials were chosen by the user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from katib.model.space import check_assignments
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import ENTRIES
from suggestion_services.base.messages import experiment_spec
from tests.support.suggestion import Service, a_parameter, a_trial, an_experiment, assignments_of

ALGORITHMS = [e.info.name for e in ENTRIES if not e.info.early_stopping and not e.info.graph_fields]
QUICK: dict[str, dict[str, object]] = {
    "bayesianoptimization": {"n_initial_points": 3, "acq_func": "EI"},
    "gp": {"n_startup_trials": 3},
    "nsga2": {"population_size": 3},
    "tpe": {"n_startup_trials": 3},
    "multivariate-tpe": {"n_startup_trials": 3},
    "motpe": {"n_startup_trials": 3},
    "pbt": {"n_population": 5},
    "hyperband": {"r_l": 9, "resource_name": "epochs", "rounds": 0},
    "bohb": {"r_l": 9, "resource_name": "epochs", "n_startup_trials": 3},
    "asha": {"r_l": 9, "resource_name": "epochs"},
}
NOT_REPEATING = ("random", "grid", "sobol", "tpe", "multivariate-tpe", "nsga2", "gp", "bayesianoptimization", "cmaes")
CONSTRAINTS = ["depth * width <= 64", "opt != sgd or lr <= 0.01", "momentum >= depth / 10"]


def a_mixed_space(algorithm: str) -> pb.Experiment:
    is_grid = algorithm == "grid"
    parameters = [
        a_parameter("lr", min="0.0001", max="0.1", step="0.0001" if is_grid else ""),
        a_parameter("depth", pb.INT, min="1", max="8"),
        a_parameter("width", pb.DISCRETE, list=["4", "8", "16", "32"]),
        a_parameter("opt", pb.CATEGORICAL, list=["adam", "sgd"]),
        a_parameter("momentum", min="0", max="0.9", step="0.1" if is_grid else ""),
        a_parameter("epochs", pb.INT, min="1", max="9"),
    ]
    parameters[4].when.CopyFrom(pb.ParameterCondition(parameter="opt", values=["sgd"]))
    settings: dict[str, object] = {"random_state": 7, **QUICK.get(algorithm, {})}
    experiment = an_experiment(algorithm, parameters, settings=settings, max_trial_count=24, maximize=True)
    experiment.spec.parameter_constraints.extend(CONSTRAINTS)
    return experiment


def a_size(point: dict[str, str]) -> float:
    """Return a value that is largest beyond the constraints."""
    return float(point["depth"]) * float(point["width"]) + 100 * float(point["lr"])


def problems(experiment: pb.Experiment, point: dict[str, str]) -> list[str]:
    """Return what the controller would refuse of a reply."""
    spec = experiment_spec(experiment)
    assignments = [pb.ParameterAssignment(name=name, value=value) for name, value in point.items()]
    found = check_assignments(spec.parameters, assignments, spec.parameter_constraints)  # type: ignore[arg-type]  # the same fields
    return list(map(str, found))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_suggestion_violates_a_constraint(here: Callable[[str], Service], algorithm: str) -> None:
    experiment = a_mixed_space(algorithm)

    points = assignments_of(here(algorithm).search(experiment, a_size, budget=24, parallel=3))

    assert [problem for point in points for problem in problems(experiment, point)] == []
    assert len(points) == 24


@pytest.mark.parametrize("algorithm", NOT_REPEATING)
def test_a_small_space_is_searched_without_repetition_and_without_chosen_trials(
    here: Callable[[str], Service], algorithm: str
) -> None:
    parameters = [a_parameter(name, pb.INT, min="1", max="4") for name in "ab"]
    settings: dict[str, object] = {"random_state": 7, **QUICK.get(algorithm, {})}
    experiment = an_experiment(algorithm, parameters, settings=settings)
    experiment.spec.parameter_constraints.append("a * b <= 6")
    fixed = {"a": "2", "b": "3"}
    assignments = [pb.ParameterAssignment(name=name, value=value) for name, value in fixed.items()]
    experiment.spec.fixed_assignments.add(assignments=assignments)

    points = [frozenset(p.items()) for p in assignments_of(_searched(here(algorithm), experiment, fixed))]

    allowed = {
        frozenset({"a": str(a), "b": str(b)}.items()) for a in range(1, 5) for b in range(1, 5) if a * b <= 6
    } - {frozenset(fixed.items())}
    assert len(points) == len(set(points)) == len(allowed)
    assert set(points) == allowed


def _searched(service: Service, experiment: pb.Experiment, fixed: dict[str, str]) -> list[pb.Trial]:
    """Return the trials of a search after the chosen one, as the controller runs it: 9 points are left."""
    trials: list[pb.Trial] = []
    for k in range(9):
        history = [a_trial("chosen", fixed, 3.0), *trials]
        point = service.ask(experiment, history, first=k)[0]
        trials.append(a_trial(f"t{k}", point, float(k), labels=service.labels[0]))
    return trials
