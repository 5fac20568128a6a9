"""The feasible space: parameters and their values, as text, in Python and in the unit interval.

Belongs here: the meaning of bounds, steps, distributions, lists and conditions. Does not belong here: search
algorithms, the wire. Pure Python, so that a service for random search starts fast. The modules behind the names are
imported when a name is first used: an engine needs no search space for parameters that are independent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from katib.model.space.assignments import check_assignments, default_assignments, first_trials, has_defaults
    from katib.model.space.conditions import ParentCondition
    from katib.model.space.constraint_rules import check_constraints
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

_MODULES = {
    "ParentCondition": "conditions",
    "Point": "search_space",
    "SearchSpace": "search_space",
    "check_assignments": "assignments",
    "check_constraints": "constraint_rules",
    "default_assignments": "assignments",
    "first_trials": "assignments",
    "has_defaults": "assignments",
}

if not TYPE_CHECKING:  # which knows all names

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'parameters')}"), name)
