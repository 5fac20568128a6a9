"""Limits in hours, resource hours and money, as text and as numbers.

A budget is a list of amounts separated by commas: `8h` of time, `20 gpu-hours`, `$50`. Money needs hourly prices:
`gpu=2.50, cpu=0.04, trial=0.10`. A trial holds the requests of its job while it runs; like every trial, one without
requests holds `trial=1`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from katib.errors import FieldError
from katib.model.features.budgets.annotations import _NUMBER, _PAIR, HOURS, LIMITS, MONEY, PRICES, RESOURCES, TRIAL
from katib.model.quantities import parse_quantity
from katib.model.wording import path_to, shown

_SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600, "hours": 3600, "d": 86_400}
_TIME = re.compile(rf"{_NUMBER}\s*({'|'.join(_SECONDS)})")
_RESOURCE_HOURS = re.compile(rf"{_NUMBER}\s*({'|'.join(RESOURCES)})-hours?")
_MONEY_AMOUNT = re.compile(rf"\${_NUMBER}")
_HOUR = 3600.0
_COUNTS = ("replicas", "parallelism", "numNodes")
"""Fields of jobs that multiply the pods of the spec beside them."""

_GPU = "/gpu"
_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on the combined use of an experiment's trials.

    Attributes:
        limits: By unit: `hours`, a resource (in hours of it), or `$`.
    """

    limits: Mapping[str, float]
    prices: Mapping[str, float] = field(default_factory=dict)

    def used(self, unit: str, seconds: float, held: Mapping[str, float]) -> float:
        """Return the used amount of a unit.

        Args:
            seconds: Time during which trials ran.
            held: Seconds of each resource.
        """
        if unit == HOURS:
            return seconds / _HOUR
        if unit == MONEY:
            return math.fsum(held.get(name, 0.0) * price for name, price in self.prices.items()) / _HOUR
        return held.get(unit, 0.0) / _HOUR


def doubled(text: str) -> str:
    """Return the text of a budget that is twice as large."""
    return re.sub(_NUMBER, lambda match: f"{2 * float(match[1]):g}", text)


@functools.lru_cache(maxsize=256)
def read_budget(text: str, prices: str) -> tuple[Budget | None, tuple[FieldError, ...]]:
    """Return a budget and the errors in its text; None if there is an error."""
    errors: list[FieldError] = []
    limits = _amounts(text, errors)
    costs = _prices(prices, errors)
    if MONEY in limits and not costs and not errors:
        cause = "a budget of money needs prices"
        remedy = f'add the annotation {PRICES.name}: "gpu=2.50, cpu=0.04", dollars for an hour of each'
        errors.append(FieldError(path_to("metadata.annotations", LIMITS.name), cause, remedy, "budget-prices"))
    return (None if errors else Budget(limits, costs)), tuple(errors)


def _amounts(text: str, errors: list[FieldError]) -> dict[str, float]:
    """Return the limit of each unit, the smaller one if it is given twice."""
    found: dict[str, float] = {}
    for part in map(str.strip, text.split(",")):
        if match := _TIME.fullmatch(part):
            unit, amount = HOURS, float(match[1]) * _SECONDS[match[2]] / _HOUR
        elif match := _RESOURCE_HOURS.fullmatch(part):
            unit, amount = match[2], float(match[1])
        elif match := _MONEY_AMOUNT.fullmatch(part):
            unit, amount = MONEY, float(match[1])
        else:
            unit, amount = "", 0.0
        if not 0 < amount < _LARGEST:
            remedy = "write it as 8h, 90m, 2d, 20 gpu-hours, 100 cpu-hours or $50, with a comma between several"
            where = path_to("metadata.annotations", LIMITS.name)
            errors.append(FieldError(where, f"{shown(part)} is not a budget", remedy, "budget-format"))
        else:
            found[unit] = min(amount, found.get(unit, amount))
    return found


def _prices(text: str, errors: list[FieldError]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _PAIR.fullmatch(part)
        if match is None:
            remedy = f"write it as gpu=2.50, with one of {', '.join(RESOURCES)}, and dollars for an hour"
            where = path_to("metadata.annotations", PRICES.name)
            errors.append(FieldError(where, f"{shown(part)} is not a price", remedy, "budget-prices"))
        else:
            found[match[1]] = float(match[2])
    return found


def holds_of(run_spec: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the amount of each resource that a trial holds while its job runs: the requests of all its pods."""
    found = {TRIAL: 1.0}
    for name, amount in _requested(run_spec or {}, 1):
        found[name] = found.get(name, 0.0) + amount
    return found


def _requested(node: Any, pods: int) -> Iterator[tuple[str, float]]:
    """Yield the requests in a part of a job, times the number of its pods."""
    if isinstance(node, list):
        for item in node:
            yield from _requested(item, pods)
    if not isinstance(node, Mapping):
        return
    for name in _COUNTS:
        count = node.get(name)
        if isinstance(count, int) and count >= 0:
            pods *= count
    for name, item in node.items():
        if name in {"resources", "resourcesPerNode"} and isinstance(item, Mapping):
            yield from _amounts_of({**_mapping(item.get("limits")), **_mapping(item.get("requests"))}, pods)
        elif name != "initContainers":
            yield from _requested(item, pods)


def _amounts_of(amounts: Mapping[str, Any], pods: int) -> Iterator[tuple[str, float]]:
    for name, value in amounts.items():
        resource = "gpu" if name.endswith(_GPU) else name
        if resource in RESOURCES:
            try:
                amount = float(parse_quantity(value))
            except (ValueError, ArithmeticError):
                continue
            if 0 <= amount < _LARGEST:
                yield resource, amount * pods


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
