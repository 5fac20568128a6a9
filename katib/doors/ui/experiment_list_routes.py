"""The list of experiments: the page, its rows, and their changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, StreamingResponse

from katib.doors.rest.problems import problem_of
from katib.doors.rest.routing import Service
from katib.doors.rest.streams import Closing
from katib.doors.ui.experiment_list import SORTS, TERMS, ListQuery, list_page
from katib.doors.ui.experiment_watch import ExperimentWatch, Look, RowKey, Watches
from katib.doors.ui.live import STREAM_HEADERS, Changes, event
from katib.doors.ui.rendering import fragment, render
from katib.doors.ui.sparks import MOST_ASKED, Sparks
from katib.doors.ui.tables import Viewer
from katib.service.tuning.service import TuningService

_LONGEST = 4_096
_MOST_SENT = 100
"""Maximum number of changed rows in an event; beyond, the page is asked to reload."""

Text = Annotated[str, Query(max_length=_LONGEST)]
Texts = Annotated[list[Annotated[str, Query(max_length=_LONGEST)]], Query(max_length=200)]


def read_list_query(
    text: Text = "",
    state: Texts = [],  # noqa: B006 - FastAPI copies it
    namespace: Texts = [],  # noqa: B006
    tag: Texts = [],  # noqa: B006
    sort: Text = "",
    order: Annotated[str, Query(pattern="^(up|down|)$")] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000_000)] = 1,
) -> ListQuery:
    """Return the query of an address."""
    states, namespaces, tags = (tuple(filter(None, chosen)) for chosen in (state, namespace, tag))
    return ListQuery(text.strip(), states, namespaces, tags, sort, descending=order == "down", page=page)


Asked = Annotated[ListQuery, Depends(read_list_query)]


def experiment_list_routes(closing: Closing, optuna_line: Callable[[], str]) -> APIRouter:
    """Return the routes of the list; an empty one shows the expression for Optuna."""
    watches, sparks = Watches(closing), Sparks()
    router = APIRouter()

    def shown(service: TuningService, user: Hashable, query: ListQuery) -> dict[str, Any]:
        found = watches.watch_of(service, user).now()
        if found.error is not None:
            raise found.error
        return {
            "list": list_page(tuple(found.rows.values()), query),
            "sorts": SORTS,
            "terms": TERMS,
            "optuna_line": optuna_line(),
        }

    @router.get("/")
    def show_list(request: Request, service: Service, user: Viewer, query: Asked) -> HTMLResponse:
        return render(request, "experiments.html", **shown(service, user, query))

    @router.get("/data/list")
    def show_rows(request: Request, service: Service, user: Viewer, query: Asked) -> HTMLResponse:
        """Answer with the part of the page that holds the rows."""
        return render(request, "parts/experiment_table.html", **shown(service, user, query))

    @router.get("/data/list/sparks")
    def show_sparks(
        service: Service,
        user: Viewer,
        of: Annotated[list[Annotated[str, Query(max_length=_LONGEST)]], Query(max_length=MOST_ASKED)] = [],  # noqa: B006
    ) -> dict[str, str]:
        """Answer with the lines of the best so far of experiments, by the ids of their rows; empty without a value."""
        return {row: sparks.path(service, user, *row.partition("/")[::2]) for row in of}

    @router.get("/data/list/live")
    def follow(service: Service, user: Viewer) -> StreamingResponse:
        watch = watches.watch_of(service, user)
        watch.now()
        return StreamingResponse(list_events(watch, closing), media_type="text/event-stream", headers=STREAM_HEADERS)

    return router


async def list_events(watch: ExperimentWatch, closing: Closing) -> AsyncIterator[bytes]:
    """Yield an event `rows` for changes: new HTML of rows by their ids, the ids of removed ones, and the total.

    The first one has no rows; the page has them, or requests them when it reconnects. `problem` reports that the
    experiments cannot be read for now.
    """
    changes = Changes()
    end, sent = watch.watch(changes.notify), watch.last
    yield b"retry: 1000\n\n" + event("hello", {"total": len(sent.rows)})
    try:
        async for beat in changes.beats(closing):
            if beat:
                yield beat
                continue
            found = watch.last
            yield event("problem", problem_of(found.error)) if found.error else event("rows", difference(sent, found))
            sent = found
    finally:
        end()


def difference(before: Look, after: Look) -> dict[str, object]:
    """Return the changes of a look: rows as HTML by their ids, the ids of removed ones, and the total."""
    rows = {key: row for key, row in after.rows.items() if before.rows.get(key) is not row}
    sent = rows if len(rows) <= _MOST_SENT else {}
    return {
        "rows": {row_id(key): fragment("parts/experiment_row.html", row=row) for key, row in sent.items()},
        "gone": [row_id(key) for key in before.rows if key not in after.rows],
        "other": len(rows) > len(sent),
        "total": len(after.rows),
    }


def row_id(key: RowKey) -> str:
    """Return the id of an experiment's row in the page."""
    return "/".join(key)
