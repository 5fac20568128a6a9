"""What a container may use: the values given, completed by Katib's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from katib.api.quantities import parse_quantity

Quantities = Mapping[str, str]

DEFAULT_REQUESTS: Quantities = {"cpu": "50m", "memory": "10Mi", "ephemeral-storage": "500Mi"}
DEFAULT_LIMITS: Quantities = {"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "5Gi"}


def completed(requests: Quantities, limits: Quantities) -> dict[str, dict[str, str]]:
    """Return the resources of a container.

    A missing entry gets its default, a negative one goes. Other than in Katib, a default gives way to what was given:
    a request above its limit is refused by every API server, so that nothing would start.

    Raises:
        ValueError: A value is no quantity.
    """
    full_requests = {**DEFAULT_REQUESTS, **requests}
    full_limits = {**DEFAULT_LIMITS, **limits}
    for name in full_requests.keys() & full_limits.keys():
        request, limit = parse_quantity(full_requests[name]), parse_quantity(full_limits[name])
        if 0 <= limit < request:
            if name not in requests:
                full_requests[name] = full_limits[name]
            elif name not in limits:
                full_limits[name] = full_requests[name]
    return {"requests": _without_negative(full_requests), "limits": _without_negative(full_limits)}


def _without_negative(quantities: Quantities) -> dict[str, str]:
    return {name: text for name, text in quantities.items() if parse_quantity(text) >= Decimal(0)}
