"""The page that shows several experiments, or several trials, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from katib.doors.rest.routing import Service
from katib.doors.ui.compare_views import (
    experiment_groups,
    references,
    shared_metrics,
    titles,
    trial_groups,
    why_no_history,
)
from katib.doors.ui.rendering import render
from katib.doors.ui.tables import Tables, Viewer
from katib.doors.ui.trial_pages import NO_STORE, By, Smoothing
from katib.doors.ui.trial_reading import attempt, read_curve, read_metric_names
from katib.engine.runtime.objects import Key
from katib.errors import KatibError, NotFoundError, invalid
from katib.figures.catalogue import compare
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.trial_curves import CurveLook, draw_trial_curves
from katib.model.failure_text import readable
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import LONGEST_NAME, TuningService

_PATIENCE_SECONDS = 20.0
_MOST_OFFERED = 50
_MOST_SEARCHED = 3
"""Maximum number of experiments searched for trials by name: each fills a table."""
_MOST_NAMES = 1_000
_LINES = 20
"""Lines shown of each trial's output."""
_MOST_BYTES = 20_000

Names = Annotated[list[str], Query(max_length=100)]
Text = Annotated[str, Query(max_length=2 * LONGEST_NAME)]


T = TypeVar("T", Experiment, Trial)


@dataclass(slots=True)
class _ComparedObjects(Generic[T]):
    """The objects that could be read, and sentences about the others."""

    objects: list[T] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)


def compare_pages(tables: Tables) -> APIRouter:
    """Return the routes of the page and of the data for its script."""
    router = APIRouter()

    @router.get("/compare")
    def show(request: Request, service: Service, experiment: Names = [], trial: Names = []) -> HTMLResponse:  # noqa: B006 - FastAPI copies it
        problems = []
        try:
            wanted = {"Experiment": references("experiment", experiment), "Trial": references("trial", trial)}
        except KatibError as error:
            wanted, problems = {"Experiment": [], "Trial": []}, [{"text": str(error), "link": "compare"}]
        link = partial(_address, wanted)
        experiments = _read(service, Experiment, wanted["Experiment"], link)
        trials = _read(service, Trial, wanted["Trial"], link)
        metrics = shared_metrics(
            trials.objects, lambda one: attempt(lambda: read_metric_names(service, one), list[str]()).value
        )
        known = _all_experiments(service)
        return render(
            request,
            "compare.html",
            wanted={kind: list(map(str, found)) for kind, found in wanted.items()},
            experiments=_columns(experiments, "Experiment", experiment_groups, link),
            trials=_columns(trials, "Trial", trial_groups, link),
            outputs=[_output(service, one) for one in trials.objects],
            outputs_lines=_LINES,
            metrics=metrics,
            no_history=why_no_history(experiments.objects),
            problems=[*problems, *experiments.problems, *trials.problems],
            offered=[f"{e.namespace}/{e.name}" for e in reversed(known)][:_MOST_NAMES],
        )

    @router.get("/data/compare/history")
    def draw_history(
        service: Service,
        user: Viewer,
        experiment: Names = [],  # noqa: B006 - FastAPI copies it
        by: By = "step",
    ) -> Response:
        data = [
            data
            for reference in references("experiment", experiment)
            if (data := _experiment_data(tables, service, user, reference)) is not None
        ]
        drawn = compare(data, FigureOptions(by=by))
        return Response(drawn.to_json(), media_type="application/json", headers=NO_STORE)

    @router.get("/data/compare/curves")
    def draw_curves(
        service: Service,
        trial: Names = [],  # noqa: B006 - FastAPI copies it
        metric: Text = "",
        by: By = "step",
        log: bool = False,
        smoothing: Smoothing = 0.0,
    ) -> Response:
        found = _read(service, Trial, references("trial", trial), lambda *_: "").objects
        if not found or not metric:
            remedy = "name a trial that is there, and a metric"
            raise invalid("trial", "nothing is left to be drawn", remedy, "compare-name")
        curves = {one.name: read_curve(service, one, metric) for one in found}
        drawn = draw_trial_curves(f"{metric} of {len(found)} trials", metric, curves, CurveLook(by, log, smoothing))
        return Response(drawn.to_json(), media_type="application/json", headers=NO_STORE)

    @router.get("/data/compare/trials")
    def find_trials(service: Service, user: Viewer, search: Text = "") -> list[str]:
        """Return trials by a part of their name: trials are named after their experiment."""
        part = search.strip().rpartition("/")[2]
        if not part:
            return []
        near = [e for e in _all_experiments(service) if part.startswith(e.name) or e.name.startswith(part)]
        found = []
        for experiment in sorted(near, key=lambda e: -len(e.name))[:_MOST_SEARCHED]:
            reference = Key(experiment.namespace, experiment.name)
            data = _experiment_data(tables, service, user, reference)
            names = [] if data is None else [name for name in data.trials.names if name.startswith(part)]
            found += [f"{reference.namespace}/{name}" for name in names[:_MOST_OFFERED]]
        return found[:_MOST_OFFERED]

    return router


def _read(
    service: TuningService, kind: type[T], wanted: Sequence[Key], link: Callable[[str, Key], str]
) -> _ComparedObjects[T]:
    found = _ComparedObjects[T]()
    title = kind.__name__
    for reference in wanted:
        try:
            found.objects.append(service.get(kind, reference.namespace, reference.name))
        except NotFoundError:
            text = f"{title.lower()} {reference} is not there, or not any more."
            found.problems.append({"text": text, "link": link(title, reference)})
        except KatibError as error:
            text = f"{title.lower()} {reference} cannot be shown: {error}"
            found.problems.append({"text": text, "link": link(title, reference)})
    return found


def _columns(found: _ComparedObjects[T], kind: str, groups: Callable[[Sequence[T]], Any], link: Any) -> dict[str, Any]:
    """Return a table for the template; each column has an address of the page without it."""
    heads = titles(found.objects, f"{kind.lower()}s")
    for head in heads:
        namespace, _, name = head["reference"].partition("/")
        head["without"] = link(kind, Key(namespace, name))
    return {"heads": heads, "groups": groups(found.objects) if found.objects else []}


def _output(service: TuningService, trial: Trial) -> dict[str, str]:
    """Return the end of a trial's output."""
    read = attempt(lambda: b"".join(service.logs(trial.namespace, trial.name, tail_lines=_LINES)), b"")
    return {"name": trial.name, "text": readable(read.value[-_MOST_BYTES:]), "problem": read.problem}


def _address(wanted: dict[str, list[Key]], kind: str, without: Key) -> str:
    """Return the address of the page without one of the compared objects."""
    pairs = [
        (other.lower(), str(reference))
        for other, found in wanted.items()
        for reference in found
        if (other, reference) != (kind, without)
    ]
    return f"compare?{urlencode(pairs, safe='/')}" if pairs else "compare"


def _experiment_data(tables: Tables, service: TuningService, user: Any, reference: Key) -> ExperimentData | None:
    """Return the trials of an experiment; None if it cannot be read, which the page reports beside the picture."""
    try:
        table = tables.table(service, user, reference.namespace, reference.name)
        snapshot = table.snapshot(wait_seconds=_PATIENCE_SECONDS)
    except KatibError:
        return None
    return ExperimentData(snapshot.experiment, snapshot.trials)


def _all_experiments(service: TuningService) -> Sequence[Experiment]:
    """Return all experiments; none if they may not be listed: names can be typed without a list."""
    none: Sequence[Experiment] = ()
    return attempt(partial(service.experiments, None), none).value
