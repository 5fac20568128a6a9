"""Resources of a job, such as `nvidia.com/gpu`: the API server's rules on requests and limits.

It refuses a pod that requests a fraction of a device, more or fewer devices than its limit, or more of any other
resource than its limit. Jobs of kinds other than Job are stored in any case; only their pods are refused later. So the
rule is checked here for all kinds, in every `resources`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from katib.errors import FieldError
from katib.model.quantities import parse_quantity
from katib.model.templates.placeholders import has_placeholder
from katib.model.wording import path_to, shown

_NODE_RESOURCES: Final = "resourcesPerNode"
"""Field of a TrainJob; its runtime may define the limits."""


def is_device(name: str) -> bool:
    """Return whether a resource is an extended one: of a domain other than Kubernetes'."""
    return "/" in name and "kubernetes.io/" not in name


def device_errors(value: Any, path: str) -> list[FieldError]:
    """Return the errors of an object's resources.

    Args:
        value: The object or a part of it, with or without placeholders; may be malformed.
    """
    return list(_walk(value, path))


def _walk(value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _walk(item, f"{path}[{i}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            place = path_to(path, str(key))
            if key in {"resources", _NODE_RESOURCES} and isinstance(item, Mapping):
                yield from _check(item, place, needs_limit=key != _NODE_RESOURCES)
            else:
                yield from _walk(item, place)


def _check(resources: Mapping[str, Any], path: str, *, needs_limit: bool) -> Iterator[FieldError]:
    given = {field: resources.get(field) for field in ("limits", "requests")}
    limits, requests = ({str(k): v for k, v in m.items()} if isinstance(m, Mapping) else {} for m in given.values())
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            number = _number(value)
            if is_device(name) and number is not None and number % 1:
                place = path_to(f"{path}.{field}", name)
                yield FieldError(place, f"{shown(value)} is not a whole number", "ask for whole devices", "device-part")
    for name in requests:
        if not is_device(name):
            asked, limit = _number(requests[name]), _number(limits.get(name))
            if asked is not None and limit is not None and asked > limit:
                cause = f"{shown(requests[name])} is above the limit, {shown(limits[name])}"
                place, remedy = path_to(f"{path}.requests", name), "request less, or raise the limit"
                yield FieldError(place, cause, remedy, "request-above-limit")
            continue
        if name not in limits:
            if needs_limit and not has_placeholder(name):
                place, remedy = path_to(f"{path}.limits", name), "give the number here, as in requests"
                yield FieldError(place, "it is missing, and devices need a limit", remedy, "device-limit")
            continue
        asked, limit = _number(requests[name]), _number(limits[name])
        if asked is not None and limit is not None and asked != limit:
            cause = f"{shown(requests[name])} differs from the limit, {shown(limits[name])}"
            place, remedy = path_to(f"{path}.requests", name), "give the same number, or the limit alone"
            yield FieldError(place, cause, remedy, "device-limit")


def _number(value: object) -> Decimal | None:
    """Return the number; None if it is not known yet, or malformed."""
    try:
        return None if isinstance(value, bool) else parse_quantity(value)
    except (ValueError, ArithmeticError):
        return None
