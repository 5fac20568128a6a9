"""Reporting metrics from a trial."""

from __future__ import annotations

import sys


def report(**metrics: float) -> None:
    """Report readings of metrics, such as once per epoch: `report(accuracy=0.91, loss=0.3)`.

    It prints them in the form that the collector reads, so a function that calls it also runs outside of a trial.
    """
    sys.stdout.write(" ".join(f"{name}={float(value)!r}" for name, value in metrics.items()) + "\n")
    sys.stdout.flush()
