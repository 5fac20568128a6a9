"""What beliefs about the best values save or cost: evaluations to a value, with and without priors.

    python -m benchmarks.priors [--algorithms gp,tpe,...] [--seeds 5] [--first-seed 0] [--problems PATTERN] [--final]

The value to reach is the median over seeds of the best value without priors after 60 evaluations; a search that does
not get there within 120 counts as 121. Printed are medians over seeds of the evaluations with each kind of prior, in
percent of 60. Targets: at most 50 with good priors, at most 125 with misleading ones. Algorithms with a resource count
it: an evaluation is one full training.

Centers of good priors miss the optimum by a twentieth of the axis, of vague ones by a fifth with twice the width, of
misleading ones by more than half. Half wrong means misleading for every other parameter. With the default first, the
search begins with a trial at the centers of good priors and has no priors; `good and default` has both.
"""

from __future__ import annotations

import fnmatch
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import structs

from benchmarks.search.believed import DEVELOPMENT, FINAL, BelievedProblem
from benchmarks.search.own import Searching, number
from benchmarks.support import options
from katib.model.types import ParameterPrior, ParameterSpec
from suggestion_services.base.algorithm import Proposal

GOAL_AT, MOST = 60, 120
_EPOCHS = 27
_KINDS = ("good", "vague", "half wrong", "misleading", "default first", "good and default")
_HALVING = ("asha", "hyperband", "bohb")


def with_priors(problem: BelievedProblem, kind: str, seed: int) -> list[ParameterSpec]:
    chance = random.Random(f"{kind} {seed}")
    space = Searching("random", problem.parameters, {}).problem.space
    found = []
    for i, (spec, p, at) in enumerate(zip(problem.parameters, space.parameters, problem.optimum, strict=True)):
        misleads = kind == "misleading" or (kind == "half wrong" and i % 2 == 0)
        away = 0.55 if misleads else {"good": 0.05, "half wrong": 0.05, "vague": 0.2}[kind]
        side = (1 if at < 0.5 else -1) if misleads else chance.choice((-1, 1))
        u = min(max(at + side * away * chance.uniform(0.8, 1.2), 0.0), 1.0)
        prior = ParameterPrior(center=p.format(p.from_unit(u)))
        if spec.feasible_space.list:
            value = p.format(p.from_unit(at))
            others = [text for text in spec.feasible_space.list if text != value]
            favoured = chance.choice(others) if misleads else value
            prior = ParameterPrior(
                weights={text: 2.0 if text == favoured else 1.0 for text in spec.feasible_space.list}
            )
            if kind != "vague":
                prior = ParameterPrior(center=favoured)
        elif kind == "vague" and spec.feasible_space.distribution == "logUniform":
            low, high = float(spec.feasible_space.min), float(spec.feasible_space.max)
            prior = structs.replace(prior, factor=repr((high / low) ** 0.3))
        elif kind == "vague":
            prior = structs.replace(
                prior, width=repr(0.3 * (float(spec.feasible_space.max) - float(spec.feasible_space.min)))
            )
        found.append(structs.replace(spec, prior=prior))
    return found


def search(
    algorithm: str,
    problem: BelievedProblem,
    parameters: Sequence[ParameterSpec],
    seed: int,
    most: int,
    goal: float = -math.inf,
    default: Mapping[str, str] | None = None,
) -> tuple[float, float]:
    """Search until a value is reached; return the evaluations and the best value of full trainings.

    Args:
        algorithm: Its name.
        problem: The loss.
        parameters: Those of the problem, with priors or without.
        seed: Of the search.
        most: Evaluations after which it ends.
        goal: The value to reach.
        default: Values of the first trial; None if the algorithm chooses it.
    """
    settings: dict[str, object] = {"random_state": seed}
    if algorithm in _HALVING:
        parameters = [*parameters, number("epochs", 1, _EPOCHS, whole=True)]
        settings |= {"resource_name": "epochs", "r_l": _EPOCHS}
        settings |= {"rounds": 50} if algorithm == "hyperband" else {}
    searching = Searching(
        algorithm, parameters, settings, budget=None if algorithm in _HALVING else GOAL_AT, parallel=1
    )
    space = searching.problem.space
    spent, best = 0.0, math.inf
    while spent < most and best > goal:
        if default is not None and not searching.trials:
            proposal = Proposal({**default, "epochs": str(_EPOCHS)})
        else:
            (proposal,) = searching.suggest()
        point = space.nearest(proposal.assignments.items())
        assert point is not None
        x = [p.to_unit(point[p.name]) for p in space.parameters if p.name != "epochs"]
        loss, share = problem.loss(x), 1.0
        if algorithm in _HALVING:
            epochs = int(proposal.assignments["epochs"])
            share = epochs / _EPOCHS
            loss += 0.2 * (1 + math.sin(7 * x[0] + 5 * x[1])) * (1 / epochs - 1 / _EPOCHS)
        searching.add(proposal, loss)
        spent += share
        if share == 1.0:
            best = min(best, loss)
    return (spent if best <= goal else most + 1), best


def evaluations(algorithm: str, problem: BelievedProblem, kind: str, seed: int, goal: float) -> float:
    """Return the evaluations to a value with priors of a kind."""
    right = with_priors(problem, "good", seed)
    if "default" in kind:
        parameters = problem.parameters if kind == "default first" else right
        default = {spec.name: spec.prior.center for spec in right if spec.prior is not None}
        return search(algorithm, problem, parameters, seed, MOST, goal, default)[0]
    return search(algorithm, problem, with_priors(problem, kind, seed), seed, MOST, goal)[0]


def main() -> None:
    algorithms = "gp,tpe,multivariate-tpe,asha,hyperband,bohb"
    given = options(
        __doc__, algorithms=algorithms, seeds=5, first_seed=0, problems="*", kinds=",".join(_KINDS), final=False
    )
    warnings.simplefilter("ignore")
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    for algorithm in given.algorithms.split(","):
        for name, problem in (FINAL if given.final else DEVELOPMENT).items():
            if not fnmatch.fnmatch(name, given.problems):
                continue
            goal = median(search(algorithm, problem, problem.parameters, seed, GOAL_AT)[1] for seed in seeds)
            cells = []
            for kind in given.kinds.split(","):
                counts = [evaluations(algorithm, problem, kind, seed, goal) for seed in seeds]
                cells.append(f"{kind} {100 * median(counts) / GOAL_AT:4.0f} %")
            print(f"{algorithm:18}{name:26}{'   '.join(cells)}   goal {goal:.2g}", flush=True)


if __name__ == "__main__":
    main()
