"""The feasible space: parameters and their values, as text, in Python and in the unit interval.

Belongs here: the meaning of bounds, steps, distributions, lists and conditions. Does not belong here: search
algorithms, the wire. Pure Python, so that a service for random search starts fast.
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
