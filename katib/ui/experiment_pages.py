"""The pages of experiments."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from katib.rest.routing import Name, Namespace, Service
from katib.ui.rendering import render
from katib.ui.views import experiment_summary


def experiment_pages() -> APIRouter:
    """Return the routes of the list and of single experiments."""
    router = APIRouter()

    @router.get("/")
    def show_list(request: Request, service: Service) -> HTMLResponse:
        newest_first = [experiment_summary(experiment) for experiment in reversed(service.experiments())]
        return render(request, "experiments.html", experiments=newest_first)

    @router.get("/experiments/{namespace}/{name}")
    def show(request: Request, service: Service, namespace: Namespace, name: Name) -> HTMLResponse:
        experiment = service.get("Experiment", namespace, name)
        return render(request, "experiment.html", experiment=experiment_summary(experiment))

    return router
