"""CMA-ES: generations from the history alone, in any order of ends, restarts, and every type of parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from statistics import mean

import cmaes as library
import numpy as np
import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.base import Algorithm, PastTrial, TrialOutcome
from suggestion_services.base.algorithm import Proposal
from suggestion_services.cmaes.cmaes import NUMBER_LABEL, RESTARTS_LABEL, CmaEs
from suggestion_services.cmaes.distribution import SearchDistribution, SearchStart, usual_population
from suggestion_services.cmaes.restarts import Restarts
from tests.support.golden import Golden
from tests.support.searches import ZOO, algorithm_for, problem_for
from tests.support.suggestion import Assignments, a_parameter

CUBE = [a_parameter(f"x{i}", min="-5", max="5") for i in range(4)]
GRID = [a_parameter(name, pb.INT, min="0", max="3") for name in ("i", "j")]


def a_search(parameters: Sequence[pb.ParameterSpec] = CUBE, **settings: object) -> Algorithm:
    return algorithm_for("cmaes", parameters, settings={"random_state": 1, **settings})


def proposals(algorithm: Algorithm, trials: Sequence[PastTrial], *, first: int, count: int = 1) -> list[Proposal]:
    found = list(algorithm.suggest(trials, first=first, count=count))
    assert all(isinstance(one, Proposal) for one in found)
    return found  # type: ignore[return-value]  # just checked


def pending(k: int, proposal: Proposal) -> PastTrial:
    return PastTrial(f"t{k:05}", TrialOutcome.PENDING, proposal.assignments, labels=proposal.labels)


def ended(trial: PastTrial, value: float) -> PastTrial:
    """Return an ended trial; NaN makes it one that failed."""
    outcome = TrialOutcome.BAD if math.isnan(value) else TrialOutcome.MEASURED
    return PastTrial(trial.name, outcome, trial.assignments, value, labels=trial.labels)


def sphere(point: Mapping[str, str]) -> float:
    return sum((float(x) - 1) ** 2 for x in point.values())


def rosenbrock(point: Mapping[str, str]) -> float:
    x = [float(value) for value in point.values()]
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))


def run(
    algorithm: Algorithm,
    loss: Callable[[Mapping[str, str]], float],
    *,
    budget: int,
    parallel: int = 1,
    requested: int = 1,
) -> list[PastTrial]:
    """Search with trials in parallel, of which the oldest but one ends first.

    Args:
        algorithm: Asked for suggestions.
        loss: To be minimized.
        budget: How many trials.
        parallel: How many run at once.
        requested: How many suggestions a request asks for. As many as make a generation, or a part of it, are those
            of single requests: only a whole generation moves the search.
    """
    done: list[PastTrial] = []
    running: list[PastTrial] = []
    for k in range(budget):
        if k % requested == 0:
            given = iter(proposals(algorithm, [*done, *running], first=k, count=min(requested, budget - k)))
        running.append(pending(k, next(given)))
        if len(running) == parallel:
            trial = running.pop(1 if parallel > 1 else 0)
            done.append(ended(trial, loss(trial.assignments)))
            done.sort(key=lambda t: t.name)
    return done


def best(trials: Sequence[PastTrial]) -> float:
    return min(trial.objective for trial in trials)


def of_the_library(loss: Callable[[Mapping[str, str]], float], *, budget: int, seed: int) -> float:
    """Return the best of a search in which the library itself is asked and told."""
    optimizer = library.CMA(mean=np.full(4, 0.5), sigma=1 / 6, bounds=np.tile([0.0, 1.0], (4, 1)), seed=seed)
    found: list[float] = []
    while len(found) < budget:
        told = []
        for _ in range(optimizer.population_size):
            x = optimizer.ask()
            told.append((x, loss({str(i): str(10 * share - 5) for i, share in enumerate(x)})))
        optimizer.tell(told)
        found += [value for _, value in told]
    return min(found[:budget])


@pytest.mark.parametrize("loss", [sphere, rosenbrock], ids=["sphere", "rosenbrock"])
def test_a_search_is_as_good_as_the_library_alone(loss: Callable[[Mapping[str, str]], float]) -> None:
    ours = [
        math.log10(best(run(a_search(random_state=seed), loss, budget=160, requested=usual_population(4))))
        for seed in range(8)
    ]
    theirs = [math.log10(of_the_library(loss, budget=160, seed=seed)) for seed in range(24)]

    assert mean(ours) < mean(theirs) + 0.3  # two standard errors of such means


def test_with_trials_in_parallel_it_still_converges() -> None:
    assert best(run(a_search(), sphere, budget=200, parallel=4)) < 0.01


def test_the_state_comes_from_the_history_alone() -> None:
    old = a_search()
    trials = run(old, sphere, budget=40, parallel=3)

    fresh = a_search()

    assert proposals(old, trials, first=40, count=5) == proposals(fresh, trials, first=40, count=5)


def test_a_trial_that_ends_late_counts_as_if_it_had_always_been_there() -> None:
    algorithm = a_search()
    trials = run(algorithm, sphere, budget=30)
    late, others = trials[3], [t for t in trials if t is not trials[3]]
    proposals(algorithm, others, first=30)

    with_it = proposals(algorithm, [*others, late], first=31)

    assert with_it == proposals(a_search(), trials, first=31)
    assert with_it != proposals(algorithm, others, first=31)


def test_names_do_not_matter_where_there_are_numbers() -> None:
    trials = run(a_search(), sphere, budget=20)
    renamed = [
        PastTrial(f"z{99 - i}", t.outcome, t.assignments, t.objective, labels=t.labels) for i, t in enumerate(trials)
    ]

    assert proposals(a_search(), trials, first=20) == proposals(a_search(), renamed[::-1], first=20)


def test_a_trial_that_hangs_holds_up_nothing() -> None:
    algorithm = a_search()
    (hanging,) = proposals(algorithm, [], first=0)
    trials = [pending(0, hanging)]
    for k in range(1, 120):
        (proposal,) = proposals(algorithm, trials, first=k)
        trials.append(ended(pending(k, proposal), sphere(proposal.assignments)))

    assert best(trials[1:]) < 0.3


def test_failed_trials_are_the_worst_of_their_generation() -> None:
    def loss(point: Mapping[str, str]) -> float:
        return math.nan if float(point["x0"]) > 0 else sphere(point)

    trials = run(a_search(), loss, budget=140)

    late = [trial.outcome for trial in trials[-20:]]
    assert late.count(TrialOutcome.BAD) < 8  # half of the first ones fail, and the optimum lies beyond the edge
    assert min(t.objective for t in trials if t.outcome is TrialOutcome.MEASURED) < 1.6


def test_when_every_trial_fails_the_search_goes_on() -> None:
    assert len({tuple(t.assignments.items()) for t in run(a_search(), lambda _: math.nan, budget=60)}) == 60


def test_trials_without_labels_take_part_from_the_beginning() -> None:
    random = Random(1)
    points = [{f"x{j}": str(random.uniform(-5, 5)) for j in range(4)} for _ in range(40)]
    given = [
        PastTrial(f"m{i:02}", TrialOutcome.MEASURED, p, sum((float(x) - 3) ** 2 for x in p.values()))
        for i, p in enumerate(points)
    ]

    def center(trials: Sequence[PastTrial]) -> float:
        points = [one.assignments for one in proposals(a_search(), trials, first=40, count=60)]
        return mean(float(x) for point in points for x in point.values())

    assert center(given) > center([]) + 0.5


@pytest.mark.parametrize("count", [1, 40])
def test_earlier_trials_decide_where_the_search_begins(count: int) -> None:
    earlier = [
        PastTrial(
            f"e{i}",
            TrialOutcome.MEASURED,
            {f"x{j}": str(1 + 0.1 * i * (-1) ** j) for j in range(4)},
            float(i),
            is_earlier=True,
        )
        for i in range(count)
    ]

    warm = [sphere(one.assignments) for one in proposals(a_search(), earlier, first=0, count=30)]
    cold = [sphere(one.assignments) for one in proposals(a_search(), [], first=0, count=30)]

    assert mean(warm) < mean(cold)


def test_in_a_finite_space_no_point_is_tried_twice_until_there_is_no_other() -> None:
    trials = run(a_search(GRID), lambda point: float(point["i"]) + float(point["j"]), budget=12)

    assert len({tuple(t.assignments.items()) for t in trials}) == 12


def test_a_used_up_space_repeats_itself_and_never_ends() -> None:
    assert len(run(a_search(GRID), lambda point: float(point["i"]), budget=40)) == 40


@pytest.mark.parametrize(
    "animal", [a for a in ZOO if a.name in {"mixed", "learning-rate", "branin"}], ids=lambda a: a.name
)
def test_steps_lists_and_categories_are_learned(animal: object) -> None:
    parameters, loss = animal.parameters, animal.loss  # type: ignore[attr-defined]  # an Animal
    ours = [best(run(a_search(parameters, random_state=seed), loss, budget=60)) for seed in range(5)]
    random = algorithm_for("random", parameters, settings={"random_state": 3})
    theirs = [
        min(loss(random.problem.space.format(p)) for p in random.suggest([], first=60 * i, count=60)) for i in range(15)
    ]

    assert mean(map(math.log10, ours)) < mean(map(math.log10, theirs))


def a_converged_search(strategy: str, budget: int) -> list[PastTrial]:
    search = a_search(CUBE[:2], restart_strategy=strategy)
    return run(search, sphere, budget=budget, requested=usual_population(2))


@pytest.mark.parametrize("strategy", ["ipop", "bipop"])
def test_a_search_that_has_converged_begins_anew_elsewhere(strategy: str) -> None:
    trials = a_converged_search(strategy, 500)
    restarts = [int(t.labels[RESTARTS_LABEL]) for t in trials]

    assert restarts == sorted(restarts)
    assert restarts[-1] >= 1
    first = restarts.index(1)
    assert max(sphere(t.assignments) for t in trials[first : first + 10]) > 1
    assert max(sphere(t.assignments) for t in trials[first - 10 : first]) < 1e-6


def test_requests_of_whole_generations_give_what_single_ones_give() -> None:
    one, other = (run(a_search(CUBE[:2]), sphere, budget=60, requested=count) for count in (1, usual_population(2)))

    assert one == other


def test_without_restarts_there_are_none() -> None:
    assert {t.labels[RESTARTS_LABEL] for t in a_converged_search("none", 300)} == {"0"}


def test_by_default_trials_after_convergence_are_used_for_another_search() -> None:
    """Of a wave in a bowl, the first search finds one of many valleys."""

    def waves(point: Mapping[str, str]) -> float:
        x = [float(value) - 1 for value in point.values()]
        return sum(10 + a * a - 10 * math.cos(2 * math.pi * a) for a in x)

    def losses(**settings: object) -> list[float]:
        searches = [a_search(CUBE[:2], random_state=seed, **settings) for seed in range(3)]
        return [best(run(search, waves, budget=1000, requested=usual_population(2))) for search in searches]

    assert sum(losses()) < 0.5 * sum(losses(restart_strategy="None"))


def populations(strategy: str, count: int) -> list[int]:
    """Return the populations of the searches that follow each other, each ended after 100 trials."""
    restarts, found = Restarts(strategy, SearchStart(np.full(2, 0.5), 0.2, 6)), []
    for i in range(count):
        restarts, start = restarts.next(100, Random(i))
        found.append(start.population)
    return found


def test_ipop_doubles_and_bipop_alternates() -> None:
    assert populations("ipop", 4) == [12, 24, 48, 96]
    first, small, *_ = populations("bipop", 4)
    assert (first, small <= first) == (12, True)
    assert sum(size == 24 for size in populations("bipop", 4)) == 1


def test_a_draw_depends_on_the_seed_alone() -> None:
    distribution = SearchDistribution(SearchStart(np.full(2, 0.5), 0.2, 6), [3])

    one, other, again = (distribution.draw(seed) for seed in (1, 2, 1))

    assert one.numbers.tolist() == again.numbers.tolist() != other.numbers.tolist()
    assert one.categories == again.categories


def test_sigma_says_how_far_the_first_trials_spread() -> None:
    def spread(**settings: object) -> float:
        points = proposals(a_search(**settings), [], first=0, count=50)
        return float(np.std([float(x) for one in points for x in one.assignments.values()]))

    assert spread(sigma=0.01) < 0.2 < spread(sigma=0) == spread() < 2 < spread(sigma=1000)


def test_more_trials_at_once_than_a_generation_make_a_larger_generation() -> None:
    problem = problem_for("cmaes", CUBE)
    wide = CmaEs(type(problem)(problem.experiment, problem.space, False, problem.settings, parallel=50))

    assert wide._replay([]).distribution.population == 50
    assert a_search()._replay([]).distribution.population == 8  # type: ignore[attr-defined]  # it is a CmaEs


@pytest.mark.parametrize(
    ("parameters", "count"),
    [(CUBE[:1], 1), ([CUBE[0], a_parameter("c", pb.CATEGORICAL, list=["a", "b"])], 1)],
    ids=["one", "one-of-numbers"],
)
def test_one_parameter_is_refused_and_tpe_named(
    parameters: Sequence[pb.ParameterSpec], count: int, golden: Golden
) -> None:
    (error,) = CmaEs.check(problem_for("cmaes", parameters))

    golden(error)


def test_labels_carry_the_number_of_the_suggestion() -> None:
    assert [one.labels[NUMBER_LABEL] for one in proposals(a_search(), [], first=7, count=2)] == ["7", "8"]


def test_labels_of_others_do_no_harm() -> None:
    assignments: Assignments = {f"x{j}": "1" for j in range(4)}
    odd = [
        PastTrial(f"o{i}", TrialOutcome.MEASURED, assignments, 1.0, labels={NUMBER_LABEL: text, RESTARTS_LABEL: text})
        for i, text in enumerate(["", "-1", "x", "1e3", "²", "9" * 5000])
    ]

    assert len(proposals(a_search(), odd, first=6, count=2)) == 2
