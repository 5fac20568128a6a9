"""Figures for scripts, as Plotly's JSON. Slow ones are drawn once for all pages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from katib.doors.rest.routing import Name, Namespace, Service
from katib.doors.ui.tables import Tables, Viewer
from katib.figures.catalogue import check_choice, draw, figure_named, why_impossible
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.reading import CurveCache, with_curves

_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class KeptFigure:
    """A drawn figure.

    Attributes:
        json: The text for scripts.
        version: Version of its trials.
        drawn_at: Monotonic time.
    """

    json: str
    version: int
    drawn_at: float


@dataclass(slots=True)
class _FigureEntry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    figure: KeptFigure | None = None


class KeptFigures:
    """Cache of the last drawing of each figure. Thread-safe.

    Args:
        now: Returns monotonic time.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: dict[Hashable, _FigureEntry] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, version: int, keep_seconds: float, draw: Callable[[], str]) -> KeptFigure:
        """Return a figure, redrawn if the trials have changed and the last one is old.

        Concurrent callers wait for one drawing. Exceptions of `draw` are passed on and not cached.

        Args:
            key: Of the user, the experiment, the figure and its options.
            version: Present version of the trials.
            keep_seconds: How long a figure is valid although trials have changed.
            draw: Draws it.
        """
        with self._lock:
            entry = self._entries.pop(key, None) or _FigureEntry()
            self._entries[key] = entry  # at the end: the first ones are the least recently used
            while len(self._entries) > _MOST_KEPT:
                self._entries.pop(next(iter(self._entries)))
        with entry.lock:
            kept = entry.figure
            if kept is None or (kept.version != version and self._now() - kept.drawn_at >= keep_seconds):
                kept = entry.figure = KeptFigure(draw(), version, self._now())
            return kept


_PATIENCE_SECONDS = 30.0
"""Time that a figure waits for all trials; after that it is drawn from the available ones."""
_SHARED_SECONDS = 2.0
"""Time for which all pages share a figure of running trials, some of which extend to the present."""
_MOST_USERS = 32
"""Users with cached curves; the oldest is evicted first."""


def figure_routes(tables: Tables) -> APIRouter:
    """Return the routes of figures."""
    router = APIRouter(prefix="/data/experiments/{namespace}/{name}/figures")
    curves_of: dict[Hashable, CurveCache] = {}
    kept_figures = KeptFigures()

    @router.get("/{figure}")
    def draw_figure(
        service: Service,
        user: Viewer,
        namespace: Namespace,
        name: Name,
        figure: str,
        parameter: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
        metric: str = "",
        by: str = "step",
        objective: Annotated[list[str], Query()] = [],  # noqa: B006 - as above
        axis: Annotated[list[str], Query()] = [],  # noqa: B006 - as above
        group: str = "",
    ) -> Response:
        kind = figure_named(figure)
        choice = FigureOptions(
            tuple(parameter), metric=metric, by=by, objectives=tuple(objective), axes=tuple(axis), group=group
        )
        snapshot = tables.table(service, user, namespace, name).snapshot(wait_seconds=_PATIENCE_SECONDS)
        data, version = ExperimentData(snapshot.experiment, snapshot.trials, now=time.time()), snapshot.version
        check_choice(data, choice)
        if kind.curves:
            data = with_curves(service, data, kind, choice, _kept(curves_of, user))
        if obstacle := why_impossible(kind, data, choice):
            return JSONResponse({"obstacle": obstacle}, headers=_headers(version))
        if kind.keep_seconds or not kind.curves:
            running = data.trials.in_states("Running", "Pending").any() and not kind.keep_seconds
            period = int(time.monotonic() // _SHARED_SECONDS) if running else 0
            key = (user, namespace, name, data.experiment.metadata.uid, figure, choice, period)
            kept = kept_figures.get(key, version, kind.keep_seconds, lambda: str(draw(kind, data, choice).to_json()))
            return Response(kept.json, media_type="application/json", headers=_headers(kept.version))
        return Response(draw(kind, data, choice).to_json(), media_type="application/json", headers=_headers(version))

    return router


def _kept(curves_of: dict[Hashable, CurveCache], user: Hashable) -> CurveCache:
    """Return the curve cache of a user, created at the first call."""
    while user not in curves_of and len(curves_of) >= _MOST_USERS:
        curves_of.pop(next(iter(curves_of)), None)
    return curves_of.setdefault(user, CurveCache())


def _headers(version: int) -> dict[str, str]:
    return {"cache-control": "no-store", "x-katib-version": str(version)}
