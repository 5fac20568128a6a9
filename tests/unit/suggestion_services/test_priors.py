"""Priors in a search: draws and acquisition favour them, until trials contradict them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from random import Random
from statistics import fmean

import numpy as np
import pytest

from katib.model.algorithms import Feature
from katib.model.types import Experiment
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.convert import experiment_message
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.base import PastTrial, Problem, TrialOutcome
from suggestion_services.base.messages import experiment_spec
from suggestion_services.base.priors import PriorGuide
from suggestion_services.gp.beliefs import BeliefTerm
from suggestion_services.gp.encoding import Encoding
from tests.support.experiments import an_experiment
from tests.support.searches import algorithm_for, problem_for, search, texts
from tests.support.suggestion import a_parameter
from tests.support.suggestion import an_experiment as an_experiment_message

ALGORITHMS = [entry.info.name for entry in ENTRIES if Feature.PRIORS in entry.info.features]
HALVING = ("asha", "hyperband", "bohb")
SETTINGS: Mapping[str, dict[str, object]] = {
    name: {"resource_name": "epochs", "r_l": 9, **({"rounds": 9} if name == "hyperband" else {})}
    if name in HALVING
    else {}
    for name in ALGORITHMS
}


def believed(parameter: pb.ParameterSpec, **prior: object) -> pb.ParameterSpec:
    parameter.prior.CopyFrom(pb.ParameterPrior(**prior))  # type: ignore[arg-type]  # fields by name
    return parameter


def space_for(algorithm: str, center: str = "3e-4") -> list[pb.ParameterSpec]:
    """Return a space with a belief of each kind, one of them about a conditional parameter."""
    momentum = believed(a_parameter("momentum"), center="0.9", width="0.05")
    momentum.when.CopyFrom(pb.ParameterCondition(parameter="optimizer", values=["sgd"]))
    epochs = [a_parameter("epochs", pb.INT, min="1", max="9")] if algorithm in HALVING else []
    return [
        momentum,
        believed(a_parameter("lr", min="1e-6", max="1", distribution=pb.LOG_UNIFORM), center=center, factor="3"),
        believed(a_parameter("optimizer", pb.CATEGORICAL, list=["adam", "sgd", "lion"]), weights={"sgd": 3, "adam": 1}),
        believed(a_parameter("layers", pb.INT, min="1", max="30", distribution=pb.LOG_UNIFORM), center="4"),
        a_parameter("dropout"),
        *epochs,
    ]


def away(point: Mapping[str, str], center: float) -> float:
    return abs(math.log10(float(point["lr"])) - math.log10(center))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("center", ["1e-5", "1e-1"])
def test_the_first_trials_lie_near_the_belief_though_not_all(algorithm: str, center: str) -> None:
    first = algorithm_for(algorithm, space_for(algorithm, center), settings=SETTINGS[algorithm])
    distances = [away(point, float(center)) for k in range(9) for point in texts(first, [], first=k)]

    assert sum(distance < 1.2 for distance in distances) >= 3
    assert max(distances) > 1.2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_belief_that_trials_contradict_loses_its_influence(algorithm: str) -> None:
    guided = algorithm_for(algorithm, space_for(algorithm, "1e-5"), settings=SETTINGS[algorithm])

    trials = search(guided, lambda point: away(point, 1e-1), budget=40)

    assert fmean(away(trial.assignments, 1e-5) > 1.5 for trial in trials[30:]) >= 0.7
    assert re.search(r"contradict the priors? of (momentum, )?lr\b", guided.explain())


HISTORIES: Mapping[str, Callable[[int], tuple[TrialOutcome, float]]] = {
    "constants": lambda _: (TrialOutcome.MEASURED, 1.0),
    "failures only": lambda _: (TrialOutcome.BAD, math.nan),
    "running only": lambda _: (TrialOutcome.PENDING, math.nan),
    "every second diverges": lambda i: (
        (TrialOutcome.BAD, math.nan) if i % 2 else (TrialOutcome.MEASURED, 1.0 / (i + 1))
    ),
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_any_history_leads_to_feasible_points_that_depend_on_it_alone(algorithm: str, history: str) -> None:
    random = Random(3)
    drawn = problem_for("random", space_for(algorithm)).space
    points = [drawn.format(drawn.sample(random)) for _ in range(14)]
    outcomes = [HISTORIES[history](i) for i in range(14)]
    trials = [
        PastTrial(f"t{i:02}", outcome, point, value)
        for i, (point, (outcome, value)) in enumerate(zip(points, outcomes, strict=True))
    ]
    trials.append(PastTrial("other space", TrialOutcome.MEASURED, {"x": "1"}, -5.0))

    def asked() -> list[Mapping[str, str]]:
        return texts(
            algorithm_for(algorithm, space_for(algorithm), settings=SETTINGS[algorithm]), trials, first=15, count=3
        )

    found = asked()

    assert len(found) == 3
    assert all(drawn.nearest(point.items()) is not None for point in found)
    assert asked() == found


def test_trust_is_per_parameter() -> None:
    space = problem_for("gp", space_for("gp")).space
    guide = PriorGuide(space)
    point = {"momentum": 0.9, "lr": 0.5, "optimizer": "sgd", "layers": 4, "dropout": 0.5}

    others = [{**point, "lr": 1e-4 * 3**i, "momentum": 0.1, "optimizer": "lion"} for i in range(-3, 4)]
    guide.learn([point] * 3 + others, space.complete)

    assert guide.support["lr"] < 0.1
    assert min(guide.support[name] for name in ("momentum", "optimizer", "layers")) > 1.0
    assert guide.power("momentum", 10, 1.0) > guide.power("momentum", 40, 1.0) > guide.power("lr", 10, 1.0)
    assert guide.agreement == 0.0
    assert guide.words("gp") == (
        "gp favours values near the priors; its best trials agree with the priors of momentum, optimizer, layers "
        "and contradict the prior of lr, which it now nearly ignores"
    )


def test_a_belief_fades_later_while_the_best_trials_support_all() -> None:
    space = problem_for("gp", space_for("gp")).space
    guide = PriorGuide(space)

    guide.learn([{"momentum": 0.9, "lr": 3e-4, "optimizer": "sgd", "layers": 4, "dropout": 0.5}] * 3, space.complete)

    assert 0.0 < guide.agreement <= 1.0
    assert guide.power("lr", 20, 1.0) == guide.power("lr", 40, 1.0) > guide.power("lr", 80, 1.0) > 0.0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("fixed", [0, 1])
def test_the_first_suggestion_has_the_centers(algorithm: str, fixed: int) -> None:
    experiment = an_experiment_message(algorithm, space_for(algorithm), settings=SETTINGS[algorithm])
    for _ in range(fixed):
        values = {p.name: p.prior.center or "adam" for p in experiment.spec.parameter_specs.parameters}
        values |= {"dropout": "0.5", "epochs": "9"}
        assignments = [pb.ParameterAssignment(name=name, value=value) for name, value in values.items()]
        experiment.spec.fixed_assignments.add(assignments=assignments)
    problem = Problem.of(experiment.name, experiment_spec(experiment), find_entry(algorithm).info)

    (point,) = texts(find_entry(algorithm).load()(problem), [], first=fixed)

    assert len(problem.fixed) == fixed
    assert float(point["lr"]) == pytest.approx(3e-4)
    assert point["optimizer"] == "sgd"
    assert point["layers"] == "4"


def test_gp_compares_each_believed_point_of_its_design_with_the_point_itself() -> None:
    lr = believed(a_parameter("lr", min="1e-6", max="1", distribution=pb.LOG_UNIFORM), center="3e-4", factor="3")
    first, second = texts(algorithm_for("gp", [lr], settings=SETTINGS["gp"]), [], first=0, count=2)

    assert float(first["lr"]) == pytest.approx(3e-4)
    assert float(second["lr"]) == pytest.approx(1e-3)  # the middle


def test_an_absent_parameter_is_no_evidence() -> None:
    space = problem_for("gp", space_for("gp")).space
    guide = PriorGuide(space)

    guide.learn([{"lr": 0.5, "optimizer": "adam", "layers": 4, "dropout": 0.5}], space.complete)

    assert guide.support["momentum"] == 1.0


def test_the_gradient_of_the_term_is_that_of_its_values() -> None:
    encoding = Encoding(problem_for("gp", space_for("gp")).space)
    term = BeliefTerm.of(encoding, PriorGuide(problem_for("gp", space_for("gp")).space), 4)
    x = encoding.columns(encoding.from_units(np.random.default_rng(1).random((40, encoding.count))))
    _, slopes = term(x)
    step = 1e-6
    for i in range(encoding.n_numbers):
        moved = np.zeros(x.shape[1])
        moved[i] = step

        assert slopes[:, i] == pytest.approx((term(x + moved)[0] - term(x - moved)[0]) / (2 * step), abs=1e-4)


def test_a_prior_reaches_a_service_as_it_was_written() -> None:
    parameters = [
        {
            "name": "lr",
            "parameterType": "double",
            "feasibleSpace": {"min": "1e-5", "max": "0.1", "distribution": "logUniform"},
            "prior": {"center": "3e-4", "factor": 10},
        },
        {
            "name": "batch",
            "parameterType": "discrete",
            "feasibleSpace": {"list": ["16", "32"]},
            "prior": {"weights": {"32": 3, "16": 0.5}},
        },
        {"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}, "prior": {"center": 0.5}},
    ]
    experiment = Experiment.decode(an_experiment(parameters=parameters))

    sent = experiment_spec(experiment_message(experiment)).parameters

    assert [parameter.prior for parameter in sent] == [parameter.prior for parameter in experiment.spec.parameters]
