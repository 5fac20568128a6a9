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
    "contour",
    "durations",
    "edf",
    "history",
    "hypervolume",
    "importances",
    "intermediate",
    "parallel",
    "pareto",
    "rank",
    "slice",
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
        by: What progress is counted in: steps (a comparison: trials) or time.
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
        by: What progress is counted in: steps (a comparison: trials) or time.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(by=by)
    return draw_figure("stopping", experiment, choice, Place(data_dir, server, namespace))


def parallel(
    experiment: str | TuneResult,
    *,
    parameters: Sequence[str] = (),
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Parallel coordinates".

    A line per trial through the values of its parameters to what it reached, the best in the strongest colour. Drag
    along an axis to keep only the lines that pass there: where the good ones meet is where to search on.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        parameters: Axes to show, in this order; none: those that tell most.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(parameters=tuple(parameters))
    return draw_figure("parallel", experiment, choice, Place(data_dir, server, namespace))


def slice(  # noqa: A001 - the name of the figure
    experiment: str | TuneResult,
    *,
    parameters: Sequence[str] = (),
    metric: str = "",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Slices".

    What was reached against each parameter by itself. Where the upper or lower edge of the cloud leans, the parameter
    matters; where good trials stand at the end of an axis, the best value may lie beyond it.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        parameters: Axes to show, in this order; none: those that tell most.
        metric: A metric in place of the objective.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(parameters=tuple(parameters), metric=metric)
    return draw_figure("slice", experiment, choice, Place(data_dir, server, namespace))


def contour(
    experiment: str | TuneResult,
    *,
    parameters: Sequence[str] = (),
    metric: str = "",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Contour".

    What was reached over two parameters together, guessed between the trials. A slanted valley or ridge says that the
    best value of one parameter depends on the other.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        parameters: Axes to show, in this order; none: those that tell most.
        metric: A metric in place of the objective.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(parameters=tuple(parameters), metric=metric)
    return draw_figure("contour", experiment, choice, Place(data_dir, server, namespace))


def rank(
    experiment: str | TuneResult,
    *,
    parameters: Sequence[str] = (),
    metric: str = "",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Rank".

    Each pair of parameters with the trials coloured by their rank. Good trials close together mark a region; good
    trials everywhere say that the pair does not matter.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        parameters: Axes to show, in this order; none: those that tell most.
        metric: A metric in place of the objective.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(parameters=tuple(parameters), metric=metric)
    return draw_figure("rank", experiment, choice, Place(data_dir, server, namespace))


def importances(
    experiment: str | TuneResult,
    *,
    metric: str = "",
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Importances".

    How much each parameter matters, by a random forest that learned from the trials. Search on along those on top; fix
    those at the bottom. Believe it as far as the sentence below says.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        metric: A metric in place of the objective.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(metric=metric)
    return draw_figure("importances", experiment, choice, Place(data_dir, server, namespace))


def pareto(
    experiment: str | TuneResult,
    *,
    objectives: Sequence[str] = (),
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Pareto front".

    The trials that no other beats in every objective. Which of them is best is yours to say; where the front bends
    sharply, a little less of one objective gains much of another.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        objectives: Axes, two or three; none: the first objectives.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(objectives=tuple(objectives))
    return draw_figure("pareto", experiment, choice, Place(data_dir, server, namespace))


def hypervolume(
    experiment: str | TuneResult,
    *,
    objectives: Sequence[str] = (),
    data_dir: str | Path | None = None,
    server: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> go.Figure:
    """Return the figure "Hypervolume".

    How much the front covers, trial by trial. A line that has long been flat says that the front hardly moves.

    Without server and data_dir the experiment is looked for where the command line looks.

    Args:
        experiment: Name of an experiment, or a result.
        objectives: Axes, two or three; none: the first objectives.
        data_dir: A data directory to read.
        server: The URL of a server to ask.
        namespace: Of the experiment.
    """
    choice = Choice(objectives=tuple(objectives))
    return draw_figure("hypervolume", experiment, choice, Place(data_dir, server, namespace))


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
        by: What progress is counted in: steps (a comparison: trials) or time.
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
            by: What progress is counted in: steps (a comparison: trials) or time.
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
            by: What progress is counted in: steps (a comparison: trials) or time.
        """
        choice = Choice(by=by)
        return draw_figure("stopping", self.result, choice, Place())

    def parallel(
        self,
        *,
        parameters: Sequence[str] = (),
    ) -> go.Figure:
        """Return the figure "Parallel coordinates".

        A line per trial through the values of its parameters to what it reached, the best in the strongest colour.
        Drag along an axis to keep only the lines that pass there: where the good ones meet is where to search on.

        Args:
            parameters: Axes to show, in this order; none: those that tell most.
        """
        choice = Choice(parameters=tuple(parameters))
        return draw_figure("parallel", self.result, choice, Place())

    def slice(
        self,
        *,
        parameters: Sequence[str] = (),
        metric: str = "",
    ) -> go.Figure:
        """Return the figure "Slices".

        What was reached against each parameter by itself. Where the upper or lower edge of the cloud leans, the
        parameter matters; where good trials stand at the end of an axis, the best value may lie beyond it.

        Args:
            parameters: Axes to show, in this order; none: those that tell most.
            metric: A metric in place of the objective.
        """
        choice = Choice(parameters=tuple(parameters), metric=metric)
        return draw_figure("slice", self.result, choice, Place())

    def contour(
        self,
        *,
        parameters: Sequence[str] = (),
        metric: str = "",
    ) -> go.Figure:
        """Return the figure "Contour".

        What was reached over two parameters together, guessed between the trials. A slanted valley or ridge says that
        the best value of one parameter depends on the other.

        Args:
            parameters: Axes to show, in this order; none: those that tell most.
            metric: A metric in place of the objective.
        """
        choice = Choice(parameters=tuple(parameters), metric=metric)
        return draw_figure("contour", self.result, choice, Place())

    def rank(
        self,
        *,
        parameters: Sequence[str] = (),
        metric: str = "",
    ) -> go.Figure:
        """Return the figure "Rank".

        Each pair of parameters with the trials coloured by their rank. Good trials close together mark a region; good
        trials everywhere say that the pair does not matter.

        Args:
            parameters: Axes to show, in this order; none: those that tell most.
            metric: A metric in place of the objective.
        """
        choice = Choice(parameters=tuple(parameters), metric=metric)
        return draw_figure("rank", self.result, choice, Place())

    def importances(
        self,
        *,
        metric: str = "",
    ) -> go.Figure:
        """Return the figure "Importances".

        How much each parameter matters, by a random forest that learned from the trials. Search on along those on top;
        fix those at the bottom. Believe it as far as the sentence below says.

        Args:
            metric: A metric in place of the objective.
        """
        choice = Choice(metric=metric)
        return draw_figure("importances", self.result, choice, Place())

    def pareto(
        self,
        *,
        objectives: Sequence[str] = (),
    ) -> go.Figure:
        """Return the figure "Pareto front".

        The trials that no other beats in every objective. Which of them is best is yours to say; where the front bends
        sharply, a little less of one objective gains much of another.

        Args:
            objectives: Axes, two or three; none: the first objectives.
        """
        choice = Choice(objectives=tuple(objectives))
        return draw_figure("pareto", self.result, choice, Place())

    def hypervolume(
        self,
        *,
        objectives: Sequence[str] = (),
    ) -> go.Figure:
        """Return the figure "Hypervolume".

        How much the front covers, trial by trial. A line that has long been flat says that the front hardly moves.

        Args:
            objectives: Axes, two or three; none: the first objectives.
        """
        choice = Choice(objectives=tuple(objectives))
        return draw_figure("hypervolume", self.result, choice, Place())
