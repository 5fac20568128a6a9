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
from katib.doors.ui.compare_picker import MOST_OFFERED, OfferedRow, offered_experiments, offered_trials
from katib.doors.ui.compare_views import (
    ComparedGroup,
    experiment_groups,
    group_choices,
    grouped,
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
from katib.doors.ui.views import experiment_summary
from katib.engine.runtime.objects import Key
from katib.errors import KatibError, NotFoundError, invalid
from katib.figures.catalogue import compare
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.style import MOST_LINES
from katib.figures.trial_curves import CurveLook, draw_trial_curves
from katib.model.failure_text import readable
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import LONGEST_NAME, TuningService

_PATIENCE_SECONDS = 20.0
_MOST_SEARCHED = 3
"""Maximum number of experiments searched for trials by name: each fills a table."""
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
    def show(
        request: Request,
        service: Service,
        experiment: Names = [],  # noqa: B006 - FastAPI copies it
        trial: Names = [],  # noqa: B006 - as above
        experiment_group: Text = "",
        trial_group: Text = "",
    ) -> HTMLResponse:
        problems = []
        try:
            wanted = {"Experiment": references("experiment", experiment), "Trial": references("trial", trial)}
        except KatibError as error:
            wanted, problems = {"Experiment": [], "Trial": []}, [{"text": str(error), "link": "compare"}]
        link = partial(_address, wanted, {"experiment_group": experiment_group, "trial_group": trial_group})
        experiments = _read(service, Experiment, wanted["Experiment"], link)
        trials = _read(service, Trial, wanted["Trial"], link)
        metrics = shared_metrics(
            trials.objects, lambda one: attempt(lambda: read_metric_names(service, one), list[str]()).value
        )
        columns = _columns(experiments, "Experiment", experiment_groups, link, experiment_group)
        return render(
            request,
            "compare.html",
            wanted={kind: list(map(str, found)) for kind, found in wanted.items()},
            experiments=columns,
            trials=_columns(trials, "Trial", trial_groups, link, trial_group),
            outputs=[_output(service, one) for one in trials.objects[:MOST_LINES]],
            outputs_lines=_LINES,
            metrics=metrics,
            no_history=why_no_history(experiments.objects, is_grouped=bool(columns["group"])),
            problems=[*problems, *experiments.problems, *trials.problems],
            found=_found(service, "", wanted["Experiment"]),
        )

    @router.get("/data/compare/history")
    def draw_history(
        service: Service,
        user: Viewer,
        experiment: Names = [],  # noqa: B006 - FastAPI copies it
        by: By = "step",
        group: Text = "",
    ) -> Response:
        data = [
            data
            for reference in references("experiment", experiment)
            if (data := _experiment_data(tables, service, user, reference)) is not None
        ]
        objects = [one.experiment for one in data]
        drawn = compare(data, FigureOptions(by=by), grouped(objects, experiment_groups(objects), group))
        return Response(drawn.to_json(), media_type="application/json", headers=NO_STORE)

    @router.get("/data/compare/curves")
    def draw_curves(
        service: Service,
        trial: Names = [],  # noqa: B006 - FastAPI copies it
        metric: Text = "",
        by: By = "step",
        log: bool = False,
        smoothing: Smoothing = 0.0,
        group: Text = "",
    ) -> Response:
        found = _read(service, Trial, references("trial", trial), lambda *_: "").objects
        if not found or not metric:
            remedy = "name a trial that is there, and a metric"
            raise invalid("trial", "nothing is left to be drawn", remedy, "compare-name")
        curves = {one.name: read_curve(service, one, metric) for one in found}
        look, groups = CurveLook(by, log, smoothing), grouped(found, trial_groups(found), group)
        drawn = draw_trial_curves(f"{metric} of {len(found)} trials", metric, curves, look, groups)
        return Response(drawn.to_json(), media_type="application/json", headers=NO_STORE)

    @router.get("/data/compare/found")
    def find(request: Request, service: Service, user: Viewer, text: Text = "", experiment: Names = []) -> HTMLResponse:  # noqa: B006 - FastAPI copies it
        """Answer with experiments that a search finds, and trials by the beginning of their name, to be ticked."""
        found = _found(service, text, references("experiment", experiment))
        trials = _trials_named(tables, service, user, text.strip().rpartition("/")[2])
        return render(request, "parts/compare_found.html", text=text, **{**found, "trials": trials})

    return router


def _found(service: TuningService, text: str, shown: Sequence[Key]) -> dict[str, Any]:
    """Return the experiments that a search of the picker finds."""
    others = (e for e in _all_experiments(service) if Key(e.namespace, e.name) not in shown)
    return {**offered_experiments(list(map(experiment_summary, others)), text), "trials": []}


def _trials_named(tables: Tables, service: TuningService, user: Any, part: str) -> list[OfferedRow]:
    """Return trials by the beginning of their name: they are named after their experiment."""
    near = [e for e in _all_experiments(service) if part.startswith(e.name) or e.name.startswith(part)] if part else []
    found: list[OfferedRow] = []
    for experiment in sorted(near, key=lambda e: -len(e.name))[:_MOST_SEARCHED]:
        data = _experiment_data(tables, service, user, Key(experiment.namespace, experiment.name))
        found += [] if data is None else offered_trials(experiment.namespace, data.trials, part)
    return found[:MOST_OFFERED]


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


def _columns(
    found: _ComparedObjects[T], kind: str, read: Callable[[Sequence[T]], list[ComparedGroup]], link: Any, by: str
) -> dict[str, Any]:
    """Return a table for the template; each column has an address of the page without it."""
    rows = read(found.objects) if found.objects else []
    groups = grouped(found.objects, rows, by)
    heads = titles(found.objects, f"{kind.lower()}s", groups)
    for head in heads:
        namespace, _, name = head["reference"].partition("/")
        head["without"] = link(kind, Key(namespace, name))
    choices = group_choices(found.objects, rows)
    return {"heads": heads, "groups": rows, "choices": choices, "group": by if groups else ""}


def _output(service: TuningService, trial: Trial) -> dict[str, str]:
    """Return the end of a trial's output."""
    read = attempt(lambda: b"".join(service.logs(trial.namespace, trial.name, tail_lines=_LINES)), b"")
    return {"name": trial.name, "text": readable(read.value[-_MOST_BYTES:]), "problem": read.problem}


def _address(wanted: dict[str, list[Key]], choices: dict[str, str], kind: str, without: Key) -> str:
    """Return the address of the page without one of the compared objects."""
    pairs = [
        (other.lower(), str(reference))
        for other, found in wanted.items()
        for reference in found
        if (other, reference) != (kind, without)
    ]
    chosen = [(name, value) for name, value in choices.items() if value]
    return f"compare?{urlencode([*pairs, *chosen], safe='/')}" if pairs else "compare"


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
