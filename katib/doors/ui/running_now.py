"""The running trials of an experiment while its page is open: the newest value of each, and the curve up to it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from katib.doors.ui.numbers import four_digits
from katib.doors.ui.tables import Snapshot
from katib.doors.ui.trial_columns import exact, iso_time
from katib.errors import KatibError
from katib.figures.curves import CURVE_POINTS, curve_of
from katib.figures.style import places
from katib.service.tuning.service import TuningService

MOST = 20
"""Maximum number of trials, the newest: each costs a query a second."""


def running_now(service: TuningService, snapshot: Snapshot) -> dict[str, Any]:
    """Return the running trials by name: number, start, newest value of the objective, and finite values of its curve.

    A trial whose readings cannot be read, or that has none, has no value.
    """
    trials, found = snapshot.trials, {}
    for row in places(trials.in_states("Running"))[-MOST:].tolist():
        name, curve = str(trials.names[row]), np.empty(0)
        with suppress(KatibError):
            curve = curve_of(service.curve(snapshot.experiment.namespace, name, points=CURVE_POINTS), np.nan).values
        curve = curve[np.isfinite(curve)]
        value = float(curve[-1]) if len(curve) else None
        found[name] = {
            "number": row + 1,
            "since": iso_time(trials.started[row]),
            "value": value,
            "text": "" if value is None else four_digits(value),
            "exact": "" if value is None else exact(value),
            "curve": curve.tolist(),
        }
    return found
