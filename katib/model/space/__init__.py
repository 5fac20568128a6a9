"""The feasible space: parameters and their values, as text, in Python and in the unit interval.

Belongs here: the meaning of bounds, steps, distributions, lists and conditions. Does not belong here: search
algorithms, the wire. Pure Python, so that a service for random search starts fast.
"""

from katib.model.space.assignments import check_assignments
from katib.model.space.conditions import ParentCondition
from katib.model.space.constraint_rules import check_constraints
from katib.model.space.first_trials import default_assignments, first_trials, has_defaults
from katib.model.space.parameters import Grid, Interval, Parameter, Value, ValueList
from katib.model.space.search_space import Point, SearchSpace

__all__ = [
    "Grid",
    "Interval",
    "Parameter",
    "ParentCondition",
    "Point",
    "SearchSpace",
    "Value",
    "ValueList",
    "check_assignments",
    "check_constraints",
    "default_assignments",
    "first_trials",
    "has_defaults",
]
