"""Rules of algorithms that need a large library, checked without importing it.

The rules of all other algorithms are in the algorithm itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from katib.errors import FieldError
from katib.model.space import SearchSpace, ValueList
from suggestion_services.base.algorithm import Problem, Rules

_SETTINGS = "spec.algorithm.algorithmSettings"

MOST_SOBOL_DIMENSIONS = 21_201
"""The limit of SciPy's table of direction numbers."""


class BayesianRules(Rules):
    """Rules of `bayesianoptimization`."""

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        estimator = problem.settings.text("base_estimator", "GP")
        if problem.settings.text("acq_optimizer", "auto") != "lbfgs":
            return ()
        if estimator != "GP":
            cause = f"acq_optimizer lbfgs needs gradients, which base_estimator {estimator} does not have"
        elif only_categories(problem.space):
            cause = "acq_optimizer lbfgs needs gradients, which a space of nothing but categories does not have"
        else:
            return ()
        return [FieldError(_SETTINGS, cause, "use auto or sampling", "setting-conflict")]


class SobolRules(Rules):
    """Rules of `sobol`."""

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        count = len(problem.space.parameters)
        if count <= MOST_SOBOL_DIMENSIONS:
            return ()
        cause = f"{count:,} parameters are more than the {MOST_SOBOL_DIMENSIONS:,} that sobol can search"
        return [FieldError("spec.parameters", cause, "use random", "sobol-dimensions")]


class TpeRules(Rules):
    """Rules of `tpe` and its variants."""

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        one, other = (problem.settings.get(name) for name in ("n_ei_candidates", "n_EI_candidates"))
        if one is None or other is None or one == other:
            return ()
        cause = f"n_ei_candidates is {one} but n_EI_candidates is {other}"
        return [FieldError(_SETTINGS, cause, "they are the same option, keep one", "setting-conflict")]


def only_categories(space: SearchSpace) -> bool:
    """Whether a space has parameters with a choice of values, and all of them are categorical."""
    free = [p for p in space.parameters if p.size != 1]
    return bool(free) and all(isinstance(p, ValueList) and not p.ordered for p in free)
