"""What a launcher requests that does the work of pods that are not started: on one machine `mpirun` enters no pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from katib.api.quantities import parse_quantity
from katib.local.findings import containers_of, mapping
from katib.templates import has_placeholder

Workers = Iterable[tuple[Mapping[str, Any], int]]
"""Specs of pods that are not started, each with the number of such pods."""


def with_resources_of(launcher: Mapping[str, Any], workers: Workers) -> Mapping[str, Any]:
    """Return the pod spec of a launcher whose first container requests what all workers do besides its own.

    Where that container has a limit, the limit grows as the request does.

    Args:
        launcher: The spec of its pod; may be malformed or hold placeholders.
        workers: The pods whose work it does; the same.
    """
    containers = containers_of(launcher)
    needed: dict[str, Decimal] = {}
    added: dict[str, Decimal] = {}
    for container in containers[:1]:
        _add(needed, container, 1)
    for pod, count in workers:
        for container in containers_of(pod):
            _add(added, container, count)
    if not containers or not added:
        return launcher
    resources = mapping(containers[0].get("resources"))
    total = {name: needed.get(name, Decimal(0)) + added.get(name, Decimal(0)) for name in {**needed, **added}}
    grown = {"requests": {name: _text(amount) for name, amount in total.items()}}
    if limits := mapping(resources.get("limits")):
        grown["limits"] = {
            name: limit if has_placeholder(limit) else _text(amount_of(limit) + added.get(name, Decimal(0)))
            for name, limit in limits.items()
        }
    first = {**containers[0], "resources": {**resources, **grown}}
    return {**launcher, "containers": [first, *containers[1:]]}


def _add(amounts: dict[str, Decimal], container: Mapping[str, Any], times: int) -> None:
    resources = mapping(container.get("resources"))
    given = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
    for name, amount in given.items():
        if not has_placeholder(amount):
            amounts[name] = amounts.get(name, Decimal(0)) + times * amount_of(amount)


def amount_of(value: object) -> Decimal:
    """Return a quantity, 0 for what is none: admission reports it where it stands."""
    try:
        return parse_quantity(value)
    except (ValueError, ArithmeticError):
        return Decimal(0)


def _text(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
