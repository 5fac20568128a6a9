"""The program of a trial of a function: `python -m katib.sdk.trial PAYLOAD name=value ...`."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from katib.sdk.payload import Payload, takes_mapping
from katib.sdk.reporting import last_step, report


def main(argv: list[str]) -> None:
    """Call the function with the assignments of one trial and report what it returns."""
    payload = Payload.load(Path(argv[0]))
    metrics = called(payload, payload.arguments(argv[1:]))
    if metrics:
        report(metrics, step=last_step())  # the end of a curve, wherever that stands


def called(payload: Payload, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Call the function, and return its metrics; none where it reported itself.

    Raises:
        TypeError: It returned something else.
    """
    if takes_mapping(payload.function, arguments):
        result = payload.function(dict(arguments))
    else:
        result = payload.function(**arguments)
    # A result is a number, a mapping, or nothing when the function reported itself.
    if result is None:
        return {}
    if isinstance(result, Mapping):
        return {str(name): float(value) for name, value in result.items()}
    if isinstance(result, numbers.Real) or hasattr(result, "__float__"):
        return {payload.objective: float(result)}
    raise TypeError(f"the function returned {type(result).__name__}; return a number, a mapping of metrics, or None")


if __name__ == "__main__":
    main(sys.argv[1:])
