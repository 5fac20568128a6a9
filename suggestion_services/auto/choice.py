"""Which algorithm suits an experiment, and why. Pure: facts in, names out.

The rules stand in order, the first that holds decides. Their numbers were chosen with `benchmarks/quality.py` on its
development problems (`docs/reference/algorithms.md` has the figures):

* where the experiment names a resource, such as epochs, short trainings choose the long ones, by `asha`, which needed
  the fewest epochs on most problems of `benchmarks/multi_fidelity.py`;
* a finite space that the budget covers is tried out, in a shuffled order, whatever is wanted of its points;
* several objectives are left to the algorithms that search for all of them, constraints to those that use them. Up to
  four objectives a Gaussian process needs by far the fewest trials (`benchmarks/several_objectives.py`), but it does
  not learn from earlier ones then, as `nsga2` does;
* where all trials run at once there is nothing to learn from, and an even spread costs nothing. With half of them at
  once a model was better than the spread;
* otherwise a Gaussian process needs the fewest trials, while its suggestions cost less than the trials themselves and
  the parameters are not too many;
* beyond that Parzen estimators, whose cost hardly grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from katib.model.algorithms import Feature
from katib.model.wording import counted

_ENUMERABLE = 50
"""Points of a space that is tried out when no budget is given: fewer than a model needs to pay."""
_MODEL_TRIALS = 1_000
"""Ended trials up to which a Gaussian process is asked; beyond, it would look at a shrinking share of them."""
_MODEL_PARAMETERS = 100
"""Beyond, the priors of its length scales have not been tried."""
_MODEL_OBJECTIVES = 4
"""Beyond, nearly every trial is on the front, and its random weights are spread thin."""
_JOINT_PARAMETERS = 30
"""Up to which parameters are estimated together; beyond, trials are too few to see which interact."""
_TIMED_TRIALS = 20
"""Ended trials before durations are looked at."""
_LEAST_SECONDS = 0.05
_SECONDS_PER_TRIAL = 0.001
"""What a suggestion of a Gaussian process costs: 50 ms, and about a second with a thousand trials."""
_ROUNDING_SECONDS = 0.5
"""Durations come in whole seconds: one of 0 s took half a second on average."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choice depends on.

    Attributes:
        n_parameters: Of the space.
        size: Points of the space; None when it is continuous.
        n_objectives: 1 or more.
        n_constraints: Bounds on metrics.
        budget: The most trials; None when there is no limit.
        parallel: Trials that run at once; 0 when it was not said.
        n_ended: Trials of this experiment whose result is known.
        seconds: Median duration of a trial; NaN when unknown.
        has_earlier: Whether there are trials of other experiments to learn from.
        resource: The parameter that says how much of a resource a trial gets; empty where none was named.
    """

    n_parameters: int
    size: int | None
    n_objectives: int = 1
    n_constraints: int = 0
    budget: int | None = None
    parallel: int = 0
    n_ended: int = 0
    seconds: float = math.nan
    has_earlier: bool = False
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """An algorithm, if it is able.

    Attributes:
        algorithm: Its name.
        reason: A clause that begins after "since".
        needs: What it must know to be chosen.
    """

    algorithm: str
    reason: str
    needs: tuple[Feature, ...] = ()


def candidates(facts: Facts) -> Iterator[Choice]:
    """Yield algorithms, the best suited first; one that cannot be used here gives way to the next."""
    if facts.resource:
        yield Choice("asha", f"{facts.resource} is a resource, of which promising trials get more")
    covered = _ENUMERABLE if facts.budget is None else facts.budget
    if facts.size is not None and facts.size <= covered:
        yield Choice("grid", f"all {facts.size} combinations of the parameters can be tried")
    if facts.n_objectives > 1:
        reason, obstacle = f"there are {facts.n_objectives} objectives", _obstacle(facts)
        if not obstacle and facts.n_objectives <= _MODEL_OBJECTIVES and not facts.has_earlier:
            yield Choice("gp", f"{reason} and a model pays with {_trials(facts)}", (Feature.SEVERAL_OBJECTIVES,))
        yield Choice("nsga2", reason, (Feature.SEVERAL_OBJECTIVES,))
        yield Choice("random", f"{reason}, and nothing else is offered for them")
        return
    if facts.budget is not None and facts.parallel >= facts.budget > 1:
        yield Choice("sobol", f"all {facts.budget} trials run at once, so that none can learn from another")
    yield from _learning(facts)
    yield Choice("random", "nothing else is offered here")


def _learning(facts: Facts) -> Iterator[Choice]:
    """Yield algorithms for one objective that learn from trials."""
    obstacle = _obstacle(facts)
    model = f"a model of the objective pays with {_parameters(facts)} and {_trials(facts)}"
    if facts.n_constraints:
        bounds = f"there {'is a constraint' if facts.n_constraints == 1 else f'are {facts.n_constraints} constraints'}"
        if not obstacle:
            yield Choice("gp", f"{bounds} and {model}", (Feature.CONSTRAINTS,))
        yield Choice("nsga2", " and ".join(filter(None, (bounds, obstacle))), (Feature.CONSTRAINTS,))
    if not obstacle:
        yield Choice("gp", model)
    joint = "multivariate-tpe" if facts.n_parameters <= _JOINT_PARAMETERS else "tpe"
    yield Choice(joint, obstacle or "gp is not offered here")


def _obstacle(facts: Facts) -> str:
    """Return what speaks against a Gaussian process; empty when nothing does."""
    if facts.n_parameters > _MODEL_PARAMETERS:
        return f"{facts.n_parameters} parameters are too many for gp"
    if facts.n_ended >= _MODEL_TRIALS:
        return f"{_MODEL_TRIALS:,} trials have ended, more than gp looks at"
    cost = max(_LEAST_SECONDS, _SECONDS_PER_TRIAL * facts.n_ended)
    pause = (facts.seconds + _ROUNDING_SECONDS) / max(facts.parallel, 1)
    if facts.n_ended >= _TIMED_TRIALS and pause < cost:  # unknown durations, NaN, are never below
        at_once = f" and {facts.parallel} run at once" if facts.parallel > 1 else ""
        return f"trials take {_seconds(facts.seconds)}{at_once}, so that suggestions of gp would hold them up"
    return ""


def _parameters(facts: Facts) -> str:
    return counted(facts.n_parameters, "parameter")


def _trials(facts: Facts) -> str:
    if facts.budget is None:
        return "no limit of trials"
    return f"a budget of {counted(facts.budget, 'trial')}"


def _seconds(seconds: float) -> str:
    return "less than a second" if seconds < 1 else f"about {seconds:.0f} s"
