"""Early stopping algorithms by name, with settings as text and curves as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

from katib.model.types import AlgorithmSetting
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.early_stopping import CostCurve, CurveState, StoppingAlgorithm, StoppingProblem
from suggestion_services.early_stopping.algorithm import settings_of

NAMES = tuple(entry.info.name for entry in ENTRIES if entry.info.early_stopping)


def an_algorithm(name: str, *, maximize: bool = False, **settings: object) -> StoppingAlgorithm:
    entry = find_entry(name, early_stopping=True)
    given = [AlgorithmSetting(name=key, value=str(value)) for key, value in settings.items()]
    cls: type[StoppingAlgorithm] = entry.load()
    return cls(StoppingProblem("loss", maximize=maximize, settings=settings_of(cls, entry.info, given)))


def running(name: str, *values: float, steps: Sequence[int] | None = None, maximize: bool = False) -> CostCurve:
    return CostCurve.of(name, values, steps=steps, maximize=maximize)


def succeeded(name: str, *values: float, steps: Sequence[int] | None = None, maximize: bool = False) -> CostCurve:
    return CostCurve.of(name, values, steps=steps, standing=CurveState.SUCCEEDED, maximize=maximize)


def stopped(name: str, *values: float) -> CostCurve:
    return CostCurve.of(name, values, standing=CurveState.STOPPED)


def names(algorithm: StoppingAlgorithm, *curves: CostCurve) -> list[str]:
    """Return whom the algorithm would stop."""
    return [verdict.trial_name for verdict in algorithm.judge(curves)]
