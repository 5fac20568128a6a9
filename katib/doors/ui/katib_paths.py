"""The paths of Katib's own page, for dashboards and scripts. The answers are in `katib_forms`.

Errors are problems as everywhere in this server, with Katib's status for a missing parameter (400) or right (403);
Katib's own are bare text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Response
from fastapi.responses import JSONResponse

from katib.doors.rest.routing import OBJECT_NAME, Service
from katib.doors.ui.katib_forms import architecture_rows, experiment_csv, experiment_row, template_rows, trial_csv
from katib.errors import NotFoundError
from katib.model.types import Experiment, Suggestion, Trial
from katib.service.tuning.service import LONGEST_NAME, MAX_READINGS, Json, R, TemplateService, TuningService
from katib.service.tuning.trial_pages import each_trial

_LOG_LINES = 100_000
"""Of a longer log only the end is sent: the answer is one text."""
_SOURCE = "postData"
_NAME = re.compile(OBJECT_NAME)
_PLACE = ("updatedConfigMapNamespace", "updatedConfigMapName", "updatedConfigMapPath")
_TEXT = "updatedTemplateYaml"
_OLD_PATH = "configMapPath"

Document = Annotated[dict[str, Any], Body()]


def katib_paths() -> APIRouter:
    """Return the routes of Katib's page, each with and without the slash at its end."""
    router = APIRouter()
    for method, name, answer in (*_READING, *_WRITING):
        for path in (f"/{name}", f"/{name}/"):
            router.add_api_route(path, answer, methods=[method], response_class=JSONResponse, response_model=None)
    return router


def _experiments(service: Service, namespace: str = "") -> list[Json]:
    return list(map(experiment_row, service.experiments(_given("namespace", namespace))))


def _experiment(service: Service, namespace: str = "", experimentName: str = "") -> Json:  # noqa: N803 - the parameter's name
    return _read(service, Experiment, namespace, "experimentName", experimentName).encode()


def _trial(service: Service, namespace: str = "", trialName: str = "") -> Json:  # noqa: N803 - as above
    return _read(service, Trial, namespace, "trialName", trialName).encode()


def _suggestion(service: Service, namespace: str = "", suggestionName: str = "") -> Json:  # noqa: N803 - as above
    return _read(service, Suggestion, namespace, "suggestionName", suggestionName).encode()


def _experiment_table(service: Service, namespace: str = "", experimentName: str = "") -> Response:  # noqa: N803 - as above
    experiment = _read(service, Experiment, namespace, "experimentName", experimentName)
    return JSONResponse(experiment_csv(experiment, list(each_trial(service, namespace, experimentName))))


def _trial_table(service: Service, namespace: str = "", trialName: str = "") -> Response:  # noqa: N803 - as above
    trial = _read(service, Trial, namespace, "trialName", trialName)
    return JSONResponse(trial_csv(trial, service.metrics(namespace, trialName, limit=MAX_READINGS)))


def _architectures(service: Service, namespace: str = "", experimentName: str = "") -> list[Json]:  # noqa: N803 - as above
    _experiment(service, namespace, experimentName)
    return architecture_rows(each_trial(service, namespace, experimentName))


def _log(service: Service, namespace: str = "", trialName: str = "") -> Response:  # noqa: N803 - as above
    chunks = service.logs(_given("namespace", namespace), _given("trialName", trialName), tail_lines=_LOG_LINES)
    return JSONResponse(b"".join(chunks).decode("utf-8", "replace"))


def _templates(service: Service) -> Json:
    return template_rows(_offering(service).templates.all())


def _namespaces(service: Service) -> list[str]:
    return list(_offering(service).namespaces())


def _create(service: Service, document: Document) -> Response:
    experiment = document.get(_SOURCE)
    if not isinstance(experiment, dict):
        raise _missing(_SOURCE)
    service.submit(json.dumps(experiment), source=_SOURCE)
    return Response()


def _delete(service: Service, namespace: str = "", experimentName: str = "") -> list[Json]:  # noqa: N803 - as above
    service.delete(_given("namespace", namespace), _given("experimentName", experimentName))
    return list(map(experiment_row, service.experiments()))


def _put_template(service: Service, document: Document, *, moves: bool) -> Json:
    place = _place(document)
    text, old = _text_of(document, _TEXT), _text_of(document, _OLD_PATH) if moves else ""
    _offering(service).templates.put(**place, text=text, instead_of=old)
    return _templates(service)


def _add_template(service: Service, document: Document) -> Json:
    return _put_template(service, document, moves=False)


def _edit_template(service: Service, document: Document) -> Json:
    return _put_template(service, document, moves=True)


def _delete_template(service: Service, document: Document) -> Json:
    _offering(service).templates.remove(**_place(document))
    return _templates(service)


_READING = (
    ("GET", "fetch_experiments", _experiments),
    ("GET", "fetch_experiment", _experiment),
    ("GET", "fetch_trial", _trial),
    ("GET", "fetch_suggestion", _suggestion),
    ("GET", "fetch_hp_job_info", _experiment_table),
    ("GET", "fetch_hp_job_trial_info", _trial_table),
    ("GET", "fetch_nas_job_info", _architectures),
    ("GET", "fetch_trial_logs", _log),
    ("GET", "fetch_trial_templates", _templates),
    ("GET", "fetch_namespaces", _namespaces),
)
_WRITING = (
    ("POST", "create_experiment", _create),
    ("DELETE", "delete_experiment", _delete),
    ("POST", "add_template", _add_template),
    ("POST", "edit_template", _edit_template),
    ("POST", "delete_template", _delete_template),
)


def _read(service: TuningService, kind: type[R], namespace: str, parameter: str, name: str) -> R:
    return service.get(kind, _given("namespace", namespace), _given(parameter, name))


def _offering(service: TuningService) -> TemplateService:
    if not isinstance(service, TemplateService):
        raise NotFoundError("this server knows of no templates and namespaces")
    return service


def _place(document: Mapping[str, Any]) -> dict[str, str]:
    namespace, name, path = (_text_of(document, key) for key in _PLACE)
    return {"namespace": _given(_PLACE[0], namespace), "name": _given(_PLACE[1], name), "path": path}


def _text_of(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise _missing(key)
    return value


def _given(parameter: str, value: str) -> str:
    """Return the name of an object, or refuse an invalid one."""
    if not value:
        raise _missing(parameter)
    if len(value) > LONGEST_NAME or not _NAME.fullmatch(value):
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"{parameter}: is not a valid name; give that of an object")
    return value


def _missing(name: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, f"{name}: is missing; give it")
