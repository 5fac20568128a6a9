"""The pages of experiments, and their changing parts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from katib.doors.rest.routing import Name, Namespace, Service
from katib.doors.ui.head import head_figures
from katib.doors.ui.rendering import render
from katib.doors.ui.report import report_of
from katib.doors.ui.tables import LiveTable, Snapshot, Tables, Viewer
from katib.doors.ui.trial_columns import ColumnGroup, columns_of, first_columns
from katib.doors.ui.trial_table import SIZES, TableQuery, page_of, search_terms
from katib.doors.ui.trial_table_routes import Asked
from katib.doors.ui.views import action_fields, experiment_head
from katib.errors import InvalidError, NotFoundError, UnavailableError
from katib.figures.catalogue import FIGURES, FigureKind, figure_named
from katib.figures.data import ExperimentData
from katib.figures.parallel import is_broad
from katib.figures.scatter import DURATION, scatter_columns
from katib.figures.trials import STATES, TrialTable, objectives_of
from katib.model.types import Experiment, Suggestion
from katib.model.yaml_text import dump_yaml
from katib.service.tuning.service import Confirmation, RecordedEvent
from katib.service.tuning.states import has_several_objectives, is_completed, stops_early

TABS = {"overview": "Overview", "trials": "Trials", "analysis": "Analysis", "events": "Events", "yaml": "YAML"}
Tab = Annotated[str, Query(max_length=20)]
_PATIENCE_SECONDS = 0.15
"""Time that a page waits for the trials; if they are not read by then, its script requests them."""
_REPORT_SECONDS = 30.0
"""Time that a report waits for all trials; after that it is of the available ones."""
_BRIEF_ROWS = 10
_OVERVIEW = ("history", "parallel")
_OF_SEVERAL_OBJECTIVES = ("pareto", "hypervolume")
_FIRST = ("importances", "slice", "contour", "parallel")
"""Figures at the start of the analysis: which parameters matter, and how."""
_MOST_EVENTS = 500


def experiment_pages(tables: Tables) -> APIRouter:
    """Return the routes of single experiments."""
    router = APIRouter()

    @router.get("/experiments/{namespace}/{name}")
    def show(
        request: Request,
        service: Service,
        user: Viewer,
        namespace: Namespace,
        name: Name,
        query: Asked,
        tab: Tab = "overview",
    ) -> HTMLResponse:
        tab = tab if tab in TABS else "overview"
        experiment, now = service.get(Experiment, namespace, name), datetime.now(UTC)
        snapshot = _snapshot(tables.table(service, user, namespace, name))
        values: dict[str, Any] = {
            "tabs": TABS,
            "tab": tab,
            "namespace": namespace,
            "name": name,
            "experiment": experiment_head(experiment),
            "fields": action_fields(experiment),
            "table_version": 0,
            "early_stopping": stops_early(experiment) or experiment.status.trials_early_stopped,
            "expected": experiment.status.trials,
            "figures": head_figures(experiment, _all_of(snapshot), now),
            "confirmed": _confirmation(service, experiment),
            "analysis": _figures_of(experiment),
            "overview": _overview_of(experiment),
            "fronts": _pairs_of(experiment),
            "wide": is_broad(len(experiment.spec.parameters) + 1),
        }
        if tab in ("overview", "trials"):
            given = set(request.query_params)
            values |= _first_table(experiment, snapshot, query, tab, given)
            values["table_version"] = snapshot.version if snapshot and snapshot.complete else 0
        elif tab == "analysis":
            empty = TrialTable.of(experiment, ())
            values["parameters"] = [axis.name for axis in empty.parameters]
            values["metrics"] = list(empty.metrics)
            values["columns"] = scatter_columns(empty)
            values["axes"] = [*values["parameters"][:1], empty.objective.name, DURATION]
            values["objectives"] = [objective.name for objective in empty.objectives]
        elif tab == "events":
            values |= _newest_events(service, namespace, name)
        else:
            values["yaml"] = dump_yaml(experiment.encode())
        return render(request, "experiment.html", **values)

    data = "/data/experiments/{namespace}/{name}"

    @router.get(f"{data}/head")
    def show_head(
        request: Request, service: Service, user: Viewer, namespace: Namespace, name: Name, tab: Tab = "overview"
    ) -> HTMLResponse:
        """Answer with the head of the page, in short form beside other tabs."""
        experiment, now = service.get(Experiment, namespace, name), datetime.now(UTC)
        trials = _all_of(_snapshot(tables.table(service, user, namespace, name)))
        figures = head_figures(experiment, trials, now)
        head = experiment_head(experiment)
        confirmed = _confirmation(service, experiment)
        values = {"experiment": head, "figures": figures, "confirmed": confirmed, "tab": tab}
        return render(request, "parts/experiment_head.html", **values)

    @router.get(f"{data}/events")
    def show_events(request: Request, service: Service, namespace: Namespace, name: Name) -> HTMLResponse:
        """Answer with the newest events."""
        return render(request, "parts/events.html", namespace=namespace, **_newest_events(service, namespace, name))

    @router.get(f"{data}/experiment.yaml")
    def download_yaml(service: Service, namespace: Namespace, name: Name) -> Response:
        headers = {"content-disposition": f'attachment; filename="{name}.yaml"', "cache-control": "no-store"}
        text = dump_yaml(service.get(Experiment, namespace, name).encode())
        return Response(text, media_type="application/yaml", headers=headers)

    @router.get(f"{data}/report.html")
    def download_report(service: Service, user: Viewer, namespace: Namespace, name: Name) -> Response:
        """Answer with the page in one file, as `katib export` writes it."""
        snapshot = tables.table(service, user, namespace, name).snapshot(wait_seconds=_REPORT_SECONDS)
        read = ExperimentData(snapshot.experiment, snapshot.trials, now=time.time())
        headers = {"content-disposition": f'attachment; filename="{name}.html"', "cache-control": "no-store"}
        return HTMLResponse(report_of(service, read), headers=headers)

    return router


def _confirmation(service: Service, experiment: Experiment) -> Confirmation | None:
    """Return the findings about the best configurations of an ended experiment, if they were run again."""
    return service.confirmation(experiment.namespace, experiment.name) if is_completed(experiment) else None


def _snapshot(live: LiveTable) -> Snapshot | None:
    """Return the trials of an experiment; None before any is read."""
    try:
        return live.snapshot(wait_seconds=_PATIENCE_SECONDS)
    except UnavailableError:
        return None


def _all_of(snapshot: Snapshot | None) -> TrialTable | None:
    """Return all trials; None until they are all read."""
    return snapshot.trials if snapshot is not None and snapshot.complete else None


def _figures_of(experiment: Experiment) -> tuple[FigureKind, ...]:
    """Return the figures of the analysis: with one objective, without those of several."""
    several = has_several_objectives(experiment)
    others = (figure for figure in FIGURES if figure.name not in _FIRST)
    kept = (figure for figure in others if several or figure.name not in _OF_SEVERAL_OBJECTIVES)
    return (*map(figure_named, _FIRST), *kept)


def _overview_of(experiment: Experiment) -> tuple[FigureKind, ...]:
    """Return the figures of the overview: with several objectives the front and its history come first."""
    names = (*_OF_SEVERAL_OBJECTIVES, "parallel") if has_several_objectives(experiment) else _OVERVIEW
    return tuple(map(figure_named, names))


def _pairs_of(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the pairs of the first three objectives, if there are more than two: a front of each is drawn."""
    names = [objective.name for objective in objectives_of(experiment)][:3]
    return list(combinations(names, 2)) if len(names) > 2 else []  # noqa: PLR2004 - two are one picture


def _first_table(
    experiment: Experiment, snapshot: Snapshot | None, asked: TableQuery, tab: str, given: set[str]
) -> dict[str, Any]:
    """Return the trials that a page shows before its script runs; no `table` while they are being read."""
    trials = snapshot.trials if snapshot else TrialTable.of(experiment, ())
    columns = columns_of(trials)
    query = asked
    if "size" not in given and tab == "overview":
        query = replace(query, size=_BRIEF_ROWS)
    if not {"sort", "order"} & given:
        objective = trials.objective
        key = next((c.key for c in columns.values() if (c.group, c.name) == (ColumnGroup.METRIC, objective.name)), "")
        best_first = replace(query, sort=key, descending=objective.maximize)
        query = best_first if tab == "overview" else replace(query, descending=True)
    table, problem = None, ""
    if snapshot is not None:
        try:
            table = page_of(trials, query)
        except InvalidError as error:
            problem = str(error)
    complete = snapshot is not None and snapshot.complete
    return {
        "query": query,
        "table": table,
        "problem": problem,
        "columns": columns,
        "shown": first_columns(columns),
        "terms": search_terms(columns),
        "complete": complete,
        "states": STATES,
        "sizes": SIZES,
    }


def _newest_events(service: Service, namespace: str, name: str) -> dict[str, Any]:
    """Return the newest events, and the algorithm's last explanations of its choice and its sources."""
    events, choice = service.events("Experiment", namespace, name), ""
    with suppress(NotFoundError):
        choice = service.get(Suggestion, namespace, name).status.explanation
    newest = events[-_MOST_EVENTS:]
    return {"events": event_rows(newest), "shown": len(newest), "total": len(events), "choice": choice}


def event_rows(events: Sequence[RecordedEvent]) -> list[dict[str, Any]]:
    """Return rows of events, the newest first: one for each warning, and one for all else of a trial."""
    rows: list[dict[str, Any]] = []
    of_trials: dict[str, dict[str, Any]] = {}
    for event in reversed(events):
        if event.kind == "Trial" and not event.warning and event.name in of_trials:
            of_trials[event.name]["reasons"].insert(0, event.reason)
            continue
        rows.append({**msgspec.structs.asdict(event), "reasons": [event.reason]})
        if event.kind == "Trial" and not event.warning:
            of_trials[event.name] = rows[-1]
    return rows
