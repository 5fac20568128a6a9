"""What every suggestion service promises where there is much of something, or where it is cut off in the middle."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from katib.model.space import SearchSpace
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.services import calls_over
from suggestion_services.algorithms import ENTRIES
from suggestion_services.base.messages import experiment_spec
from tests.support.suggestion import (
    PATIENCE_SECONDS,
    Assignments,
    Service,
    a_parameter,
    a_trial,
    an_experiment,
    assignments_of,
    served_here,
    start_apart,
)

pytestmark = pytest.mark.slow

INFOS = {e.info.name: e.info for e in ENTRIES if not e.info.early_stopping and not e.info.graph_fields}
ALGORITHMS = list(INFOS)
QUICK: dict[str, dict[str, object]] = {"bayesianoptimization": {"n_initial_points": 2, "acq_func": "EI"}}

SLOW = {"bayesianoptimization": "scikit-optimize fits its model anew for every suggestion"}
"""Algorithms with which large numbers take minutes, and why."""

LEARNING = [name for name, info in INFOS.items() if info.reads_history and name not in SLOW]
HALVING = {"hyperband": {"rounds": 0}, "bohb": {"rounds": 0}, "asha": {}}
"""Algorithms that search a resource, too, and how they never stop."""


def experiment_of(algorithm: str, parameters: list[pb.ParameterSpec], **fields: object) -> pb.Experiment:
    """Return an experiment with a seed, a short random start-up, and what the algorithm demands of every experiment."""
    chosen = {"random_state": 3, **QUICK.get(algorithm, {})}
    if algorithm in HALVING:
        parameters = [*parameters, a_parameter("epochs", pb.INT, min="1", max="9")]
        chosen |= {"r_l": 9, "resource_name": "epochs", **HALVING[algorithm]}
    return an_experiment(algorithm, parameters, **{"settings": chosen, **fields})  # type: ignore[arg-type]  # by name


def assert_feasible(experiment: pb.Experiment, points: list[Assignments]) -> None:
    """Fail unless each point has a value of the space for every parameter, in text that reads back the same."""
    space = SearchSpace.of(experiment_spec(experiment).parameters)
    for point in points:
        assert list(point) == [p.name for p in space.parameters]
        for p in space.parameters:
            assert p.format(p.parse(point[p.name])) == point[p.name]


finite = st.floats(-1e12, 1e12, allow_nan=False).map(repr)
texts = st.lists(st.text("abcABC019_.- é", min_size=1, max_size=6), min_size=1, max_size=5, unique=True)
DISTRIBUTIONS = (pb.DISTRIBUTION_UNSPECIFIED, pb.UNIFORM, pb.LOG_UNIFORM, pb.NORMAL, pb.LOG_NORMAL)


@st.composite
def numeric(draw: st.DrawFn, name: str, kind: int) -> pb.ParameterSpec:
    """Draw a double or an int of any distribution, with or without a step."""
    distribution = draw(st.sampled_from(DISTRIBUTIONS))
    low = 1e-9 if distribution in (pb.LOG_UNIFORM, pb.LOG_NORMAL) else -1e9
    if kind == pb.INT:
        bounds = sorted(draw(st.integers(1 if low > 0 else -(10**9), 10**9)) for _ in range(2))
        step = draw(st.sampled_from(["", "1", str(max((bounds[1] - bounds[0]) // 3, 1))]))
    else:
        bounds = sorted(draw(st.floats(low, 1e9, allow_subnormal=False)) for _ in range(2))  # type: ignore[type-var]
        width = bounds[1] - bounds[0]
        step = draw(st.sampled_from(["", repr(width / 7)])) if width > 1e-6 else ""  # no rounding
    low_text, high_text = map(repr, bounds)
    return a_parameter(name, kind, min=low_text, max=high_text, step=step, distribution=distribution)


@st.composite
def spaces(draw: st.DrawFn) -> list[pb.ParameterSpec]:
    """Draw a space with at least two parameters of numbers, so that every algorithm takes it; see `listed`."""
    kinds = draw(st.lists(st.sampled_from([pb.DOUBLE, pb.INT]), min_size=2, max_size=4))
    found = [draw(numeric(f"n{i}", kind)) for i, kind in enumerate(kinds)]
    if draw(st.booleans()):
        found.append(a_parameter("c", pb.CATEGORICAL, list=draw(texts)))
    if draw(st.booleans()):
        found.append(a_parameter("d", pb.DISCRETE, list=draw(st.lists(finite, min_size=1, max_size=4, unique=True))))
    return found


def listed(parameters: list[pb.ParameterSpec]) -> list[pb.ParameterSpec]:
    """Return the space as a grid can list it: without doubles that have no step."""
    return [
        a_parameter(p.name, pb.DISCRETE, list=[p.feasible_space.min])
        if p.parameter_type == pb.DOUBLE and not p.feasible_space.step
        else p
        for p in parameters
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(parameters=spaces())
def test_suggestions_of_random_spaces_are_feasible(
    here: Callable[[str], Service], algorithm: str, parameters: list[pb.ParameterSpec]
) -> None:
    experiment = experiment_of(algorithm, listed(parameters) if algorithm == "grid" else parameters)
    trials: list[pb.Trial] = []
    for _ in range(2):
        points = here(algorithm).ask(experiment, trials, count=2)
        assert_feasible(experiment, points)
        trials += [a_trial(f"t{len(trials) + i}", p, i, labels=here(algorithm).labels[i]) for i, p in enumerate(points)]


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in SLOW])
def test_a_thousand_suggestions_at_once_are_all_there(here: Callable[[str], Service], algorithm: str) -> None:
    parameters = [a_parameter(name, min="0", max="9", step="0.1") for name in ("x", "y")]
    experiment = experiment_of(algorithm, parameters)

    points = here(algorithm).ask(experiment, count=1000)

    assert len(points) == 1000
    assert_feasible(experiment, points)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_hundred_parameters_are_searched(here: Callable[[str], Service], algorithm: str) -> None:
    experiment = experiment_of(algorithm, [a_parameter(f"x{i}", min="0", max="1", step="0.01") for i in range(100)])

    trials = here(algorithm).search(experiment, lambda p: sum(map(float, p.values())), budget=4)

    assert len(trials) == 4
    assert_feasible(experiment, assignments_of(trials))


@pytest.mark.parametrize("algorithm", LEARNING)
def test_ten_thousand_past_trials_are_taken(here: Callable[[str], Service], algorithm: str) -> None:
    experiment = experiment_of(algorithm, [a_parameter("x"), a_parameter("y")])
    trials = [
        a_trial(f"t{i:05}", {"x": str(i / 10_000), "y": str(i * 7919 % 10_000 / 10_000)}, i % 101)
        for i in range(10_000)
    ]

    points = here(algorithm).ask(experiment, trials)

    assert_feasible(experiment, points)
    assert len(points) == 1


@pytest.mark.parametrize(
    "algorithm", [name for name in LEARNING if name != "pbt"]
)  # whose members continue with theirs
@pytest.mark.parametrize("spread", [0, 0.009], ids=["one-point", "one-value"])
def test_trials_that_are_all_alike_are_survived(here: Callable[[str], Service], algorithm: str, spread: float) -> None:
    experiment = experiment_of(algorithm, [a_parameter("x"), a_parameter("y")])
    trials = [a_trial(f"t{i:03}", {"x": str(0.05 + i * spread), "y": "0.5"}, 1.0) for i in range(100)]

    assert len({tuple(point.values()) for point in here(algorithm).ask(experiment, trials, count=3)}) == 3


@pytest.mark.parametrize(
    "algorithm",
    [name if name in ("random", "tpe", "gp") else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHMS],
)
def test_a_service_killed_in_the_middle_of_an_answer_gives_it_when_it_is_back(algorithm: str, tmp_path: Path) -> None:
    step = {"step": "0.001"} if algorithm == "grid" else {}
    experiment = experiment_of(algorithm, [a_parameter(name, min="0", max="1", **step) for name in ("x", "y")])
    request = pb.GetSuggestionsRequest(
        experiment=experiment, current_request_number=10_000, total_request_number=10_000
    )
    with start_apart(algorithm, tmp_path) as (process, service):
        call = calls_over(service.channel, pb).GetSuggestions.future(request, timeout=PATIENCE_SECONDS)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
        assert isinstance(call.exception(PATIENCE_SECONDS), grpc.RpcError)

    with start_apart(algorithm, tmp_path) as (_, service), served_here(algorithm) as other:
        assert service.ask(experiment, count=2) == other.ask(experiment, count=2)


@pytest.mark.parametrize("algorithm", [name for name in LEARNING if name not in ("hyperband", "asha")])  # they draw
def test_what_learns_wins_a_race_against_random_search(here: Callable[[str], Service], algorithm: str) -> None:
    """On a bowl, by the mean of its second half of trials: what has learned something looks near the bottom."""
    parameters = [a_parameter(name, min="-1", max="1") for name in ("x", "y")]
    budget = 60

    def second_half(name: str) -> float:
        trials = here(name).search(
            experiment_of(name, parameters),
            lambda p: (float(p["x"]) - 0.3) ** 2 + (float(p["y"]) + 0.4) ** 2,
            budget=budget,
        )
        losses = [float(t.status.observation.metrics[0].value) for t in trials]
        return sum(losses[budget // 2 :]) / (budget // 2)

    assert second_half(algorithm) < 0.7 * second_half("random")
