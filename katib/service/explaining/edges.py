"""Best trials at an end of a parameter's range: the best value may lie beyond it."""

from __future__ import annotations

from collections.abc import Iterator

from katib.model.space.build import build_parameter
from katib.model.space.parameters import Grid, Interval
from katib.model.types import Experiment, ParameterSpec
from katib.service.tuning.reading import assignments_of, best_trial_of
from katib.service.tuning.states import has_several_objectives

FEWEST_TRIALS = 10
"""Measured trials from which an end of a range means something."""
_NEAR = 0.02
"""Share of a range, on the parameter's own scale, that is its end."""
_FEWEST_VALUES = 5


def edge_sentences(experiment: Experiment) -> list[str]:
    """Return for each parameter whose best value is at an end of its range that a wider range may hold a better one.

    Empty before ten trials have a value, with several objectives, and for parameters of less than five values.
    """
    best = best_trial_of(experiment)
    status = experiment.status
    measured = status.trials_succeeded + status.trials_early_stopped
    if best is None or has_several_objectives(experiment) or measured < FEWEST_TRIALS:
        return []
    values = assignments_of(best)
    return [line for spec in experiment.spec.parameters for line in _edge(spec, values.get(spec.name))]


def _edge(spec: ParameterSpec, value: str | None) -> Iterator[str]:
    parameter = build_parameter(spec)
    if value is None or not isinstance(parameter, Interval | Grid):
        return
    count = parameter.size
    if count is not None and count < _FEWEST_VALUES:
        return
    try:
        nearest = parameter.nearest(value)
    except ValueError:  # outside, as of a trial from elsewhere
        return
    place = parameter.to_unit(nearest) if count is None else parameter.index_of(nearest) / (count - 1)
    if _NEAR < place < 1.0 - _NEAR:
        return
    low, high = spec.feasible_space.min, spec.feasible_space.max
    end, bound, way = ("lower", low, "smaller") if place <= _NEAR else ("upper", high, "larger")
    yield f"The best {spec.name} is at the {end} end of its range, {bound}: {way} values may be better."
