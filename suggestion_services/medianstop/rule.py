"""The median stopping rule, without gRPC and log: fixed at the start of a trial, or applied to running trials.

Notation: n completed trials; r_i1, r_i2, ... the objective readings of trial i in order of time; s the start step.
Source: [Golovin2017] Google Vizier: A Service for Black-Box Optimization, KDD 2017, section 3.2.2.

A trial is stopped at step s when its best reading up to s is worse than the median over i of the running averages
(r_i1 + ... + r_is) / s.

Differs from the paper: the trial is judged once, at step s, since a rule of this protocol can express no more. Differs
from Katib's service of this name, which compares with the arithmetic mean of the running averages, so that one diverged
trial (loss 1e9) disables early stopping permanently; the median is unaffected.

NaN policy: readings that are not finite are skipped, as if the trial had not reported them. A trial without any usable
reading among its first s does not count.

For running trials the comparison is the same, with the trials that have succeeded so far: a trial past the start step
is judged as soon as enough of them have succeeded, and again whenever another succeeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from katib.errors import FieldError, InvalidError
from katib.model.metrics import is_usable
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.base.settings import LiteralError
from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, StoppingVerdict, running
from suggestion_services.early_stopping.curves import CostCurve, CurveState

NAME = "medianstop"

_PATH = "spec.earlyStopping.algorithmSettings"
_MAX_INT32 = 2**31 - 1  # the limit of start_step in the message


@dataclass(frozen=True, slots=True)
class MedianRule:
    """The settings.

    Attributes:
        min_trials_required: Number of trials that must count before there is a rule.
        start_step: Number of readings to average, and the reading at which a trial is judged.
    """

    min_trials_required: int = 3
    start_step: int = 4

    @classmethod
    def of(cls, spec: pb.EarlyStoppingSpec) -> MedianRule:
        """Read the settings.

        Raises:
            InvalidError: Another algorithm's name, unknown settings or wrong values, with the messages of Katib's
                service.
        """
        if spec.algorithm_name not in ("", NAME):  # Katib's service does not require a name
            cause = f"unknown algorithm name {spec.algorithm_name}"
            raise InvalidError(
                [LiteralError("spec.earlyStopping.algorithmName", cause, f"use {NAME}", "algorithm-unknown")]
            )
        values: dict[str, int] = {}
        errors: list[FieldError] = []
        for setting in spec.algorithm_settings:
            try:
                values[setting.name] = _value(setting)
            except ValueError as error:
                path = f"{_PATH}.{setting.name}"
                errors.append(LiteralError(path, str(error), "see the algorithm's settings", "setting-value"))
        if errors:
            raise InvalidError(errors)
        return cls(**values)

    def average(self, readings: Iterable[str]) -> float | None:
        """Return the running average of a trial at the start step; None if no reading is usable."""
        numbers = [float(text) for text in islice(readings, self.start_step) if is_usable(text)]
        return statistics.fmean(numbers) if numbers else None

    def threshold(self, averages: Sequence[float]) -> float | None:
        """Return the bar for trials; None while too few trials count."""
        return statistics.median(averages) if len(averages) >= self.min_trials_required else None


def _value(setting: pb.EarlyStoppingSetting) -> int:
    if setting.name not in ("min_trials_required", "start_step"):
        raise ValueError(f"unknown setting {setting.name} for algorithm {NAME}")
    try:
        value = int(setting.value)
    except ValueError as error:
        raise ValueError(f"failed to validate {setting.name}({setting.value}): {error}") from error
    if value > _MAX_INT32:
        raise ValueError(f"failed to validate {setting.name}({setting.value}): above {_MAX_INT32}")
    if setting.name == "min_trials_required" and value <= 0:
        raise ValueError("min_trials_required must be greater than zero (>0)")
    if setting.name == "start_step" and value < 1:
        raise ValueError("start_step must be greater or equal than one (>=1)")
    return value


class MedianStopping(StoppingAlgorithm):
    """Stops a trial whose best reading so far is worse than the median of earlier trials' averages at the start."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        defaults = MedianRule()
        self._rule = MedianRule(
            problem.settings.whole("min_trials_required", defaults.min_trials_required),
            problem.settings.whole("start_step", defaults.start_step),
        )

    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Compare every running trial that has reached the start step."""
        averages = [a for a in map(self._average, curves) if a is not None]
        bar = self._rule.threshold(averages)
        if bar is None:
            return []
        due = (curve for curve in running(curves) if len(curve) >= self._rule.start_step and curve.best > bar)
        return [self.worse_best(curve, bar, f"the median of {len(averages)} trials") for curve in due]

    def _average(self, curve: CostCurve) -> float | None:
        """Return the running average of a succeeded trial at the start step."""
        if curve.standing is not CurveState.SUCCEEDED:
            return None
        usable = [cost for cost in curve.costs[: self._rule.start_step] if not math.isnan(cost)]
        return statistics.fmean(usable) if usable else None
