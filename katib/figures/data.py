"""What a figure is drawn from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from katib.figures.trials import Floats, TrialTable
from katib.tuning.reading import Json, name_of

WAYS = ("step", "time")
"""What the horizontal axis of curves may count."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a trial reported of a metric, in order.

    Attributes:
        values: The readings; NaN where one is no number.
        steps: The step of the training of each; None where the program did not say.
        seconds: Since the start of the trial; NaN for a reading without a time.
        is_whole: Whether it has all readings, so that they can be counted.
    """

    values: Floats
    steps: Floats | None
    seconds: Floats
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class ExperimentData:
    """An experiment as figures see it.

    Attributes:
        experiment: The Experiment.
        trials: All of its trials.
        curves: Curves of the asked metric by the trial's name, of those trials that the figure's `curves` names;
            empty for figures that need none.
        now: When all of this was so, in seconds since 1970: what still runs is drawn until then. NaN: not known.
    """

    experiment: Json
    trials: TrialTable
    curves: Mapping[str, Curve] = field(default_factory=lambda: MappingProxyType({}))
    now: float = math.nan

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return name_of(self.experiment)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reader may choose of a figure; each figure uses what concerns it.

    Attributes:
        parameters: Axes to show, in order; empty: those that the figure finds most telling.
        metric: In place of the objective; empty: the objective.
        by: What the horizontal axis counts: `step` (of a training, or in a comparison the trials) or `time`.
        objectives: Axes of a Pareto front, two or three; empty: the first ones.
    """

    parameters: tuple[str, ...] = ()
    metric: str = ""
    by: str = "step"
    objectives: tuple[str, ...] = ()
