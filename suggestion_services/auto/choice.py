"""The choice of an algorithm for an experiment, with its reason. Pure: facts in, names out.

The first rule that matches decides. The numbers were chosen with `benchmarks/quality.py` on its development problems
(`docs/reference/algorithms.md` has the figures):

* with a named resource, such as epochs, `asha` uses short trainings to choose the long ones: it needed the fewest
  epochs on most problems of `benchmarks/multi_fidelity.py`;
* a finite space within the budget is enumerated in a shuffled order, whatever the objectives;
* several objectives and constraints need algorithms that support them. Up to four objectives a Gaussian process needs
  by far the fewest trials (`benchmarks/several_objectives.py`), but cannot learn from earlier trials then, as `nsga2`
  does;
* if all trials run at once no algorithm can learn, and an even spread costs nothing. With half of them at once a model
  was better than the spread;
* otherwise a Gaussian process needs the fewest trials, as long as its suggestions cost less than the trials and there
  are not too many parameters;
* values of trials that were stopped early are not final, which misleads a Gaussian process more than a ranking
  (`benchmarks/stopped.py`);
* beyond that Parzen estimators, whose cost hardly grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from katib.model.algorithms import Feature
from katib.model.wording import counted

_ENUMERABLE = 50
"""Largest space that is enumerated without a budget: fewer points than a model needs to be worth it."""
_MODEL_TRIALS = 1_000
"""Ended trials up to which a Gaussian process is used; beyond, it would see a shrinking share of them."""
_MODEL_PARAMETERS = 100
"""Parameters up to which the priors of its length scales have been tested."""
_MODEL_OBJECTIVES = 4
"""Objectives up to which it is used; beyond, nearly every trial is Pareto-optimal, and the hypervolume too complex."""
_JOINT_PARAMETERS = 30
"""Parameters up to which they are estimated jointly; beyond, trials are too few to show interactions."""
_TIMED_TRIALS = 20
"""Ended trials before durations count."""
_LEAST_SECONDS = 0.05
_SECONDS_PER_TRIAL = 0.001
"""Cost of a suggestion of a Gaussian process: 50 ms, and about a second with a thousand trials."""
_ROUNDING_SECONDS = 0.5
"""Durations are whole seconds: a trial of 0 s took half a second on average."""


@dataclass(frozen=True, slots=True)
class ChoiceInputs:
    """Inputs of the choice.

    Attributes:
        size: Points of the space; None if it is continuous.
        n_objectives: 1 or more.
        n_constraints: Bounds on metrics.
        budget: The maximum number of trials; None if unlimited.
        parallel: Trials that run at once; 0 if unknown.
        n_ended: Trials of this experiment with a known result.
        seconds: Median duration of a trial; NaN when unknown.
        stops_early: Whether early stopping may end trials.
        has_earlier: Whether trials of other experiments can be learned from.
        resource: The parameter that sets the resource of a trial; empty if none is named.
    """

    n_parameters: int
    size: int | None
    n_objectives: int = 1
    n_constraints: int = 0
    budget: int | None = None
    parallel: int = 0
    n_ended: int = 0
    seconds: float = math.nan
    stops_early: bool = False
    has_earlier: bool = False
    resource: str = ""


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """An algorithm to use if it is available.

    Attributes:
        reason: A clause to follow "since".
        needs: Features that it must support to be chosen.
    """

    algorithm: str
    reason: str
    needs: tuple[Feature, ...] = ()


def candidates(facts: ChoiceInputs) -> Iterator[AlgorithmChoice]:
    """Yield algorithms in order of preference; one that is unavailable gives way to the next."""
    if facts.resource:
        yield AlgorithmChoice("asha", f"{facts.resource} is a resource, of which promising trials get more")
    covered = _ENUMERABLE if facts.budget is None else facts.budget
    if facts.size is not None and facts.size <= covered:
        yield AlgorithmChoice("grid", f"all {facts.size} combinations of the parameters can be tried")
    if facts.n_objectives > 1:
        reason, obstacle = f"there are {facts.n_objectives} objectives", _obstacle(facts)
        if not obstacle and facts.n_objectives <= _MODEL_OBJECTIVES and not facts.has_earlier:
            yield AlgorithmChoice(
                "gp", f"{reason} and a model pays with {_trials(facts)}", (Feature.SEVERAL_OBJECTIVES,)
            )
        yield AlgorithmChoice("nsga2", reason, (Feature.SEVERAL_OBJECTIVES,))
        yield AlgorithmChoice("random", f"{reason}, and no other algorithm is available for them")
        return
    if facts.budget is not None and facts.parallel >= facts.budget > 1:
        yield AlgorithmChoice("sobol", f"all {facts.budget} trials run at once, so that none can learn from another")
    yield from _learning(facts)
    yield AlgorithmChoice("random", "no other algorithm is available")


def _learning(facts: ChoiceInputs) -> Iterator[AlgorithmChoice]:
    """Yield algorithms for one objective that learn from trials."""
    obstacle = _obstacle(facts)
    model = f"a model of the objective pays with {_parameters(facts)} and {_trials(facts)}"
    if facts.n_constraints:
        bounds = f"there {'is a constraint' if facts.n_constraints == 1 else f'are {facts.n_constraints} constraints'}"
        if not obstacle:
            yield AlgorithmChoice("gp", f"{bounds} and {model}", (Feature.CONSTRAINTS,))
        yield AlgorithmChoice("nsga2", " and ".join(filter(None, (bounds, obstacle))), (Feature.CONSTRAINTS,))
    if not obstacle:
        yield AlgorithmChoice("gp", model)
    joint = "multivariate-tpe" if facts.n_parameters <= _JOINT_PARAMETERS else "tpe"
    yield AlgorithmChoice(joint, obstacle or "gp is not available")


def _obstacle(facts: ChoiceInputs) -> str:
    """Return the reason against a Gaussian process; empty if there is none."""
    if facts.stops_early:
        return "early stopping ends trials at values that gp would take for final"
    if facts.n_parameters > _MODEL_PARAMETERS:
        return f"{facts.n_parameters} parameters are too many for gp"
    if facts.n_ended >= _MODEL_TRIALS:
        return f"{_MODEL_TRIALS:,} trials have ended, more than gp uses"
    cost = max(_LEAST_SECONDS, _SECONDS_PER_TRIAL * facts.n_ended)
    pause = (facts.seconds + _ROUNDING_SECONDS) / max(facts.parallel, 1)
    if facts.n_ended >= _TIMED_TRIALS and pause < cost:  # unknown durations, NaN, are never below
        at_once = f" and {facts.parallel} run at once" if facts.parallel > 1 else ""
        return f"trials take {_seconds(facts.seconds)}{at_once}, so that suggestions of gp would hold them up"
    return ""


def _parameters(facts: ChoiceInputs) -> str:
    return counted(facts.n_parameters, "parameter")


def _trials(facts: ChoiceInputs) -> str:
    if facts.budget is None:
        return "no limit of trials"
    return f"a budget of {counted(facts.budget, 'trial')}"


def _seconds(seconds: float) -> str:
    return "less than a second" if seconds < 1 else f"about {seconds:.0f} s"
