"""All figures by name, for the page, `katib plot` and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from katib.errors import InvalidError, NotFoundError, invalid
from katib.figures.comparison import draw_comparison, why_incomparable
from katib.figures.contour import draw_contour
from katib.figures.curves import CurveChoice, chosen, evenly_ended
from katib.figures.data import WAYS, ExperimentData, FigureOptions, measure_of
from katib.figures.durations import draw_durations, no_trial_has_ended
from katib.figures.groups import TAG
from katib.figures.history import draw_edf, draw_history
from katib.figures.importance import draw_importances, importance_obstacle
from katib.figures.intermediate import curves_are_missing, draw_intermediate
from katib.figures.parallel import draw_parallel
from katib.figures.pareto import draw_hypervolume, draw_pareto, hypervolume_obstacle, pareto_obstacle
from katib.figures.rank import draw_rank
from katib.figures.scatter import draw_matrix, draw_scatter, scatter_columns, scatter_obstacle
from katib.figures.slices import draw_slices
from katib.figures.stopping import draw_stopping, nothing_was_stopped
from katib.figures.timeline import draw_timeline, nothing_has_started

if TYPE_CHECKING:
    import plotly.graph_objects as go

Draw = Callable[[ExperimentData, FigureOptions], "go.Figure"]
Obstacle = Callable[[ExperimentData], str]


def needs_a_value(data: ExperimentData) -> str:
    """Return an obstacle if no trial has been measured yet."""
    return "" if measure_of(data.trials).drawn.any() else "No trial has a value yet."


def needs_two_parameters(data: ExperimentData) -> str:
    """Return an obstacle if there are fewer than two parameters, or no measured trial."""
    return needs_a_value(data) or ("" if len(data.trials.values) > 1 else "It takes two parameters.")


def needs_a_parameter(data: ExperimentData) -> str:
    """Return an obstacle if no trial has been measured, or trials have no parameters."""
    return needs_a_value(data) or ("" if data.trials.values else "The trials have no parameters.")


@dataclass(frozen=True, slots=True)
class FigureKind:
    """A figure of one experiment.

    Attributes:
        name: Name in commands and addresses.
        tells: Its content and interpretation, one or two sentences.
        draw: Draws it. Called only if `obstacle` finds none.
        obstacle: Returns a sentence why it cannot be drawn; empty if it can.
        curves: Selects the trials whose curves it needs; None: none.
        chooses: Fields of the choice that it uses.
        keep_seconds: How long it is cached although trials have changed, because it takes long to draw.
    """

    name: str
    title: str
    tells: str
    draw: Draw
    obstacle: Obstacle = needs_a_value
    curves: CurveChoice | None = None
    chooses: tuple[str, ...] = ()
    keep_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ComparisonKind:
    """A figure of several experiments; its attributes are those of `FigureKind`."""

    name: str
    title: str
    tells: str
    chooses: tuple[str, ...] = ()


FIGURES: tuple[FigureKind, ...] = (
    FigureKind(
        "history",
        "History",
        "The value of each trial in the order of their creation, and the best so far. A line that has long been flat "
        "says that more trials of the same kind will hardly help.",
        draw_history,
        chooses=("metric",),
    ),
    FigureKind(
        "pareto",
        "Pareto front",
        "The trials that no other beats in every objective. Which of them is best is yours to say; where the front "
        "bends sharply, a little less of one objective gains much of another.",
        draw_pareto,
        pareto_obstacle,
        chooses=("objectives",),
    ),
    FigureKind(
        "hypervolume",
        "Hypervolume",
        "How much the front covers, trial by trial. A line that has long been flat says that the front hardly moves.",
        draw_hypervolume,
        hypervolume_obstacle,
        chooses=("objectives",),
    ),
    FigureKind(
        "intermediate",
        "Intermediate values",
        "What trials reported while they ran. Curves that still improve at their end ask for longer trainings; "
        "curves that cross late warn of early stopping.",
        draw_intermediate,
        curves_are_missing,
        curves=chosen,
        chooses=("metric", "by", "group"),
    ),
    FigureKind(
        "parallel",
        "Parallel coordinates",
        "A line per trial through the values of its parameters to what it reached, the best in the strongest colour. "
        "Drag along an axis to keep only the lines that pass there: where the good ones meet is where to search on.",
        draw_parallel,
        chooses=("parameters",),
    ),
    FigureKind(
        "importances",
        "Importances",
        "Which share of the variance of the objective each parameter explains (fANOVA): alone, and in lighter colour "
        "with others. On the right whether larger values come with larger ones of the objective. Search on along those "
        "on top; fix those at the bottom. Believe it as far as the sentence below says.",
        draw_importances,
        importance_obstacle,
        chooses=("metric",),
        keep_seconds=10.0,
    ),
    FigureKind(
        "slice",
        "Slices",
        "What was reached against each parameter by itself. Where the upper or lower edge of the cloud leans, the "
        "parameter matters; where good trials stand at the end of an axis, the best value may lie beyond it.",
        draw_slices,
        needs_a_parameter,
        chooses=("parameters", "metric"),
    ),
    FigureKind(
        "scatter",
        "Scatter plot",
        "Any two of parameters, metrics and the duration against each other, with a third as colour. A metric against "
        "the duration shows the cost of a good value.",
        draw_scatter,
        scatter_obstacle,
        chooses=("axes",),
    ),
    FigureKind(
        "matrix",
        "Matrix",
        "Each pair of up to six parameters, metrics and the duration, coloured by the objective. Pairs that lie along "
        "a line measure the same.",
        draw_matrix,
        scatter_obstacle,
        chooses=("axes",),
    ),
    FigureKind(
        "contour",
        "Contour",
        "What was reached over two parameters together, guessed between the trials. A slanted valley or ridge says "
        "that the best value of one parameter depends on the other.",
        draw_contour,
        needs_two_parameters,
        chooses=("parameters", "metric"),
    ),
    FigureKind(
        "rank",
        "Rank",
        "Each pair of parameters with the trials coloured by their rank. Good trials close together mark a region; "
        "good trials everywhere say that the pair does not matter.",
        draw_rank,
        needs_two_parameters,
        chooses=("parameters", "metric"),
    ),
    FigureKind(
        "edf",
        "Distribution",
        "Which share of the trials reached which value. When the second half is no better than the first, the "
        "algorithm learns nothing from its trials.",
        draw_edf,
        chooses=("metric",),
    ),
    FigureKind(
        "timeline",
        "Timeline",
        "When each trial ran, in as many slots as ran at once; of many trials, how many ran at once. Gaps are time "
        "in which nothing was tried: trials that wait for each other, for the algorithm, or for room.",
        draw_timeline,
        nothing_has_started,
    ),
    FigureKind(
        "durations",
        "Durations",
        "How long trials run by how they ended, and whether the long ones are better. Failures after a long time are "
        "the most expensive ones.",
        draw_durations,
        no_trial_has_ended,
        chooses=("metric",),
    ),
    FigureKind(
        "stopping",
        "Early stopping",
        "How far each trial came, which ones were stopped, and the share of the work that this saved.",
        draw_stopping,
        nothing_was_stopped,
        curves=evenly_ended,
        chooses=("by",),
    ),
)
"""In the order of display: results, the effect of parameters, the course of the trials."""

COMPARISON = ComparisonKind(
    "comparison",
    "Comparison",
    "The best so far of several experiments, against their trials or the time. The lower line at the same time is the "
    "better search; for an objective that is maximized, the higher one.",
    chooses=("metric", "by"),
)
"""The figure of several experiments."""

_BY_NAME = {figure.name: figure for figure in FIGURES}


def figure_named(name: str) -> FigureKind:
    """Return the figure of a name.

    Raises:
        NotFoundError: The name is unknown; the error lists all.
    """
    if name not in _BY_NAME:
        raise NotFoundError(f'there is no figure "{name}"; there are {", ".join(_BY_NAME)}')
    return _BY_NAME[name]


def draw(kind: FigureKind, data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw a figure.

    Raises:
        InvalidError: It cannot be drawn for these trials, or the choice names something that the experiment does not
            have.
    """
    check_choice(data, choice)
    if obstacle := why_impossible(kind, data, choice):
        raise _impossible(kind.name, obstacle, "choose another one, or wait for more trials")
    return kind.draw(data, choice)


def check_choice(data: ExperimentData, choice: FigureOptions) -> None:
    """Check that an experiment has the chosen parameters, metric and objectives.

    Raises:
        InvalidError: It lacks one of them.
    """
    _check_way(choice)
    for name in choice.parameters:
        if name not in data.trials.values:
            remedy = f"choose of {', '.join(data.trials.values)}"
            raise invalid("parameters", f'{data.name} has no parameter "{name}"', remedy, "figure-parameter")
    if choice.metric and choice.metric not in data.trials.metrics:
        remedy = f"choose of {', '.join(data.trials.metrics)}"
        raise invalid("metric", f'{data.name} has no metric "{choice.metric}"', remedy, "figure-metric")
    columns = scatter_columns(data.trials)
    for name in choice.axes:
        if name not in columns:
            cause = f'{data.name} has no parameter or metric "{name}"'
            raise invalid("axes", cause, f"choose of {', '.join(columns)}", "figure-scatter-axis")
    if choice.group and choice.group not in (TAG, *data.trials.values):
        remedy = f"choose of {', '.join((*data.trials.values, TAG))}"
        raise invalid("group", f'{data.name} has no parameter "{choice.group}"', remedy, "figure-group")
    known = tuple(objective.name for objective in data.trials.objectives)
    for name in choice.objectives:
        if name not in known:
            remedy = f"choose of {', '.join(known)}"
            raise invalid("objectives", f'{data.name} has no objective "{name}"', remedy, "figure-objective")


def why_impossible(kind: FigureKind, data: ExperimentData, choice: FigureOptions) -> str:
    """Return a sentence why a figure cannot be drawn; empty if it can."""
    obstacle = kind.obstacle(data)
    if obstacle or not choice.metric or "metric" not in kind.chooses or kind.curves:
        return obstacle
    return "" if measure_of(data.trials, choice.metric).drawn.any() else f"No trial has a value of {choice.metric} yet."


def compare(
    experiments: Sequence[ExperimentData], choice: FigureOptions, groups: Mapping[str, Sequence[int]] | None = None
) -> go.Figure:
    """Return the figure of several experiments, or of groups of them (indices by name).

    Raises:
        InvalidError: They cannot be compared.
    """
    _check_way(choice)
    if obstacle := why_incomparable(experiments, choice, grouped=groups is not None):
        raise _impossible(COMPARISON.name, obstacle, "choose experiments that optimize the same metric")
    return draw_comparison(experiments, choice, groups)


def _check_way(choice: FigureOptions) -> None:
    if choice.by not in WAYS:
        raise invalid("by", f'there is no axis "{choice.by}"', f"choose of {', '.join(WAYS)}", "figure-axis")


def _impossible(name: str, obstacle: str, remedy: str) -> InvalidError:
    cause = f"{obstacle[:1].lower()}{obstacle[1:].removesuffix('.')}"
    return invalid(f"figure {name}", cause, remedy, "figure-impossible")
