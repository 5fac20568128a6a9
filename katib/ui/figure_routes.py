"""Figures as scripts draw them: Plotly's JSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from katib.figures.catalogue import draw, figure_named
from katib.figures.data import Choice, ExperimentData
from katib.rest.routing import Name, Namespace, Service
from katib.ui.looking import Viewer, table_for
from katib.ui.tables import Tables

_PATIENCE_SECONDS = 30.0
"""A figure waits so long for all trials; after that it is drawn of those that are there."""


def figure_routes(tables: Tables) -> APIRouter:
    """Return the routes of figures."""
    router = APIRouter(prefix="/data/experiments/{namespace}/{name}/figures")

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
    ) -> Response:
        kind = figure_named(figure)
        table = table_for(tables, service, user, namespace, name)
        snapshot = table.snapshot(wait_seconds=_PATIENCE_SECONDS)
        headers = {"cache-control": "no-store", "x-katib-version": str(snapshot.version)}
        data = ExperimentData(snapshot.experiment, snapshot.trials)
        if obstacle := kind.obstacle(data):
            return JSONResponse({"obstacle": obstacle}, headers=headers)
        drawn = draw(kind, data, Choice(parameters=tuple(parameter), metric=metric, by=by))
        return Response(drawn.to_json(), media_type="application/json", headers=headers)

    return router
