"""What `katib.plots` does: find the service that knows an experiment, read it, draw the figure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from katib.errors import UnavailableError, invalid
from katib.figures.catalogue import check_choice, compare, draw, figure_named
from katib.figures.data import Choice
from katib.figures.reading import read_experiment, with_curves
from katib.tuning.service import DEFAULT_NAMESPACE, TuningService

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from katib.sdk.results import TuneResult

DEFAULT_SERVER = "http://127.0.0.1:8765"
"""Where `katib serve` listens by default."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an experiment is kept.

    Attributes:
        data_dir: A data directory; None: found as the command line finds it.
        server: The URL of a server; None: as above.
        namespace: Of the experiment.
    """

    data_dir: str | Path | None = None
    server: str | None = None
    namespace: str = DEFAULT_NAMESPACE


def draw_figure(name: str, experiment: str | TuneResult, choice: Choice, place: Place) -> go.Figure:
    """Return a figure of an experiment, given by its name or by what `katib.tune` returned.

    Raises:
        InvalidError: It cannot be drawn, or the experiment does not have what was chosen.
        NotFoundError: There is no such experiment.
        UnavailableError: No server answers, and there is no data directory.
    """
    kind = figure_named(name)
    title, place = _name_and_place(experiment, place)
    with open_service(place) as service:
        data = read_experiment(service, place.namespace, title)
        check_choice(data, choice)
        return draw(kind, with_curves(service, data, kind, choice), choice)


def draw_comparison(experiments: Sequence[str | TuneResult], choice: Choice, place: Place) -> go.Figure:
    """Return the figure of several experiments; otherwise as `draw_figure`."""
    found = []
    for experiment in experiments:
        title, own = _name_and_place(experiment, place)
        with open_service(own) as service:
            found.append(read_experiment(service, own.namespace, title))
    return compare(found, choice)


@contextmanager
def open_service(place: Place) -> Iterator[TuningService]:
    """Open what keeps experiments, to read them.

    A server or a data directory that was named, else that of $KATIB_SERVER, else the default server when one of this
    account runs, else $KATIB_HOME or `.katib` right here.

    Raises:
        InvalidError: Both were named.
        NotFoundError: The data directory holds no experiments.
        UnavailableError: No server answers, and there is no data directory.
    """
    from katib.rest.notes import account_directory, note_of

    if place.server is not None and place.data_dir is not None:
        raise invalid("server", "it is given beside data_dir", "give one of them", "plot-place")
    directory = Path(place.data_dir or os.environ.get("KATIB_HOME") or ".katib")
    server, token = place.server, os.environ.get("KATIB_TOKEN")
    if server is None and place.data_dir is None:
        server = os.environ.get("KATIB_SERVER")
        note = note_of(DEFAULT_SERVER, directory, account_directory()) if server is None else None
        if note is not None:
            server, token = note.url, token or note.token
    if server is not None:
        from katib.rest.client import HttpTuningService

        with HttpTuningService(server, token) as service:
            yield service
        return
    if not directory.is_dir():
        remedy = "give server= or data_dir=, or start `katib serve`"
        raise UnavailableError(f"no server of yours runs, and there is no data directory {directory}; {remedy}")
    from katib.local import open_offline

    yield open_offline(directory)


def _name_and_place(experiment: str | TuneResult, place: Place) -> tuple[str, Place]:
    """Return the name of an experiment and where it is kept; a result knows that of itself."""
    if isinstance(experiment, str):
        return experiment.removeprefix("experiment/"), place
    if place.server is None and place.data_dir is None:
        place = experiment.place
    return experiment.name, place
