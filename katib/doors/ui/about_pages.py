"""The pages about the service itself: its algorithms with their purposes, and its health."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from katib.doors.rest.routing import Service
from katib.doors.ui.rendering import render
from katib.engine.controllers.metrics import Page
from katib.errors import KatibError, NotFoundError
from katib.model.algorithms import AlgorithmInfo, Feature
from katib.model.types import Experiment, Suggestion
from katib.service.tuning.reading import algorithm_of
from katib.service.tuning.service import Json, TuningService
from katib.service.tuning.states import is_at_rest, is_completed, last_condition, state_of

_FEATURES = {
    Feature.SEVERAL_OBJECTIVES: "several objectives",
    Feature.CONSTRAINTS: "constraints",
    Feature.CONDITIONAL_PARAMETERS: "conditional parameters",
    Feature.EARLIER_TRIALS: "warm start",
    Feature.PRIORS: "priors",
}
_LIBRARIES = ("optuna", "scikit-optimize", "cmaes", "grpcio", "sqlalchemy", "kubernetes", "plotly")
_MOST_EXPLAINED = 12
"""Maximum number of explained experiments, the newest first: explaining one reads its trials."""
_CHECKS = {"controllers": "Controllers", "database": "Database of objects"}


def about_pages() -> APIRouter:
    """Return the routes of the pages."""
    router = APIRouter()

    @router.get("/algorithms")
    def show_algorithms(request: Request, service: Service) -> HTMLResponse:
        shown = [shown_algorithm(info) for info in service.algorithms()]
        return render(
            request,
            "algorithms.html",
            advice=ADVICE,
            suggestion=[one for one in shown if not one["early_stopping"]],
            stopping=[one for one in shown if one["early_stopping"]],
        )

    @router.get("/health")
    def show_health(request: Request, service: Service) -> HTMLResponse:
        experiments = list(reversed(service.experiments()))
        return render(
            request,
            "health.html",
            checks=[*_readiness(request.app.state.pages), _metrics_check(service, experiments)],
            services=list(_services(service, experiments)),
            doubtful=list(_doubtful(service, experiments)),
            versions={"Python": platform.python_version(), **_versions()},
            now=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    return router


def shown_algorithm(info: AlgorithmInfo) -> Json:
    """Return the description of an algorithm for the page."""
    return {
        "name": info.name,
        "summary": info.summary,
        "suits": suits(info.name),
        "early_stopping": info.early_stopping,
        "learns": info.reads_history,
        "features": [words for feature, words in _FEATURES.items() if feature in info.features],
        "extra": info.extra,
        "settings": None
        if info.settings is None
        else [
            {
                "name": setting.name,
                "type": setting.type,
                "default": setting.default,
                "description": setting.description,
                "choices": setting.choices,
                "required": setting.is_required,
            }
            for setting in info.settings
        ],
    }


def _check(name: str, *, ok: bool, words: str) -> Json:
    return {"name": name, "ok": ok, "words": words}


def _readiness(pages: Mapping[str, Page]) -> Iterator[Json]:
    if "/readyz" not in pages:
        return
    _, _, body = pages["/readyz"]()
    for name, holds in json.loads(body).items():
        yield _check(_CHECKS.get(name, name), ok=bool(holds), words="at work" if holds else "not at work")


def _metrics_check(service: TuningService, experiments: list[Experiment]) -> Json:
    """Query the log of metrics for one reading."""
    name = "Log of metrics"
    for experiment in experiments:
        try:
            page = service.trials(experiment.namespace, experiment.name, limit=1)
            if not page.items:
                continue
            began = time.perf_counter()
            service.metrics(experiment.namespace, page.items[0].name, limit=1)
        except KatibError as error:
            return _check(name, ok=False, words=str(error))
        return _check(name, ok=True, words=f"answered within {(time.perf_counter() - began) * 1000:.0f} ms")
    return _check(name, ok=True, words="not asked: there is no trial yet")


def _services(service: TuningService, experiments: list[Experiment]) -> Iterator[Json]:
    """Yield the suggestion service of each unfinished experiment."""
    for experiment in [one for one in experiments if not is_completed(one)][:_MOST_EXPLAINED]:
        namespace, name = experiment.namespace, experiment.name
        algorithm = algorithm_of(experiment)
        try:
            suggestion = service.get(Suggestion, namespace, name)
            state, words = state_of(suggestion), last_condition(suggestion).message
        except NotFoundError:  # not made yet, or never needed, as of imported trials
            continue
        except KatibError as error:
            state, words = "Created", str(error)
        yield {"namespace": namespace, "name": name, "algorithm": algorithm, "state": state, "words": words}


def _doubtful(service: TuningService, experiments: list[Experiment]) -> Iterator[Json]:
    """Yield waiting and failed objects, each with the reason; progressing, stopped or interrupted ones are left out."""
    doubtful = [one for one in experiments if state_of(one) == "Failed" or not (is_completed(one) or is_at_rest(one))]
    doubtful.sort(key=_has_running_trials)  # waiting and failed ones come first
    for experiment in doubtful[:_MOST_EXPLAINED]:
        namespace, name = experiment.namespace, experiment.name
        try:
            why = service.why(namespace, name)
        except KatibError as error:
            yield {"namespace": namespace, "name": name, "state": "", "verdict": str(error), "remedies": ()}
            continue
        if _has_running_trials(experiment) and not why.remedies:
            continue
        yield {
            "namespace": namespace,
            "name": name,
            "state": state_of(experiment),
            "verdict": why.verdict,
            "remedies": why.remedies,
        }


def _has_running_trials(experiment: Experiment) -> bool:
    return not is_completed(experiment) and experiment.status.trials_running > 0


def _versions() -> dict[str, str]:
    found = {}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "not installed"
    return found


ADVICE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("up to a few hundred trials that take seconds or longer, of any kinds of parameters", ("gp",)),
    ("a thousand trials or more, or trials that end at once", ("tpe", "multivariate-tpe")),
    ("continuous parameters only and many hundred trials", ("cmaes",)),
    ("a small table of combinations, to be tried completely", ("grid",)),
    ("all trials at once, or a baseline for a plot", ("sobol",)),
    ("several conflicting objectives", ("nsga2", "motpe")),
    ("trainings whose early results predict the final one", ("asha", "hyperband", "bohb")),
    ("a training whose hyperparameters should change while it runs", ("pbt",)),
    ("a network architecture to find", ("enas", "darts")),
    ("experiments written for Katib's scikit-optimize service", ("bayesianoptimization",)),
    ("a baseline to compare with", ("random",)),
)
"""Situations and suitable algorithms, as in docs/reference/algorithms.md. `auto` has its own rules."""


def suits(algorithm: str) -> str:
    """Return the purpose of an algorithm, a clause; empty if unknown."""
    return next((situation for situation, names in ADVICE if algorithm in names), "")
