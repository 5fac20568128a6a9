"""The table of an experiment's trials: a part of a page for a query, and downloads of the matching trials."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from katib.doors.rest.routing import Name, Namespace, Service
from katib.doors.ui.downloads import MEDIA_TYPES, DownloadFormat, write_trials
from katib.doors.ui.rendering import render
from katib.doors.ui.tables import Tables, Viewer
from katib.doors.ui.trial_table import MOST_ROWS, TableQuery, chosen_rows, page_of

_PATIENCE_SECONDS = 30.0
"""Time that a download waits for all trials."""
_GLANCE_SECONDS = 0.5
"""Time that a table waits; it shows how far the trials have been read, and is requested again."""
_LONGEST = 4_096
_MOST = 200

Text = Annotated[str, Query(max_length=_LONGEST)]
Texts = Annotated[list[Annotated[str, Query(max_length=65_536)]], Query(max_length=_MOST)]


def read_query(
    state: Texts = [],  # noqa: B006 - FastAPI copies it
    where: Texts = [],  # noqa: B006
    text: Text = "",
    sort: Text = "",
    order: Annotated[str, Query(pattern="^(up|down|)$")] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 25,
    column: Texts = [],  # noqa: B006
) -> TableQuery:
    """Return the table query of an address."""
    return TableQuery(
        states=tuple(state),
        where=tuple(filter(None, where)),
        text=text.strip(),
        sort=sort,
        descending=order == "down",
        page=page,
        size=size,
        columns=tuple(column),
    )


Asked = Annotated[TableQuery, Depends(read_query)]
"""As the type of a route's parameter: the table query of the address."""


def trial_table_routes(tables: Tables) -> APIRouter:
    """Return the routes of tables of trials."""
    router = APIRouter(prefix="/data/experiments/{namespace}/{name}")

    @router.get("/table")
    def show_table(
        request: Request, service: Service, user: Viewer, namespace: Namespace, name: Name, query: Asked, tab: str = ""
    ) -> HTMLResponse:
        """Answer with the rows as a part of the page."""
        table = tables.table(service, user, namespace, name)
        snapshot = table.snapshot(wait_seconds=_GLANCE_SECONDS)
        return render(
            request,
            "parts/trial_table.html",
            table=page_of(snapshot.trials, query),
            complete=snapshot.complete,
            expected=snapshot.experiment.status.trials,
            namespace=namespace,
            name=name,
            tab=tab,
        )

    @router.get("/trials.{form}")
    def download(
        service: Service, user: Viewer, namespace: Namespace, name: Name, form: DownloadFormat, query: Asked
    ) -> StreamingResponse:
        """Answer with a file of all matching trials, with the chosen columns, or all."""
        table = tables.table(service, user, namespace, name)
        trials = table.snapshot(wait_seconds=_PATIENCE_SECONDS).trials
        rows, columns = chosen_rows(trials, query)
        return StreamingResponse(
            write_trials(form, trials, columns, rows),
            media_type=MEDIA_TYPES[form],
            headers={
                "content-disposition": f'attachment; filename="{name}-trials.{form}"',
                "cache-control": "no-store",
                "x-content-type-options": "nosniff",
            },
        )

    return router
