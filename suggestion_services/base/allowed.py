"""Suggestions that satisfy the constraints on the parameters, whatever an algorithm suggests.

Theory of operation: an algorithm draws again if that helps it; a suggestion that still violates a constraint moves
towards an allowed point near it, to the last allowed place on the line between them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from random import Random

from katib.model.space import Point, SearchSpace, ValueList
from suggestion_services.base.algorithm import Proposal

_ANCHORS = 256  # allowed points, of which the nearest one is used
_HALVINGS = 20  # of the line
REJECTED = 4  # draws of a model that are rejected for a constraint before one is moved


def kept_allowed(space: SearchSpace, suggestion: Point | Proposal) -> Point | Proposal:
    """Return the suggestion, or one near it that satisfies the constraints."""
    if not space.constraints:
        return suggestion
    if not isinstance(suggestion, Proposal):
        return allowed_near(space, suggestion)
    point = space.nearest(suggestion.assignments.items())
    if point is None or space.allows(point):
        return suggestion
    return replace(suggestion, assignments=space.format(allowed_near(space, point)))


def allowed_near(space: SearchSpace, point: Point) -> Point:
    """Return the whole point, or one near it that satisfies the constraints."""
    if space.allows(point):
        return point
    anchor = min(anchors_of(space), key=lambda other: _distance(space, point, other))
    near, far = 0.0, 1.0
    found = anchor
    for _ in range(_HALVINGS):
        share = (near + far) / 2
        between = _between(space, anchor, point, share)
        if space.allows(between):
            near, found = share, between
        else:
            far = share
    return found


@lru_cache(maxsize=64)
def anchors_of(space: SearchSpace) -> tuple[Point, ...]:
    """Return whole points that satisfy the constraints, all over the space."""
    random = Random(0)
    return tuple(space.sample(random) for _ in range(_ANCHORS))


def _distance(space: SearchSpace, point: Point, other: Point) -> float:
    """Return the distance of two whole points in the unit cube; different texts are one apart."""
    total = 0.0
    for p in space.parameters:
        a, b = point[p.name], other[p.name]
        if a != b:
            total += 1.0 if _is_text(p) else (p.to_unit(a) - p.to_unit(b)) ** 2
    return total


def _between(space: SearchSpace, anchor: Point, point: Point, share: float) -> Point:
    """Return a point on the line, with the texts of the anchor."""
    return space.complete(
        {
            p.name: anchor[p.name]
            if _is_text(p) or anchor[p.name] == point[p.name]
            else p.from_unit(p.to_unit(anchor[p.name]) * (1 - share) + p.to_unit(point[p.name]) * share)
            for p in space.parameters
        }
    )


def _is_text(parameter: object) -> bool:
    return isinstance(parameter, ValueList) and not parameter.ordered
