"""Reading the input of figures through a tuning service."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from katib.errors import NotFoundError
from katib.figures.catalogue import FigureKind
from katib.figures.curves import CURVE_POINTS, curve_of, evenly
from katib.figures.data import Curve, ExperimentData, FigureOptions
from katib.figures.trials import TrialTable
from katib.model.types import Experiment
from katib.service.tuning.service import TuningService
from katib.service.tuning.titles import name_meant
from katib.service.tuning.trial_pages import each_trial

MOST_KEPT = 1_000
"""Cached curves: some kilobytes each."""


def read_experiment(service: TuningService, namespace: str, name: str) -> ExperimentData:
    """Read an experiment, by name or title, with all of its trials and without curves.

    Raises:
        NotFoundError: The experiment does not exist.
        UnavailableError: The service cannot be reached.
    """
    experiment = service.get(Experiment, namespace, name_meant(service, namespace, name))
    name = experiment.name
    return ExperimentData(experiment, TrialTable.of(experiment, each_trial(service, namespace, name)), now=time.time())


def with_curves(
    service: TuningService,
    data: ExperimentData,
    kind: FigureKind,
    choice: FigureOptions,
    kept: CurveCache | None = None,
) -> ExperimentData:
    """Return the data with the curves that a figure needs; unchanged if it needs none.

    Raises:
        UnavailableError: The service cannot be reached.
    """
    if kind.curves is None:
        return data
    trials, namespace = data.trials, data.experiment.namespace
    metric = choice.metric or trials.objective.name
    curves = {}
    select = evenly if choice.group else kind.curves  # a mean is not of the best and the worst
    for row in select(trials).tolist():
        name = str(trials.names[row])

        def read(name: str = name, started: float = float(trials.started[row])) -> Curve:
            return curve_of(service.curve(namespace, name, points=CURVE_POINTS, metric=metric), started)

        try:
            if kept is None or math.isnan(trials.ended[row]):
                curve = read()
            else:
                curve = kept.curve((namespace, name, metric, float(trials.ended[row])), read)
        except NotFoundError:
            continue  # deleted since the trials were read
        if len(curve.values):
            curves[name] = curve
    return replace(data, curves=curves)


@dataclass(slots=True)
class CurveCache:
    """Cache of the last 1,000 requested curves of ended trials, which no longer change.

    Thread-safe. Create one per user: its curves were read with their rights.
    """

    _curves: OrderedDict[Hashable, Curve] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def curve(self, key: Hashable, read: Callable[[], Curve]) -> Curve:
        """Return the curve of that key, read if missing. Two threads may read the same one."""
        with self._lock:
            if (found := self._curves.get(key)) is not None:
                self._curves.move_to_end(key)
                return found
        found = read()
        with self._lock:
            self._curves[key] = found
            while len(self._curves) > MOST_KEPT:
                self._curves.popitem(last=False)
        return found
