"""Rules about priors: beliefs about the best value of a parameter that its other fields allow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

from katib.errors import FieldError
from katib.model.algorithms import AlgorithmInfo, Feature, Others
from katib.model.metrics import is_usable
from katib.model.types import Distribution, ExperimentSpec, ParameterPrior, ParameterSpec, ParameterType
from katib.model.wording import did_you_mean, either, shown

_LISTED = (ParameterType.DISCRETE, ParameterType.CATEGORICAL)


def check_priors(parameters: Sequence[ParameterSpec], path: str) -> Iterator[FieldError]:
    """Check the priors of a list of parameters, whose other fields may be invalid."""
    for i, parameter in enumerate(parameters):
        if parameter.prior is not None:
            yield from _check(parameter, parameter.prior, f"{path}[{i}].prior")


def find_unused_priors(spec: ExperimentSpec, info: AlgorithmInfo, others: Others) -> Iterator[FieldError]:
    """Yield one warning if there are priors and the algorithm ignores them."""
    i = next((i for i, parameter in enumerate(spec.parameters) if parameter.prior is not None), None)
    if i is None or Feature.PRIORS in info.features:
        return
    cause = f"{info.name} ignores priors" if info.declares_features else f"{info.name} is not known to use priors"
    able = [o.name for o in others() if Feature.PRIORS in o.features]
    yield FieldError(f"spec.parameters[{i}].prior", cause, f"use {either(able)}" if able else "", "prior-unused")


def _check(parameter: ParameterSpec, prior: ParameterPrior, path: str) -> Iterator[FieldError]:
    kind, space = parameter.parameter_type, parameter.feasible_space
    if (space.min and space.min == space.max) or len(space.list) == 1:
        cause = f"{parameter.name} has a single value"
        yield FieldError(path, cause, "remove the prior, or widen the search space", "prior-single-value")
    elif space.distribution in (Distribution.NORMAL, Distribution.LOG_NORMAL):
        remedy = "use uniform or logUniform with the prior, or remove the prior"
        yield FieldError(path, f"{space.distribution} is a belief itself", remedy, "prior-distribution")
    elif bool(prior.center) == bool(prior.weights):
        cause = "it has both center and weights" if prior.center else "it has neither center nor weights"
        remedy = "give the likeliest value as center" + (", or weights of values" if kind in _LISTED else "")
        yield FieldError(path, cause, remedy, "prior-form")
    elif prior.weights:
        yield from _check_weights(parameter, prior, f"{path}.weights")
    else:
        yield from _check_center(parameter, prior, f"{path}.center")
        yield from _check_distance(parameter, prior, path)


def _check_weights(parameter: ParameterSpec, prior: ParameterPrior, path: str) -> Iterator[FieldError]:
    if parameter.parameter_type not in _LISTED:
        remedy = "give the likeliest value as prior.center"
        yield FieldError(path, f"a {parameter.parameter_type} parameter has none", remedy, "prior-weights")
        return
    for value, weight in prior.weights.items():
        if value not in parameter.feasible_space.list:
            remedy = did_you_mean(value, parameter.feasible_space.list)
            yield FieldError(path, f"{shown(value)} is not a value of {parameter.name}", remedy, "prior-unknown-value")
        elif not 0 <= weight < math.inf:
            cause = f"{weight:g} is not a weight of {shown(value)}"
            yield FieldError(path, cause, "use numbers from 0 up", "prior-weight-range")
    if not any(prior.weights.values()):
        yield FieldError(path, "all of them are 0", "give the likely values weights above 0", "prior-weights-zero")


def _check_center(parameter: ParameterSpec, prior: ParameterPrior, path: str) -> Iterator[FieldError]:
    space, center = parameter.feasible_space, prior.center
    if parameter.parameter_type in _LISTED:
        numbers = {float(value) for value in space.list if is_usable(value)}
        equal = parameter.parameter_type == ParameterType.DISCRETE and is_usable(center) and float(center) in numbers
        if center not in space.list and not equal:
            remedy = did_you_mean(center, space.list)
            yield FieldError(path, f"{shown(center)} is not a value of {parameter.name}", remedy, "prior-unknown-value")
    elif not is_usable(center):
        yield FieldError(path, f"{shown(center)} is not a finite number", "write a number", "prior-center-number")
    elif is_usable(space.min) and is_usable(space.max) and not float(space.min) <= float(center) <= float(space.max):
        cause = f"{center} is not between min {space.min} and max {space.max}"
        yield FieldError(path, cause, "move it inside, or widen the bounds", "prior-center-range")


def _check_distance(parameter: ParameterSpec, prior: ParameterPrior, path: str) -> Iterator[FieldError]:
    is_log = parameter.feasible_space.distribution == Distribution.LOG_UNIFORM
    for name, text, least, suits, scale in (
        ("factor", prior.factor, 1.0, is_log, "a logarithmic scale"),
        ("width", prior.width, 0.0, not is_log, "a linear scale"),
    ):
        if not text:
            continue
        if parameter.parameter_type in _LISTED:
            remedy = "remove it, or give weights in place of a center"
            yield FieldError(f"{path}.{name}", "a list has no distances", remedy, "prior-distance-listed")
        elif not suits:
            remedy = f"use {'width' if name == 'factor' else 'factor'} in its place"
            yield FieldError(f"{path}.{name}", f"it belongs to {scale}", remedy, "prior-distance-scale")
        elif not is_usable(text) or float(text) <= least:
            cause, remedy = f"{shown(text)} is not a number above {least:g}", "write one"
            with suppress(ValueError):
                if name == "factor" and 0 < float(text) < 1:
                    remedy = f"write {1 / float(text):.3g}, which has the same meaning"
            yield FieldError(f"{path}.{name}", cause, remedy, "prior-distance-range")
