"""What every suggestion service promises, in this process and in another, over real gRPC."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from katib.model.space import SearchSpace
from katib.model.types import FeasibleSpace, ParameterSpec
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import ENTRIES
from suggestion_services.base.messages import experiment_spec
from tests.support.refusals import INVALID, refusal
from tests.support.suggestion import Service, Status, a_parameter, a_trial, an_experiment, assignments_of, served_apart

SEARCHES = [entry.info for entry in ENTRIES if not entry.info.early_stopping and not entry.info.graph_fields]
"""What searches parameters, not architectures."""
ALGORITHMS = [info.name for info in SEARCHES]
LEARNING = [info.name for info in SEARCHES if info.reads_history]
QUICK: dict[str, dict[str, object]] = {
    "bayesianoptimization": {"n_initial_points": 3, "acq_func": "EI"},
    "gp": {"n_startup_trials": 3},
    "nsga2": {"population_size": 3},
    "tpe": {"n_startup_trials": 3},
    "pbt": {"n_population": 5},
}
QUICK["multivariate-tpe"] = QUICK["motpe"] = QUICK["tpe"]
QUICK["hyperband"] = {"r_l": 8, "resource_name": "j", "eta": 2, "s_max": 3, "rounds": 0}
QUICK["bohb"] = {**QUICK["hyperband"], "n_startup_trials": 3}
QUICK["asha"] = {name: value for name, value in QUICK["hyperband"].items() if name != "rounds"}

DISTRIBUTIONS = {
    "default": pb.DISTRIBUTION_UNSPECIFIED,
    "uniform": pb.UNIFORM,
    "logUniform": pb.LOG_UNIFORM,
    "normal": pb.NORMAL,
    "logNormal": pb.LOG_NORMAL,
}


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """All algorithms in another process, which knows nothing of the experiments that were served here.

    A test has to give its experiments names that no other test uses.
    """
    with served_apart(ALGORITHMS[0], tmp_path_factory.mktemp("s"), *ALGORITHMS[1:]) as service:
        yield service


def grid_points(*, step: bool) -> list[pb.ParameterSpec]:
    """Return a space of every type and distribution that a grid can list, too."""
    return [
        a_parameter("i", pb.INT, min="-3", max="4"),
        a_parameter("j", pb.INT, min="1", max="9", step="3"),
        a_parameter("d", pb.DISCRETE, list=["3", "2.0", "6"]),
        a_parameter("c", pb.CATEGORICAL, list=["adam", "sgd"]),
        a_parameter("x", pb.DOUBLE, min="0.1", max="0.7", **({"step": "0.1"} if step else {})),
    ]


def experiment_for(algorithm: str, **fields: object) -> pb.Experiment:
    """Return an experiment with all types of parameters and a short random start-up."""
    settings = {"random_state": 7, **QUICK.get(algorithm, {})}
    parameters = grid_points(step=algorithm == "grid")
    return an_experiment(algorithm, parameters, **{"settings": settings, **fields})  # type: ignore[arg-type]  # by name


def a_loss(point: dict[str, str]) -> float:
    """Return a loss of the points of `experiment_for`."""
    return float(point["x"]) + abs(float(point["i"])) + float(point["j"]) + float(point["d"]) + (point["c"] == "sgd")


def feasible(experiment: pb.Experiment, point: dict[str, str]) -> bool:
    """Return whether a point has every parameter, each with a value of its space."""
    space = SearchSpace.of(experiment_spec(experiment).parameters)
    return list(point) == [p.name for p in space.parameters] and all(
        p.contains(point[p.name]) for p in space.parameters
    )


@pytest.mark.parametrize("step", ["", "2"], ids=["continuous", "stepped"])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_suggestion_is_feasible_for_every_type_and_distribution(
    here: Callable[[str], Service], algorithm: str, distribution: str, step: str
) -> None:
    space = {"min": "1", "max": "10", "step": step, "distribution": DISTRIBUTIONS[distribution]}
    parameters = [a_parameter("i", pb.INT, **space), a_parameter("c", pb.CATEGORICAL, list=["a", "b"])]
    parameters.append(a_parameter("d", pb.DISCRETE, list=["1", "5", "2.5"]))
    if step or algorithm != "grid":
        parameters.append(a_parameter("x", pb.DOUBLE, **space))
    experiment = an_experiment(algorithm, parameters, settings=QUICK.get(algorithm))

    trials = here(algorithm).search(experiment, lambda p: int(p["i"]), budget=6, parallel=2)

    assert len(trials) == 6
    assert all(feasible(experiment, point) for point in assignments_of(trials))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_seeded_search_repeats_in_another_process_under_another_name(
    here: Callable[[str], Service], apart: Service, algorithm: str
) -> None:
    def loss(point: dict[str, str]) -> int:  # with many that are equal, and trials that fail
        return round(a_loss(point) / 4)

    first = here(algorithm).search(experiment_for(algorithm), loss, budget=30, parallel=2)

    again = apart.search(experiment_for(algorithm, name="copy"), loss, budget=30, parallel=2)

    assert assignments_of(first) == assignments_of(again)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "grid"])
def test_without_a_seed_experiments_differ_but_each_repeats(here: Callable[[str], Service], algorithm: str) -> None:
    settings = QUICK.get(algorithm, {})
    one, other = (experiment_for(algorithm, name=name, settings=settings) for name in ("one", "other"))
    service = here(algorithm)

    assert service.ask(one, count=3) == service.ask(one, count=3)
    assert service.ask(one, count=3) != service.ask(other, count=3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fresh_process_and_an_old_one_answer_alike(
    here: Callable[[str], Service], apart: Service, algorithm: str
) -> None:
    old, experiment = here(algorithm), experiment_for(algorithm, name="law")
    trials = old.search(experiment, a_loss, budget=7)
    trials += [a_trial("t90", p, condition=Status.RUNNING) for p in old.ask(experiment, trials, count=1)]

    assert old.ask(experiment, trials, count=2) == apart.ask(experiment, trials, count=2)


@pytest.mark.parametrize("algorithm", LEARNING)
def test_the_order_of_the_trials_in_a_request_means_nothing(here: Callable[[str], Service], algorithm: str) -> None:
    service, experiment = here(algorithm), experiment_for(algorithm, name="order")
    trials = service.search(experiment, a_loss, budget=6)

    assert service.ask(experiment, trials) == service.ask(experiment, trials[::-1])


@pytest.mark.parametrize("algorithm", LEARNING)
def test_the_history_changes_what_is_suggested(here: Callable[[str], Service], algorithm: str) -> None:
    service, experiment = here(algorithm), experiment_for(algorithm, name="learn")
    trials = service.search(experiment, a_loss, budget=8 if algorithm in QUICK else 24)
    points = assignments_of(trials)
    mirrored = [a_trial(t.name, p, -a_loss(p)) for t, p in zip(trials, points, strict=True)]

    assert service.ask(experiment, trials, count=3) != service.ask(experiment, mirrored, count=3)


@pytest.mark.parametrize("algorithm", LEARNING)
def test_maximizing_is_minimizing_the_negative(here: Callable[[str], Service], algorithm: str) -> None:
    service = here(algorithm)
    down, up = (experiment_for(algorithm, name="way", maximize=maximize) for maximize in (False, True))
    trials = service.search(down, a_loss, budget=8)
    negated = [
        a_trial(t.name, p, -a_loss(p), labels=t.spec.labels)
        for t, p in zip(trials, assignments_of(trials), strict=True)
    ]

    assert service.ask(down, trials, count=2) == service.ask(up, negated, count=2)


ODD_TRIALS = {
    "nan": ("nan", Status.SUCCEEDED),
    "inf": ("inf", Status.SUCCEEDED),
    "negative-inf": ("-Infinity", Status.SUCCEEDED),
    "unavailable": ("unavailable", Status.SUCCEEDED),
    "text": ("Genotype(normal=[])", Status.SUCCEEDED),
    "empty": ("", Status.SUCCEEDED),
    "no-metric": (None, Status.SUCCEEDED),
    "huge": ("1.7e308", Status.SUCCEEDED),
    "negative-huge": ("-1.7e308", Status.SUCCEEDED),
    "failed": (None, Status.FAILED),
    "killed": ("3", Status.KILLED),
    "created": (None, Status.CREATED),
    "running": ("3", Status.RUNNING),
    "metrics-unavailable": (None, Status.METRICSUNAVAILABLE),
    "early-stopped": ("9", Status.EARLYSTOPPED),
    "early-stopped-nan": ("nan", Status.EARLYSTOPPED),
    "unknown": (None, Status.UNKNOWN),
    "of-the-future": ("3", 99),
}


@pytest.fixture(scope="module")
def measured(here: Callable[[str], Service]) -> Callable[[str], list[pb.Trial]]:
    """The first trials of an experiment, searched once for each algorithm."""
    return cache(lambda algorithm: here(algorithm).search(experiment_for(algorithm, name="odd"), a_loss, budget=4))


@pytest.mark.parametrize("odd", ODD_TRIALS)
@pytest.mark.parametrize("algorithm", LEARNING)
def test_trials_of_any_end_are_survived_alone_and_among_others(
    here: Callable[[str], Service], measured: Callable[[str], list[pb.Trial]], algorithm: str, odd: str
) -> None:
    service, experiment, trials = here(algorithm), experiment_for(algorithm, name="odd"), measured(algorithm)
    loss, condition = ODD_TRIALS[odd]
    odds = [a_trial(f"u{i}", p, loss, condition) for i, p in enumerate(assignments_of(trials))]

    for history in (odds, trials + odds):
        points = service.ask(experiment, history, count=2)
        assert len(points) == 2
        assert all(feasible(experiment, point) for point in points)


STRANGERS = {
    "of-another-service": {"i": "2", "j": "5", "d": "6.0", "c": "sgd", "x": "0.123456"},
    "outside": {"i": "99", "j": "1", "d": "3", "c": "adam", "x": "0.5"},
    "of-an-unknown-category": {"i": "1", "j": "1", "d": "3", "c": "lion", "x": "0.5"},
    "beyond-the-resource": {"i": "1", "j": "99", "d": "3", "c": "adam", "x": "0.5"},
    "below-the-resource": {"i": "1", "j": "-9", "d": "3", "c": "adam", "x": "0.5"},
    "incomplete": {"i": "1"},
    "empty": {},
    "no-numbers": {"i": "", "j": "one", "d": "nan", "c": "", "x": "inf"},
    "with-more": {"i": "1", "j": "4", "d": "3", "c": "adam", "x": "0.5", "extra": "1"},
}


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("algorithm", LEARNING)
def test_trials_that_the_service_never_suggested_are_survived(
    here: Callable[[str], Service], algorithm: str, stranger: str
) -> None:
    service, experiment = here(algorithm), experiment_for(algorithm, name="strange")
    trials = [a_trial(f"s{i}", STRANGERS[stranger], i) for i in range(5)]

    points = service.ask(experiment, trials, count=2)

    assert len(points) == 2
    assert all(feasible(experiment, point) for point in points)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_points_asked_for_together_or_while_others_run_differ(here: Callable[[str], Service], algorithm: str) -> None:
    service = here(algorithm)
    parameters = grid_points(step=algorithm == "grid")[:1] + grid_points(step=algorithm == "grid")[-1:]
    experiment = an_experiment(algorithm, parameters, name="parallel", settings=QUICK.get(algorithm))
    trials = service.search(experiment, lambda p: float(p["x"]), budget=6)
    running: list[pb.Trial] = []
    for _ in range(3):
        points = service.ask(experiment, trials + running, count=2)
        running += [
            a_trial(f"z{len(running) + i}", p, condition=Status.RUNNING, labels=service.labels[i])
            for i, p in enumerate(points)
        ]

    assert len({tuple(point.values()) for point in assignments_of(running)}) == len(running) == 6


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_experiments_in_turn_in_one_process_equal_those_run_alone(
    here: Callable[[str], Service], apart: Service, algorithm: str
) -> None:
    names = ("red", "blue")
    experiments = {name: experiment_for(algorithm, name=name, settings=QUICK.get(algorithm, {})) for name in names}
    mixed: dict[str, list[pb.Trial]] = {name: [] for name in names}
    for i, name in itertools.product(range(5), names):
        (point,) = here(algorithm).ask(experiments[name], mixed[name])
        mixed[name].append(a_trial(f"t{i:05}", point, a_loss(point), labels=here(algorithm).labels[0]))

    alone = apart.search(experiments["blue"], a_loss, budget=5)

    assert assignments_of(mixed["blue"]) == assignments_of(alone)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_requests_from_many_threads_get_the_answers_of_one(here: Callable[[str], Service], algorithm: str) -> None:
    service = here(algorithm)
    experiments = [experiment_for(algorithm, name=f"crowd{i % 2}", settings=QUICK.get(algorithm, {})) for i in range(4)]
    trials = service.search(experiments[0], a_loss, budget=5)
    expected = [service.ask(experiment, trials, count=2) for experiment in experiments]

    with ThreadPoolExecutor(len(experiments)) as pool:
        asked = [pool.submit(Service(service.channel).ask, experiment, trials, count=2) for experiment in experiments]

    assert [answer.result() for answer in asked] == expected


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_changing_the_space_under_the_same_name_is_noticed(here: Callable[[str], Service], algorithm: str) -> None:
    service = here(algorithm)
    for low, high in (("1", "3"), ("10", "12")):
        parameters = [a_parameter("i", pb.INT, min=low, max=high), a_parameter("j", pb.INT, min=low, max=high)]
        (point,) = service.ask(an_experiment(algorithm, parameters, name="changed", settings=QUICK.get(algorithm)))

        assert int(low) <= int(point["i"]) <= int(high)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_space_of_one_point_is_searched(here: Callable[[str], Service], algorithm: str) -> None:
    parameters = [
        a_parameter("x", min="0.5", max="0.5", step="1"),
        a_parameter("i", pb.INT, min="3", max="3"),
        a_parameter("c", pb.CATEGORICAL, list=["only"]),
    ]
    point = {"x": "0.5", "i": "3", "c": "only"}
    experiment = an_experiment(algorithm, parameters, name="one-point", settings=QUICK.get(algorithm))
    trials = [a_trial(f"t{i}", point, 1.0) for i in range(4)]

    expected = [] if algorithm in ("grid", "auto") else [point]

    assert here(algorithm).ask(experiment, trials) == expected


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_asking_for_nothing_gets_nothing(here: Callable[[str], Service], algorithm: str) -> None:
    assert here(algorithm).ask(experiment_for(algorithm), count=0) == []


def broken(change: Callable[[pb.Experiment], object]) -> Callable[[pb.Experiment], pb.Experiment]:
    """Return a function that breaks a copy of an experiment."""

    def apply(experiment: pb.Experiment) -> pb.Experiment:
        copy = pb.Experiment()
        copy.CopyFrom(experiment)
        change(copy)
        return copy

    return apply


def first_space(experiment: pb.Experiment) -> pb.FeasibleSpace:
    return experiment.spec.parameter_specs.parameters[0].feasible_space


def set_first(field: str, value: object) -> Callable[[pb.Experiment], pb.Experiment]:
    return broken(lambda e: setattr(first_space(e), field, value))


NO_PARAMETERS = broken(lambda e: e.spec.ClearField("parameter_specs"))

HOSTILE = {
    "nothing-at-all": lambda _: pb.Experiment(),
    "no-spec": broken(lambda e: e.ClearField("spec")),
    "no-algorithm": broken(lambda e: e.spec.ClearField("algorithm")),
    "foreign-algorithm": broken(lambda e: setattr(e.spec.algorithm, "algorithm_name", "magic")),
    "unknown-parameter-type": broken(lambda e: setattr(e.spec.parameter_specs.parameters[0], "parameter_type", 0)),
    "future-parameter-type": broken(lambda e: setattr(e.spec.parameter_specs.parameters[0], "parameter_type", 77)),
    "future-distribution": set_first("distribution", 77),
    "future-objective": broken(lambda e: setattr(e.spec.objective, "type", 77)),
    "nameless-parameter": broken(lambda e: setattr(e.spec.parameter_specs.parameters[0], "name", "")),
    "twins": broken(lambda e: e.spec.parameter_specs.parameters.append(e.spec.parameter_specs.parameters[0])),
    "no-space": broken(lambda e: e.spec.parameter_specs.parameters[0].ClearField("feasible_space")),
    "min-above-max": set_first("min", "5000"),
    "min-nan": set_first("min", "nan"),
    "max-inf": set_first("max", "inf"),
    "min-text": set_first("min", "low"),
    "min-fraction-of-int": set_first("min", "0.5"),
    "max-beyond-64-bits": set_first("max", "9" * 30),
    "max-endless": set_first("max", "9" * 10_000),
    "step-zero": set_first("step", "0"),
    "step-negative": set_first("step", "-1"),
    "step-text": set_first("step", "wide"),
    "log-of-negative": set_first("distribution", pb.LOG_UNIFORM),
    "empty-list": broken(lambda e: e.spec.parameter_specs.parameters[3].feasible_space.ClearField("list")),
    "unknown-setting": broken(lambda e: e.spec.algorithm.algorithm_settings.add(name="sped", value="1")),
    "bad-seed": broken(lambda e: e.spec.algorithm.algorithm_settings.add(name="random_state", value="-1")),
    "text-seed": broken(lambda e: e.spec.algorithm.algorithm_settings.add(name="random_state", value="many\nlines")),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nonsense_is_an_invalid_argument_on_one_line(here: Callable[[str], Service], algorithm: str, case: str) -> None:
    experiment = HOSTILE[case](experiment_for(algorithm))
    service = here(algorithm)

    for call in (service.validate, service.ask):
        code, details = refusal(call, experiment)
        assert code == INVALID
        assert details
        assert "\n" not in details


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_parameters_the_settings_alone_are_checked(here: Callable[[str], Service], algorithm: str) -> None:
    experiment = NO_PARAMETERS(experiment_for(algorithm))
    wrong = HOSTILE["bad-seed"](experiment)
    service = here(algorithm)

    service.validate(experiment)
    assert refusal(service.validate, wrong)[0] == refusal(service.ask, experiment)[0] == INVALID


@pytest.mark.parametrize("step", ["0.5", "1.0", "2.5"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fractional_step_of_an_int_is_searched_by_rounding(
    here: Callable[[str], Service], algorithm: str, step: str
) -> None:
    parameters = [a_parameter(name, pb.INT, min="1", max="9", step=step) for name in ("i", "j")]
    points = here(algorithm).ask(an_experiment(algorithm, parameters, settings=QUICK.get(algorithm)), count=4)

    assert len(points) == 4
    assert all(1 <= int(value) <= 9 for point in points for value in point.values())


@pytest.mark.parametrize("count", [-1, 10_001], ids=["negative", "absurd"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_absurd_number_of_suggestions_is_refused(here: Callable[[str], Service], algorithm: str, count: int) -> None:
    request = pb.GetSuggestionsRequest(experiment=experiment_for(algorithm), current_request_number=count)

    assert refusal(here(algorithm).send, request)[0] == INVALID


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_valid_experiment_is_accepted(here: Callable[[str], Service], algorithm: str) -> None:
    here(algorithm).validate(experiment_for(algorithm))


def test_suggestions_are_text_that_reads_back_the_same() -> None:
    spec = ParameterSpec(name="x", parameter_type="double", feasible_space=FeasibleSpace(min="1e-07", max="1"))

    assert SearchSpace.of([spec]).format({"x": 1e-05}) == {"x": "1e-05"}
