"""Selection of a library's metrics to report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from katib.sdk.reporting import report


def report_chosen(values: Mapping[str, Any], metrics: Collection[str] | None, step: int) -> None:
    """Report the values that are numbers.

    Args:
        values: By name; anything but a single number is ignored.
        metrics: Names to report; None: all.
        step: Epoch, round or global step.
    """
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if metrics is None or name in metrics:
            try:
                numbers[name] = float(value)
            except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
                continue
    report(numbers, step=step)
