"""The trials that come before an algorithm's: the configuration in use today, then the initial trials of the user."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from katib.errors import InvalidError
from katib.model.space.parameters import Parameter, ValueList
from katib.model.space.search_space import SearchSpace
from katib.model.types import ExperimentSpec, InitialTrial, ParameterAssignment, ParameterSpec

_DRAWS = 10_000  # of values for parameters without a default


def first_trials(spec: ExperimentSpec) -> tuple[InitialTrial, ...]:
    """Return the trial of the defaults, if there are any, and the initial trials without a repetition of it."""
    chosen = default_assignments(spec.parameters, spec.parameter_constraints)
    if not chosen:
        return spec.initial_trials
    same = frozenset(chosen)
    others = (trial for trial in spec.initial_trials if frozenset(trial.parameter_assignments) != same)
    return (InitialTrial(parameter_assignments=chosen), *others)


def has_defaults(spec: ExperimentSpec) -> bool:
    return any(parameter.default is not None for parameter in spec.parameters)


@lru_cache(maxsize=64)
def default_assignments(
    specs: tuple[ParameterSpec, ...], constraints: tuple[str, ...] = ()
) -> tuple[ParameterAssignment, ...]:
    """Return the assignments of the defaults, each as written; empty if no parameter has one.

    A parameter without a default has the middle of its range, by its distribution, or the first value of its list; if
    that violates the constraints, a value that does not. Empty, too, if the parameters are invalid, which only an
    installation without our admission accepts.
    """
    given = {spec.name: spec.default for spec in specs if spec.default is not None}
    if not given:
        return ()
    try:
        space = SearchSpace.of(specs, constraints=constraints)
        point = {p.name: p.parse(given[p.name]) if p.name in given else _usual(p) for p in space.parameters}
    except (InvalidError, ValueError):
        return ()
    random = Random(0)
    for _ in range(_DRAWS if len(given) < len(specs) else 0):
        if space.allows(point):
            break
        point = {p.name: point[p.name] if p.name in given else p.sample(random) for p in space.parameters}
    texts = space.format(point)
    return tuple(ParameterAssignment(name=name, value=given.get(name, text)) for name, text in texts.items())


def _usual(parameter: Parameter) -> float | int | str:
    return parameter.at(0) if isinstance(parameter, ValueList) and not parameter.ordered else parameter.from_unit(0.5)
