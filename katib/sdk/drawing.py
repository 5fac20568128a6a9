"""The implementation of `katib.plots`: finds the service of an experiment, reads it, draws the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from katib.figures.catalogue import check_choice, compare, draw, figure_named
from katib.figures.data import FigureOptions
from katib.figures.reading import read_experiment, with_curves
from katib.sdk.homes import ExperimentPlace, open_service
from katib.service.tuning.titles import namespace_in_use

if TYPE_CHECKING:
    import plotly.graph_objects as go


class KeptExperiment(Protocol):
    """An experiment with its name and place, such as the result of `katib.tune`."""

    @property
    def name(self) -> str:
        """Name of the experiment."""

    @property
    def place(self) -> ExperimentPlace:
        """Where it is kept."""


def draw_figure(
    name: str, experiment: str | KeptExperiment, choice: FigureOptions, place: ExperimentPlace
) -> go.Figure:
    """Return a figure of an experiment, given by its name or by a result of `katib.tune`.

    Raises:
        InvalidError: It cannot be drawn, or the experiment lacks a chosen part.
        NotFoundError: The experiment does not exist.
        UnavailableError: No server answers, and there is no data directory.
    """
    kind = figure_named(name)
    title, place = _name_and_place(experiment, place)
    with open_service(place) as service:
        data = read_experiment(service, place.namespace or namespace_in_use(service), title)
        check_choice(data, choice)
        return draw(kind, with_curves(service, data, kind, choice), choice)


def draw_comparison(
    experiments: Sequence[str | KeptExperiment], choice: FigureOptions, place: ExperimentPlace
) -> go.Figure:
    """Return the figure of several experiments; see `draw_figure`."""
    found = []
    for experiment in experiments:
        title, own = _name_and_place(experiment, place)
        with open_service(own) as service:
            found.append(read_experiment(service, own.namespace or namespace_in_use(service), title))
    return compare(found, choice)


def _name_and_place(experiment: str | KeptExperiment, place: ExperimentPlace) -> tuple[str, ExperimentPlace]:
    """Return the name and place of an experiment; a result has its own."""
    if isinstance(experiment, str):
        return experiment.removeprefix("experiment/"), place
    if place.server is None and place.data_dir is None:
        place = experiment.place
    return experiment.name, place
