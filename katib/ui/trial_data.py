"""What the script of a trial's page asks for: curves, the trials beside it, and the live stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from katib.api.metrics import MetricLog
from katib.api.thinning import thinned
from katib.errors import KatibError
from katib.figures.curves import curve_of
from katib.figures.trial_curves import MOST_SMOOTHING, CurveLook, draw_trial_curves
from katib.rest.problems import problem_of
from katib.rest.routing import LONGEST_NAME, Name, Namespace, Service
from katib.rest.streams import HEARTBEAT_SECONDS, Closing
from katib.tuning.reading import Json, name_of
from katib.tuning.service import NOW, TuningService
from katib.ui.live import STREAM_HEADERS, event
from katib.ui.looking import Viewer, table_for
from katib.ui.tables import Tables
from katib.ui.trial_live import Chunk, LiveTrial, LiveTrials
from katib.ui.trial_reading import points_of_each, read_curves, started_at
from katib.ui.trial_views import experiment_name, neighbours, trial_summary

NO_STORE = {"cache-control": "no-store"}
MOST_SENT = 400
"""Readings of one metric in one event: more at once are thinned, as a page cannot show them either."""
_PATIENCE_SECONDS = 20.0
_CHECK_SECONDS = 0.5

By = Annotated[str, Query(pattern="^(step|time)$", description="What the horizontal axis counts.")]
Smoothing = Annotated[float, Query(ge=0, le=MOST_SMOOTHING, description="Weight of the past.")]


def trial_data_routes(tables: Tables, closing: Closing) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/data/trials/{namespace}/{name}")
    lives = LiveTrials(closing)

    @router.get("/curves")
    def draw_curves(
        service: Service,
        namespace: Namespace,
        name: Name,
        by: By = "step",
        log: bool = False,
        smoothing: Smoothing = 0.0,
    ) -> Response:
        trial = service.get("Trial", namespace, name)
        curves, cursor = read_curves(service, trial)
        look = CurveLook(by, log, smoothing, points_of_each(curves))
        drawn = ",".join(
            f'{{"metric":{json.dumps(metric)},"figure":{_figure_json(trial, metric, {name: curve}, look)}}}'
            for metric, curve in curves.items()
        )
        body = f'{{"cursor":{json.dumps(cursor)},"figures":[{drawn}]}}'
        return Response(body, media_type="application/json", headers=NO_STORE)

    @router.get("/neighbours")
    def find_neighbours(service: Service, user: Viewer, namespace: Namespace, name: Name) -> Any:
        trial = service.get("Trial", namespace, name)
        table = table_for(tables, service, user, namespace, experiment_name(trial))
        snapshot = table.snapshot(wait_seconds=_PATIENCE_SECONDS)
        return neighbours(snapshot.trials.names.tolist(), name)

    @router.get("/live")
    def follow(
        service: Service,
        user: Viewer,
        namespace: Namespace,
        name: Name,
        since: Annotated[str, Query(max_length=LONGEST_NAME)] = NOW,
        last_event_id: Annotated[str, Header(max_length=LONGEST_NAME)] = "",
    ) -> StreamingResponse:
        service.get("Trial", namespace, name)  # while an error can still be the answer
        begin = last_event_id or since
        cursor = service.readings(namespace, name, since=NOW).cursor if begin == NOW else begin
        events = trial_events(lives, service, user, (namespace, name), cursor, closing)
        return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)

    return router


def _figure_json(trial: Json, metric: str, curves: Any, look: CurveLook) -> str:
    drawn: str = draw_trial_curves(f"{name_of(trial)}: {metric}", metric, curves, look).to_json()
    return drawn


async def trial_events(
    lives: LiveTrials,
    service: TuningService,
    user: Any,
    trial: tuple[str, str],
    cursor: str,
    closing: Closing,
) -> AsyncIterator[bytes]:
    """Yield `readings` as they arrive, `trial` with the head of the page when it changes, and `end` behind the last.

    An event of readings carries the cursors before and after it: a page that missed one notices, and redraws.
    """
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(changed.set)

    live = lives.watch(service, user, *trial, notify)
    version, silent = 0, 0.0
    yield b"retry: 1000\n\n"
    try:
        while not closing.begun:
            changed.clear()
            if (news := live.news()) is not None:
                chunks = await _chunks(live, service, trial, cursor)
                for chunk in chunks:
                    yield _readings_event(chunk, started_at(news.trial))
                    cursor, silent = chunk.cursor, 0.0
                if news.version != version:
                    version, silent = news.version, 0.0
                    yield event("trial", trial_summary(news.trial, news.experiment))
                if chunks:
                    continue
                if news.has_ended:
                    yield event("end", {})
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _CHECK_SECONDS)
                continue
            silent += _CHECK_SECONDS
            if silent >= HEARTBEAT_SECONDS:
                silent = 0.0
                yield b": still here\n\n"
    except KatibError as error:
        yield event("problem", problem_of(error))
    finally:
        live.leave(notify)


async def _chunks(live: LiveTrial, service: TuningService, trial: tuple[str, str], cursor: str) -> list[Chunk]:
    """Return what came behind a cursor: what the shared look found, or where that does not reach back, from the log."""
    found = live.after(cursor)
    if found is not None:
        return found
    new = await asyncio.to_thread(service.readings, *trial, since=cursor)
    return [Chunk(cursor, new.items, new.cursor)] if new.items else []


def _readings_event(chunk: Chunk, started: float) -> bytes:
    by_metric: dict[str, list[MetricLog]] = {}
    for reading in chunk.items:
        by_metric.setdefault(reading.name, []).append(reading)
    metrics = {name: _points(readings, started) for name, readings in by_metric.items()}
    data = {"before": chunk.before, "cursor": chunk.cursor, "metrics": metrics}
    return f"id: {chunk.cursor}\n".encode() + event("readings", data)


def _points(readings: Iterable[MetricLog], started: float) -> list[list[Any]]:
    """Return of each reading its step, the seconds since the start, and its value; null for what is not known."""
    kept = thinned(list(readings), MOST_SENT)
    curve = curve_of(kept, started)
    numbers = zip(kept, curve.seconds.tolist(), curve.values.tolist(), strict=True)
    return [[reading.step, _finite(seconds), _finite(value)] for reading, seconds, value in numbers]


def _finite(number: float) -> float | None:
    return number if abs(number) < float("inf") else None
