"""Figures as scripts draw them: Plotly's JSON."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from katib.figures.catalogue import check_choice, draw, figure_named, why_impossible
from katib.figures.data import Choice, ExperimentData
from katib.plotting.reading import KeptCurves, with_curves
from katib.rest.routing import Name, Namespace, Service
from katib.tuning.service import TuningService
from katib.ui.kept_figures import KeptFigures
from katib.ui.looking import Viewer, table_for
from katib.ui.tables import Tables

if TYPE_CHECKING:
    import plotly.graph_objects as go

_PATIENCE_SECONDS = 30.0
"""A figure waits so long for all trials; after that it is drawn of those that are there."""
_SHARED_SECONDS = 2.0
"""So long all pages share a figure of trials that run, some of which show the time until now."""
_MOST_USERS = 32
"""Whose curves are kept; the one who came first is forgotten first."""


def figure_routes(tables: Tables) -> APIRouter:
    """Return the routes of figures."""
    router = APIRouter(prefix="/data/experiments/{namespace}/{name}/figures")
    curves_of: dict[Hashable, KeptCurves] = {}
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
    ) -> Response:
        kind = figure_named(figure)
        choice = Choice(parameters=tuple(parameter), metric=metric, by=by, objectives=tuple(objective))
        data, version = _data(tables, service, user, namespace, name)
        check_choice(data, choice)
        if kind.curves:
            data = with_curves(service, data, kind, choice, _kept(curves_of, user))
        if obstacle := why_impossible(kind, data, choice):
            return JSONResponse({"obstacle": obstacle}, headers=_headers(version))
        if kind.keep_seconds or not kind.curves:
            running = data.trials.in_states("Running", "Pending").any() and not kind.keep_seconds
            period = int(time.monotonic() // _SHARED_SECONDS) if running else 0
            key = (user, namespace, name, data.experiment["metadata"].get("uid"), figure, choice, period)
            kept = kept_figures.get(key, version, kind.keep_seconds, lambda: str(draw(kind, data, choice).to_json()))
            return Response(kept.json, media_type="application/json", headers=_headers(kept.version))
        return _answer(draw(kind, data, choice), version)

    return router


def _data(
    tables: Tables, service: TuningService, user: Hashable, namespace: str, name: str
) -> tuple[ExperimentData, int]:
    """Return an experiment with the version of its table."""
    snapshot = table_for(tables, service, user, namespace, name).snapshot(wait_seconds=_PATIENCE_SECONDS)
    return ExperimentData(snapshot.experiment, snapshot.trials, now=time.time()), snapshot.version


def _kept(curves_of: dict[Hashable, KeptCurves], user: Hashable) -> KeptCurves:
    """Return the curves that are kept for a user; made at the first call."""
    while user not in curves_of and len(curves_of) >= _MOST_USERS:
        curves_of.pop(next(iter(curves_of)), None)
    return curves_of.setdefault(user, KeptCurves())


def _answer(figure: go.Figure, version: int) -> Response:
    return Response(figure.to_json(), media_type="application/json", headers=_headers(version))


def _headers(version: int) -> dict[str, str]:
    return {"cache-control": "no-store", "x-katib-version": str(version)}
