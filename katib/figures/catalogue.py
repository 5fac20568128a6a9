"""All figures, by name: what the page, `katib plot` and notebooks offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from katib.errors import NotFoundError, invalid
from katib.figures.contour import draw_contour
from katib.figures.data import Choice, ExperimentData
from katib.figures.history import draw_history
from katib.figures.importance import draw_importances, importance_obstacle
from katib.figures.parallel import draw_parallel
from katib.figures.pareto import draw_hypervolume, draw_pareto, hypervolume_obstacle, pareto_obstacle
from katib.figures.rank import draw_rank
from katib.figures.slices import draw_slices

if TYPE_CHECKING:
    import plotly.graph_objects as go

Draw = Callable[[ExperimentData, Choice], "go.Figure"]
Obstacle = Callable[[ExperimentData], str]


def needs_a_value(data: ExperimentData) -> str:
    """Return that no trial has been measured yet, if so."""
    return "" if data.trials.measured.any() else "No trial has a value yet."


def needs_two_parameters(data: ExperimentData) -> str:
    """Return that there are no two parameters, or no measured trial, if so."""
    return needs_a_value(data) or ("" if len(data.trials.values) > 1 else "It takes two parameters.")


@dataclass(frozen=True, slots=True)
class FigureKind:
    """One figure.

    Attributes:
        name: In commands and addresses.
        title: In headings.
        tells: What it shows and how to read it, one or two sentences.
        draw: Draws it. Called only where `obstacle` finds none.
        obstacle: Says in a sentence why it cannot be drawn; empty when it can.
        curves: Whether it needs curves.
        chooses: Fields of `Choice` that concern it.
    """

    name: str
    title: str
    tells: str
    draw: Draw
    obstacle: Obstacle = needs_a_value
    curves: bool = False
    chooses: tuple[str, ...] = ()


FIGURES: tuple[FigureKind, ...] = (
    FigureKind(
        "history",
        "History",
        "The value of each trial in the order of their creation, and the best so far. A line that has long been flat "
        "says that more trials of the same kind will hardly help.",
        draw_history,
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
        "slice",
        "Slices",
        "What was reached against each parameter by itself. Where the upper or lower edge of the cloud leans, the "
        "parameter matters; where good trials stand at the end of an axis, the best value may lie beyond it.",
        draw_slices,
        chooses=("parameters", "metric"),
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
        "importances",
        "Importances",
        "How much each parameter matters, by a random forest that learned from the trials. Search on along those on "
        "top; fix those at the bottom. Believe it as far as the sentence below says.",
        draw_importances,
        importance_obstacle,
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
)
"""In the order in which they are shown."""

_BY_NAME = {figure.name: figure for figure in FIGURES}


def figure_named(name: str) -> FigureKind:
    """Return a figure.

    Raises:
        NotFoundError: There is none of that name; the error names all.
    """
    if name not in _BY_NAME:
        raise NotFoundError(f'there is no figure "{name}"; there are {", ".join(_BY_NAME)}')
    return _BY_NAME[name]


def draw(kind: FigureKind, data: ExperimentData, choice: Choice) -> go.Figure:
    """Return a figure.

    Raises:
        InvalidError: It cannot be drawn of these trials, or the choice names something that the experiment does not
            have.
    """
    for name in choice.parameters:
        if name not in data.trials.values:
            remedy = f"choose of {', '.join(data.trials.values)}"
            raise invalid("parameters", f'{data.name} has no parameter "{name}"', remedy, "figure-parameter")
    if obstacle := kind.obstacle(data):
        cause = f"{obstacle[:1].lower()}{obstacle[1:].removesuffix('.')}"
        raise invalid(f"figure {kind.name}", cause, "choose another one, or wait for more trials", "figure-impossible")
    return kind.draw(data, choice)
