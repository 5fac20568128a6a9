"""The page New: an editor for an Experiment, with a preview of its effect."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from katib.doors.rest.routing import Service
from katib.doors.ui.new_form import form_of, line_of, unsubmitted, with_form
from katib.doors.ui.rendering import render
from katib.errors import FieldError, InvalidError, KatibError
from katib.model.types import Distribution, Experiment, ParameterType
from katib.model.written import read_objects
from katib.model.yaml_text import MAX_BYTES, dump_yaml
from katib.service.tuning.service import Json, TuningService
from metrics_collector.parsers import parser_for

STARTS = {"job": "Job", "python": "Python file", "pytorchjob": "PyTorchJob", "trainjob": "TrainJob"}
"""Initial documents, by the name of their file."""

_SOURCE = "experiment"
_NAS = "preview-nas"
_LINE = re.compile(r"\bline (\d+)|:(\d+)(?::\d+)?$")
_MOST_LINES = 1_000


class Draft(BaseModel):
    """The text of the editor, and the form if it was changed."""

    text: str = Field(max_length=MAX_BYTES)
    form: dict[str, Any] | None = None


class PrintedLines(BaseModel):
    """Lines that a program printed, and the way to find metrics in them."""

    text: str = Field(max_length=MAX_BYTES)
    names: list[str] = Field(max_length=1_000)
    filters: list[str] = Field(default_factory=list, max_length=100)
    format: str = "TEXT"


def new_pages(optuna_line: Callable[[], str]) -> APIRouter:
    """Return the routes of the page, which shows the expression for Optuna, and of the data for its script."""
    router = APIRouter()

    @router.get("/new")
    def show(
        request: Request, service: Service, start: str = "job", origin: Annotated[str, Query(alias="from")] = ""
    ) -> HTMLResponse:
        if origin:
            namespace, _, name = origin.partition("/")
            experiment = service.get(Experiment, namespace, name).encode()
            text = dump_yaml(unsubmitted(experiment, (other.name for other in service.experiments(namespace))))
        else:
            text = files("katib.doors.ui").joinpath("starts", f"{start if start in STARTS else 'job'}.yaml").read_text()
        infos = service.algorithms()
        return render(
            request,
            "new.html",
            text=text,
            origin=origin,
            start="" if origin else start,
            starts=STARTS,
            algorithms=[info for info in infos if not info.early_stopping],
            stoppings=[info for info in infos if info.early_stopping],
            types=list(ParameterType),
            distributions=list(Distribution),
            optuna_line=optuna_line(),
        )

    @router.post("/data/new/check")
    async def check(service: Service, draft: Draft) -> Json:
        return await run_in_threadpool(check_draft, service, draft.text)

    @router.post("/data/new/form")
    def change(draft: Draft) -> Json:
        documents = read_objects(draft.text, _SOURCE)
        experiment = _experiment_in([document.data for document in documents])
        changed = with_form(experiment, draft.form or {})
        others = [dump_yaml(document.data) for document in documents if document.data is not experiment]
        return {"text": "---\n".join((dump_yaml(changed), *others))}

    @router.post("/data/new/metrics")
    def read(lines: PrintedLines) -> Json:
        try:
            parser = parser_for(lines.format, lines.names, lines.filters)
        except InvalidError as error:  # the answer to the author of a pattern, not a refusal
            return {"readings": [], "error": "; ".join(f"{one.cause}; {one.remedy}" for one in error.errors)}
        found = []
        for number, line in enumerate(lines.text.splitlines()[:_MOST_LINES], 1):
            readings = parser.feed(line.encode() + b"\n")
            found += [{"line": number, "name": reading.name, "value": reading.value} for reading in readings]
        return {"readings": found, "error": ""}

    return router


def check_draft(service: TuningService, text: str) -> Json:
    """Return the errors of a text, with lines; its form; and the first trial if there are no errors.

    Args:
        service: A service with the rights of the user.
        text: YAML.
    """
    form: Json | None = None
    trial: Json | None = None
    errors: tuple[FieldError, ...] = ()
    notices: tuple[str, ...] = ()
    try:
        form = form_of(_experiment_in([document.data for document in read_objects(text, _SOURCE)]))
        notices = tuple(service.validate(text, source=_SOURCE))
        preview = service.preview(text, source=_SOURCE)
        trial = {"assignments": dict(preview.assignments), "yaml": dump_yaml(preview.run_spec)}
    except InvalidError as error:
        errors = tuple(one for one in error.errors if one.origin != _NAS)
        notices += tuple(f"{one.cause}; {one.remedy}" for one in error.errors if one.origin == _NAS)
    except KatibError as error:
        notices = (f"It could not be checked: {error}",)
    return {"errors": [_shown(error, text) for error in errors], "notices": notices, "form": form, "trial": trial}


def _shown(error: FieldError, text: str) -> Json:
    in_words = _LINE.search(error.path) or _LINE.search(error.cause)
    line = int(in_words[1] or in_words[2]) if in_words else line_of(text, error.path)
    return {"path": error.path, "cause": error.cause, "remedy": error.remedy, "line": line}


def _experiment_in(documents: list[Any]) -> Json:
    """Return the Experiment among the documents of a text; by default the first mapping, or an empty one."""
    mappings = [document for document in documents if isinstance(document, dict)]
    named = [document for document in mappings if document.get("kind") == "Experiment"]
    return next(iter((*named, *mappings)), {})
