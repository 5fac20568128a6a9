"""The feasible space: parameters and their values, as text, in Python and in the unit interval.

Belongs here: the meaning of bounds, steps, distributions, lists and conditions. Does not belong here: search
algorithms, the wire. Pure Python, so that a service for random search starts fast. The modules behind the names are
imported when a name is first used: an engine needs no search space for parameters that are independent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.model.loadable import lazy_names

if TYPE_CHECKING:
    from katib.model.space.assignments import check_assignments, default_assignments, first_trials, has_defaults
    from katib.model.space.conditions import ParentCondition
    from katib.model.space.constraint_rules import check_constraints
    from katib.model.space.parameters import Grid, Interval, Parameter, Value, ValueList
    from katib.model.space.search_space import Point, SearchSpace

if not TYPE_CHECKING:  # which knows all names
    __getattr__ = lazy_names(
        __name__,
        {
            "assignments": "check_assignments default_assignments first_trials has_defaults",
            "conditions": "ParentCondition",
            "constraint_rules": "check_constraints",
            "parameters": "Grid Interval Parameter Value ValueList",
            "search_space": "Point SearchSpace",
        },
    )
