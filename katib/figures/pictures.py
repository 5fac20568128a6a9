"""The figures of a report, with the reason for those that cannot be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from katib.figures.catalogue import COMPARISON, check_choice, compare, draw, figure_named, why_impossible
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.reading import with_curves
from katib.service.tuning.service import TuningService

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure of a report."""

    name: str
    title: str
    tells: str
    figure: go.Figure | None
    obstacle: str = ""


def pictures_of(
    service: TuningService, data: ExperimentData, names: Sequence[str], choice: FigureOptions, *, strict: bool = False
) -> list[Picture]:
    """Return figures of one experiment; those that cannot be drawn with the reason, or with `strict` as an error.

    Raises:
        InvalidError: The choice names something that the experiment does not have, or with `strict` a figure cannot be
            drawn.
        NotFoundError: A figure does not exist.
        UnavailableError: The service cannot be reached.
    """
    check_choice(data, choice)
    pictures = []
    for kind in map(figure_named, names):
        read = with_curves(service, data, kind, choice)
        obstacle = "" if strict else why_impossible(kind, read, choice)
        figure = None if obstacle else draw(kind, read, choice)
        pictures.append(Picture(kind.name, kind.title, kind.tells, figure, obstacle))
    return pictures


def comparison_of(experiments: Sequence[ExperimentData], choice: FigureOptions) -> Picture:
    """Return the figure that compares several experiments.

    Raises:
        InvalidError: They cannot be compared.
    """
    return Picture(COMPARISON.name, COMPARISON.title, COMPARISON.tells, compare(experiments, choice))
