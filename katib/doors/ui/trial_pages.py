"""The page of a trial, and the data for its script: curves, the neighboring trials, and the live stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, StreamingResponse

from katib.doors.rest.problems import problem_of
from katib.doors.rest.routing import Name, Namespace, Service
from katib.doors.rest.streams import Closing
from katib.doors.ui.live import STREAM_HEADERS, Changes, event
from katib.doors.ui.rendering import render
from katib.doors.ui.tables import Tables, Viewer
from katib.doors.ui.trial_files import ShownFile, shown_files
from katib.doors.ui.trial_live import Chunk, LiveTrials
from katib.doors.ui.trial_reading import (
    attempt,
    latest_values,
    points_of_each,
    read_curves,
    read_experiment,
    read_metric_names,
    started_at,
)
from katib.doors.ui.trial_views import (
    event_rows,
    experiment_name,
    job_yaml,
    lineage_rows,
    neighbours,
    parameter_rows,
    replica_rows,
    shown_diagnosis,
    trial_summary,
)
from katib.errors import KatibError
from katib.figures.curves import curve_of
from katib.figures.trial_curves import MOST_SMOOTHING, CurveLook, draw_trial_curves
from katib.model.metrics import MetricLog
from katib.model.thinning import thinned
from katib.model.types import Experiment, Trial
from katib.service.tuning.reading import metric_rows
from katib.service.tuning.service import LONGEST_NAME, NOW, Diagnosis, Json, RecordedEvent, TuningService
from katib.service.tuning.trial_pages import generations_of

_TAIL_LINES, _TAIL_BYTES = 10, 20_000
NO_STORE = {"cache-control": "no-store"}


def trial_pages() -> APIRouter:
    """Return the routes of a trial's page, and of its parts that change with its state."""
    router = APIRouter()

    @router.get("/trials/{namespace}/{name}")
    def show(request: Request, service: Service, namespace: Namespace, name: Name) -> HTMLResponse:
        trial = service.get(Trial, namespace, name)
        experiment = read_experiment(service, trial)
        metrics = attempt(lambda: read_metric_names(service, trial), list[str]())
        more = {"metrics": metrics, "job": job_yaml(trial)}
        return render(request, "trial.html", **trial_values(service, trial, experiment), **more)

    @router.get("/data/trials/{namespace}/{name}/parts")
    def show_parts(request: Request, service: Service, namespace: Namespace, name: Name) -> HTMLResponse:
        trial = service.get(Trial, namespace, name)
        values = trial_values(service, trial, read_experiment(service, trial))
        return render(request, "parts/trial_parts.html", **values)

    @router.get("/data/trials/{namespace}/{name}/tail")
    def show_tail(service: Service, namespace: Namespace, name: Name) -> PlainTextResponse:
        """Answer with the last lines of the output; empty if there is none, as of an imported trial."""
        service.get(Trial, namespace, name)  # a refusal is answered as such
        read = attempt(lambda: b"".join(service.logs(namespace, name, tail_lines=_TAIL_LINES)), b"")
        headers = {**NO_STORE, "x-content-type-options": "nosniff"}
        return PlainTextResponse(read.value[-_TAIL_BYTES:].decode(errors="replace"), headers=headers)

    return router


def trial_values(service: TuningService, trial: Trial, experiment: Experiment | None) -> dict[str, Any]:
    """Return the values for the templates of a trial; a part that cannot be read has its `problem`."""
    namespace, name = trial.namespace, trial.name
    no_pods: Sequence[Json] = ()
    no_events: Sequence[RecordedEvent] = ()
    no_diagnosis: Diagnosis | None = None
    latest = attempt(lambda: latest_values(service, trial), dict[str, str]())
    pods = attempt(lambda: service.pods("Trial", namespace, name), no_pods)
    events = attempt(lambda: service.events("Trial", namespace, name), no_events)
    no_files: Sequence[ShownFile] = ()
    return {
        "files": attempt(lambda: shown_files(service, namespace, name), no_files).value,
        "trial": trial_summary(trial, experiment, latest.value),
        "why": attempt(lambda: shown_diagnosis(service.why(namespace, name), trial), no_diagnosis),
        "parameters": parameter_rows(trial, experiment),
        "observed": metric_rows(trial),
        "replicas": replica_rows(pods.value),
        "replicas_problem": pods.problem,
        "events": event_rows(events.value),
        "events_problem": events.problem,
        "lineage": lineage_rows(generations_of(service, trial)),
    }


MOST_SENT = 400
"""Maximum number of readings of one metric in one event; more are thinned, as a page cannot show them either."""
_PATIENCE_SECONDS = 20.0

By = Annotated[str, Query(pattern="^(step|time)$", description="What the horizontal axis counts.")]
Smoothing = Annotated[float, Query(ge=0, le=MOST_SMOOTHING, description="Weight of the past.")]


def trial_data_routes(tables: Tables, closing: Closing) -> APIRouter:
    """Return the routes of the data for the script of a trial's page: curves, neighboring trials, live changes."""
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
        trial = service.get(Trial, namespace, name)
        curves, cursor = read_curves(service, trial)
        look = CurveLook(by, log, smoothing, points_of_each(curves))
        figures = {
            metric: draw_trial_curves(f"{trial.name}: {metric}", metric, {name: curve}, look).to_json()
            for metric, curve in curves.items()
        }
        drawn = ",".join(f'{{"metric":{json.dumps(metric)},"figure":{text}}}' for metric, text in figures.items())
        body = f'{{"cursor":{json.dumps(cursor)},"figures":[{drawn}]}}'
        return Response(body, media_type="application/json", headers=NO_STORE)

    @router.get("/neighbours")
    def find_neighbours(service: Service, user: Viewer, namespace: Namespace, name: Name) -> Any:
        trial = service.get(Trial, namespace, name)
        table = tables.table(service, user, namespace, experiment_name(trial))
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
        service.get(Trial, namespace, name)  # while an error can still be the answer
        begin = last_event_id or since
        cursor = service.readings(namespace, name, since=NOW).cursor if begin == NOW else begin
        events = trial_events(lives, service, user, (namespace, name), cursor, closing)
        return StreamingResponse(events, media_type="text/event-stream", headers=STREAM_HEADERS)

    return router


async def trial_events(
    lives: LiveTrials,
    service: TuningService,
    user: Any,
    trial: tuple[str, str],
    cursor: str,
    closing: Closing,
) -> AsyncIterator[bytes]:
    """Yield `readings` as they arrive, `trial` with the head of the page when it changes, and `end` after the last.

    An event of readings carries the cursors before and after it: a page that missed one detects that, and redraws.
    """
    changes = Changes()
    changes.notify()
    live = lives.watch(service, user, *trial, changes.notify)
    version = 0
    yield b"retry: 1000\n\n"
    try:
        async for beat in changes.beats(closing):
            if beat:
                yield beat
            if beat or (news := live.news()) is None:
                continue
            chunks = live.after(cursor)
            if chunks is None:  # the shared look does not reach back so far
                new = await asyncio.to_thread(service.readings, *trial, since=cursor)
                chunks = [Chunk(cursor, new.items, new.cursor)] if new.items else []
            for chunk in chunks:
                yield _readings_event(chunk, started_at(news.trial))
                cursor = chunk.cursor
            if news.version != version:
                version = news.version
                yield event("trial", trial_summary(news.trial, news.experiment))
            if chunks:
                changes.notify()
            elif news.has_ended:
                yield event("end", {})
                return
    except KatibError as error:
        yield event("problem", problem_of(error))
    finally:
        live.leave(changes.notify)


def _readings_event(chunk: Chunk, started: float) -> bytes:
    by_metric: dict[str, list[MetricLog]] = {}
    for reading in chunk.items:
        by_metric.setdefault(reading.name, []).append(reading)
    metrics = {name: _points(readings, started) for name, readings in by_metric.items()}
    data = {"before": chunk.before, "cursor": chunk.cursor, "metrics": metrics}
    return f"id: {chunk.cursor}\n".encode() + event("readings", data)


def _points(readings: Iterable[MetricLog], started: float) -> list[list[Any]]:
    """Return for each reading its step, the seconds since the start, and its value; null if unknown."""
    kept = thinned(list(readings), MOST_SENT)
    curve = curve_of(kept, started)
    numbers = zip(kept, curve.seconds.tolist(), curve.values.tolist(), strict=True)
    return [[reading.step, _finite(seconds), _finite(value)] for reading, seconds, value in numbers]


def _finite(number: float) -> float | None:
    return number if abs(number) < float("inf") else None
