"""Figures of experiments in a notebook: `katib.plots.history("my-experiment")`.

Each function returns a `plotly.graph_objects.Figure`, which notebooks show. An experiment is given by its name, or by
what `katib.tune` returned. Every function raises InvalidError when the figure cannot be drawn of these trials or the
experiment does not have what was chosen, NotFoundError when there is no such experiment, UnavailableError when nobody
can be asked.

Written by tools/plot_functions.py from the catalogue of figures: change that, and run `python -m tools.plot_functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from katib.figures.data import Choice
from katib.sdk.drawing import Place, draw_comparison, draw_figure
from katib.tuning.service import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from katib.sdk.tuning import TuneResult

__all__ = [
    "ResultPlots",
    "comparison",
    "durations",
    "edf",
    "history",
    "intermediate",
    "stopping",
    "timeline",
]


def history(
    experiment: str | TuneResult,
    *,
    metric: str = "",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "History".

    The value of each trial in the order of their creation, and the best so far. A line that has long been flat says
    that more trials of the same kind will hardly help.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        metric: A metric in place of the objective.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(metric=metric)
    return draw_figure("history", experiment, choice, Place(data_dir, server, namespace))


def intermediate(
    experiment: str | TuneResult,
    *,
    metric: str = "",
    by: Literal["step", "time"] = "step",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Intermediate values".

    What trials reported while they ran. Curves that still improve at their end ask for longer trainings; curves that
    cross late warn of early stopping.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        metric: A metric in place of the objective.
        by: What the horizontal axis counts.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(metric=metric, by=by)
    return draw_figure("intermediate", experiment, choice, Place(data_dir, server, namespace))


def edf(
    experiment: str | TuneResult,
    *,
    metric: str = "",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Distribution".

    Which share of the trials reached which value. When the second half is no better than the first, the algorithm
    learns nothing from its trials.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        metric: A metric in place of the objective.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(metric=metric)
    return draw_figure("edf", experiment, choice, Place(data_dir, server, namespace))


def timeline(
    experiment: str | TuneResult,
    *,
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Timeline".

    When each trial ran, in as many slots as ran at once; of many trials, how many ran at once. Gaps are time in which
    nothing was tried: trials that wait for each other, for the algorithm, or for room.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice()
    return draw_figure("timeline", experiment, choice, Place(data_dir, server, namespace))


def durations(
    experiment: str | TuneResult,
    *,
    metric: str = "",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Durations".

    How long trials run by how they ended, and whether the long ones are better. Failures after a long time are the
    most expensive ones.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        metric: A metric in place of the objective.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(metric=metric)
    return draw_figure("durations", experiment, choice, Place(data_dir, server, namespace))


def stopping(
    experiment: str | TuneResult,
    *,
    by: Literal["step", "time"] = "step",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Early stopping".

    How far each trial came, which ones were stopped, and the share of the work that this saved.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        by: What the horizontal axis counts.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(by=by)
    return draw_figure("stopping", experiment, choice, Place(data_dir, server, namespace))


def comparison(
    experiments: Sequence[str | TuneResult],
    *,
    metric: str = "",
    by: Literal["step", "time"] = "step",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Comparison".

    The best so far of several experiments, against their trials or the time. The lower line at the same time is the
    better search; for an objective that is maximized, the higher one.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiments: Names of experiments, or results.
        metric: A metric in place of the objective.
        by: What the horizontal axis counts.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(metric=metric, by=by)
    return draw_comparison(experiments, choice, Place(data_dir, server, namespace))


@dataclass(frozen=True, slots=True)
class ResultPlots:
    """The figures of what `katib.tune` found: `result.plot.history()`.

    Args:
        result: What was returned.
    """

    result: TuneResult

    def history(
        self,
        *,
        metric: str = "",
    ) -> go.Figure:
        """Return the figure "History".

        The value of each trial in the order of their creation, and the best so far. A line that has long been flat
        says that more trials of the same kind will hardly help.

        Args:
            metric: A metric in place of the objective.
        """
        choice = Choice(metric=metric)
        return draw_figure("history", self.result, choice, Place())

    def intermediate(
        self,
        *,
        metric: str = "",
        by: Literal["step", "time"] = "step",
    ) -> go.Figure:
        """Return the figure "Intermediate values".

        What trials reported while they ran. Curves that still improve at their end ask for longer trainings; curves
        that cross late warn of early stopping.

        Args:
            metric: A metric in place of the objective.
            by: What the horizontal axis counts.
        """
        choice = Choice(metric=metric, by=by)
        return draw_figure("intermediate", self.result, choice, Place())

    def edf(
        self,
        *,
        metric: str = "",
    ) -> go.Figure:
        """Return the figure "Distribution".

        Which share of the trials reached which value. When the second half is no better than the first, the algorithm
        learns nothing from its trials.

        Args:
            metric: A metric in place of the objective.
        """
        choice = Choice(metric=metric)
        return draw_figure("edf", self.result, choice, Place())

    def timeline(
        self,
    ) -> go.Figure:
        """Return the figure "Timeline".

        When each trial ran, in as many slots as ran at once; of many trials, how many ran at once. Gaps are time in
        which nothing was tried: trials that wait for each other, for the algorithm, or for room.
        """
        choice = Choice()
        return draw_figure("timeline", self.result, choice, Place())

    def durations(
        self,
        *,
        metric: str = "",
    ) -> go.Figure:
        """Return the figure "Durations".

        How long trials run by how they ended, and whether the long ones are better. Failures after a long time are the
        most expensive ones.

        Args:
            metric: A metric in place of the objective.
        """
        choice = Choice(metric=metric)
        return draw_figure("durations", self.result, choice, Place())

    def stopping(
        self,
        *,
        by: Literal["step", "time"] = "step",
    ) -> go.Figure:
        """Return the figure "Early stopping".

        How far each trial came, which ones were stopped, and the share of the work that this saved.

        Args:
            by: What the horizontal axis counts.
        """
        choice = Choice(by=by)
        return draw_figure("stopping", self.result, choice, Place())
