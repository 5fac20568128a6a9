"""The feasible space: parameters, their values, and how values travel between text, Python and the unit interval.

Belongs here: the meaning of bounds, steps, distributions, lists and conditions. Does not belong here: search
algorithms, the wire. Pure Python, so that a service which only draws at random starts at once.
"""

from katib.model.space.assignments import check_assignments
from katib.model.space.conditions import Condition
from katib.model.space.parameters import Choice, Grid, Interval, Parameter, Value
from katib.model.space.search_space import Point, SearchSpace

__all__ = [
    "Choice",
    "Condition",
    "Grid",
    "Interval",
    "Parameter",
    "Point",
    "SearchSpace",
    "Value",
    "check_assignments",
]
