"""What `katib.plots` does: find the service that knows an experiment, read it, draw the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from katib.figures.catalogue import check_choice, compare, draw, figure_named
from katib.figures.data import FigureOptions
from katib.figures.reading import read_experiment, with_curves
from katib.sdk.homes import Place, open_service
from katib.service.tuning.titles import namespace_in_use

if TYPE_CHECKING:
    import plotly.graph_objects as go


class KeptExperiment(Protocol):
    """What knows of an experiment its name and where it is kept, such as what `katib.tune` returned."""

    @property
    def name(self) -> str:
        """Name of the experiment."""

    @property
    def place(self) -> Place:
        """Where it is kept."""


def draw_figure(name: str, experiment: str | KeptExperiment, choice: FigureOptions, place: Place) -> go.Figure:
    """Return a figure of an experiment, given by its name or by what `katib.tune` returned.

    Raises:
        InvalidError: It cannot be drawn, or the experiment does not have what was chosen.
        NotFoundError: There is no such experiment.
        UnavailableError: No server answers, and there is no data directory.
    """
    kind = figure_named(name)
    title, place = _name_and_place(experiment, place)
    with open_service(place) as service:
        data = read_experiment(service, place.namespace or namespace_in_use(service), title)
        check_choice(data, choice)
        return draw(kind, with_curves(service, data, kind, choice), choice)


def draw_comparison(experiments: Sequence[str | KeptExperiment], choice: FigureOptions, place: Place) -> go.Figure:
    """Return the figure of several experiments; otherwise as `draw_figure`."""
    found = []
    for experiment in experiments:
        title, own = _name_and_place(experiment, place)
        with open_service(own) as service:
            found.append(read_experiment(service, own.namespace or namespace_in_use(service), title))
    return compare(found, choice)


def _name_and_place(experiment: str | KeptExperiment, place: Place) -> tuple[str, Place]:
    """Return the name of an experiment and where it is kept; a result knows that of itself."""
    if isinstance(experiment, str):
        return experiment.removeprefix("experiment/"), place
    if place.server is None and place.data_dir is None:
        place = experiment.place
    return experiment.name, place
