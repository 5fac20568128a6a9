"""All figures, by name: what the page, `katib plot` and notebooks offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from katib.errors import InvalidError, NotFoundError, invalid
from katib.figures.comparison import draw_comparison, why_incomparable
from katib.figures.curves import CurveChoice, chosen, evenly_ended
from katib.figures.data import WAYS, Choice, ExperimentData
from katib.figures.durations import draw_durations, no_trial_has_ended
from katib.figures.edf import draw_edf
from katib.figures.history import draw_history
from katib.figures.intermediate import curves_are_missing, draw_intermediate
from katib.figures.measure import measure_of
from katib.figures.parallel import draw_parallel
from katib.figures.stopping import draw_stopping, nothing_was_stopped
from katib.figures.timeline import draw_timeline, nothing_has_started

if TYPE_CHECKING:
    import plotly.graph_objects as go

Draw = Callable[[ExperimentData, Choice], "go.Figure"]
Obstacle = Callable[[ExperimentData], str]


def needs_a_value(data: ExperimentData) -> str:
    """Return that no trial has been measured yet, if so."""
    return "" if data.trials.measured.any() else "No trial has a value yet."


@dataclass(frozen=True, slots=True)
class FigureKind:
    """One figure.

    Attributes:
        name: In commands and addresses.
        title: In headings.
        tells: What it shows and how to read it, one or two sentences.
        draw: Draws it. Called only where `obstacle` finds none.
        obstacle: Says in a sentence why it cannot be drawn; empty when it can.
        curves: Says of which trials it needs curves; None: of none.
        chooses: Fields of `Choice` that concern it.
    """

    name: str
    title: str
    tells: str
    draw: Draw
    obstacle: Obstacle = needs_a_value
    curves: CurveChoice | None = None
    chooses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonKind:
    """One figure of several experiments; its attributes are those of `FigureKind`."""

    name: str
    title: str
    tells: str
    draw: Callable[[Sequence[ExperimentData], Choice], go.Figure]
    obstacle: Callable[[Sequence[ExperimentData], Choice], str]
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
        "intermediate",
        "Intermediate values",
        "What trials reported while they ran. Curves that still improve at their end ask for longer trainings; "
        "curves that cross late warn of early stopping.",
        draw_intermediate,
        curves_are_missing,
        curves=chosen,
        chooses=("metric", "by"),
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
    FigureKind(
        "parallel",
        "Parallel coordinates",
        "A line per trial through the values of its parameters to what it reached, the best in the strongest colour. "
        "Drag along an axis to keep only the lines that pass there: where the good ones meet is where to search on.",
        draw_parallel,
        chooses=("parameters",),
    ),
)
"""In the order in which they are shown."""

COMPARISON = ComparisonKind(
    "comparison",
    "Comparison",
    "The best so far of several experiments, against their trials or the time. The lower line at the same time is the "
    "better search; for an objective that is maximized, the higher one.",
    draw_comparison,
    why_incomparable,
    chooses=("metric", "by"),
)
"""The figure of several experiments."""

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
    check_choice(data, choice)
    if obstacle := why_impossible(kind, data, choice):
        raise _impossible(kind.name, obstacle, "choose another one, or wait for more trials")
    return kind.draw(data, choice)


def check_choice(data: ExperimentData, choice: Choice) -> None:
    """Check that an experiment has what a reader chose.

    Raises:
        InvalidError: It does not.
    """
    _check_way(choice)
    for name in choice.parameters:
        if name not in data.trials.values:
            remedy = f"choose of {', '.join(data.trials.values)}"
            raise invalid("parameters", f'{data.name} has no parameter "{name}"', remedy, "figure-parameter")
    if choice.metric and choice.metric not in data.trials.metrics:
        remedy = f"choose of {', '.join(data.trials.metrics)}"
        raise invalid("metric", f'{data.name} has no metric "{choice.metric}"', remedy, "figure-metric")
    known = tuple(objective.name for objective in data.trials.objectives)
    for name in choice.objectives:
        if name not in known:
            remedy = f"choose of {', '.join(known)}"
            raise invalid("objectives", f'{data.name} has no objective "{name}"', remedy, "figure-objective")


def why_impossible(kind: FigureKind, data: ExperimentData, choice: Choice) -> str:
    """Return in a sentence why a figure cannot be drawn; empty when it can."""
    obstacle = kind.obstacle(data)
    if obstacle or not choice.metric or "metric" not in kind.chooses or kind.curves:
        return obstacle
    return "" if measure_of(data.trials, choice.metric).drawn.any() else f"No trial has a value of {choice.metric} yet."


def compare(experiments: Sequence[ExperimentData], choice: Choice) -> go.Figure:
    """Return the figure of several experiments.

    Raises:
        InvalidError: They cannot be compared.
    """
    _check_way(choice)
    if obstacle := COMPARISON.obstacle(experiments, choice):
        raise _impossible(COMPARISON.name, obstacle, "choose experiments that optimize the same metric")
    return COMPARISON.draw(experiments, choice)


def _check_way(choice: Choice) -> None:
    if choice.by not in WAYS:
        raise invalid("by", f'there is no axis "{choice.by}"', f"choose of {', '.join(WAYS)}", "figure-axis")


def _impossible(name: str, obstacle: str, remedy: str) -> InvalidError:
    cause = f"{obstacle[:1].lower()}{obstacle[1:].removesuffix('.')}"
    return invalid(f"figure {name}", cause, remedy, "figure-impossible")
