"""The page of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from katib.rest.routing import Name, Namespace, Service
from katib.tuning.reading import Json, metric_rows, name_of, namespace_of
from katib.tuning.service import Diagnosis, RecordedEvent, TuningService
from katib.ui.rendering import render
from katib.ui.trial_reading import attempt, read_experiment, read_generations, read_metric_names
from katib.ui.trial_views import (
    event_rows,
    job_yaml,
    lineage_rows,
    parameter_rows,
    replica_rows,
    trial_summary,
)


def trial_pages() -> APIRouter:
    """Return the routes of a trial's page, and of the parts of it that change when its state does."""
    router = APIRouter()

    @router.get("/trials/{namespace}/{name}")
    def show(request: Request, service: Service, namespace: Namespace, name: Name) -> HTMLResponse:
        trial = service.get("Trial", namespace, name)
        experiment = read_experiment(service, trial)
        metrics = attempt(lambda: read_metric_names(service, trial), list[str]())
        more = {"metrics": metrics, "job": job_yaml(trial)}
        return render(request, "trial.html", **trial_values(service, trial, experiment), **more)

    @router.get("/data/trials/{namespace}/{name}/parts")
    def show_parts(request: Request, service: Service, namespace: Namespace, name: Name) -> HTMLResponse:
        trial = service.get("Trial", namespace, name)
        values = trial_values(service, trial, read_experiment(service, trial))
        return render(request, "parts/trial_parts.html", **values)

    return router


def trial_values(service: TuningService, trial: Json, experiment: Json | None) -> dict[str, Any]:
    """Return what the templates of a trial show; a part that cannot be read has its `problem`."""
    namespace, name = namespace_of(trial), name_of(trial)
    no_pods: Sequence[Json] = ()
    no_events: Sequence[RecordedEvent] = ()
    no_diagnosis: Diagnosis | None = None
    pods = attempt(lambda: service.pods("Trial", namespace, name), no_pods)
    events = attempt(lambda: service.events("Trial", namespace, name), no_events)
    return {
        "trial": trial_summary(trial, experiment),
        "why": attempt(lambda: service.why(namespace, name), no_diagnosis),
        "parameters": parameter_rows(trial, experiment),
        "observed": metric_rows(trial),
        "replicas": replica_rows(pods.value),
        "replicas_problem": pods.problem,
        "events": event_rows(events.value),
        "events_problem": events.problem,
        "lineage": lineage_rows(read_generations(service, trial)),
    }
