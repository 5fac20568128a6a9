"""Documents of requests: YAML or JSON text."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from katib.doors.rest.problems import SCHEMAS
from katib.errors import InvalidError, invalid
from katib.model.loading import EXPERIMENTS, load_documents
from katib.model.types import API_VERSION
from katib.service.tuning.service import SOURCE

EXPERIMENT_KIND = "Experiment"

MEDIA_TYPES = ("application/json", "application/yaml")
_ACCEPTED = frozenset({"", *MEDIA_TYPES, "application/x-yaml", "text/yaml", "text/x-yaml"})

NEW_EXPERIMENT = "NewExperiment"
NEW_EXPERIMENT_SCHEMA = {
    "title": NEW_EXPERIMENT,
    "description": "An Experiment with all that it needs to be submitted.",
    "allOf": [{"$ref": f"{SCHEMAS}{EXPERIMENT_KIND}"}],
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": EXPERIMENT_KIND},
        "metadata": {"anyOf": [{"required": ["name"]}, {"required": ["generateName"]}]},
        "spec": {
            "required": ["objective"],
            "anyOf": [{"required": ["parameters"]}, {"required": ["nasConfig"]}],
            "properties": {
                "objective": {"anyOf": [{"required": ["type", "objectiveMetricName"]}, {"required": ["objectives"]}]},
                "parameters": {"minItems": 1, "items": {"required": ["name", "parameterType", "feasibleSpace"]}},
            },
        },
    },
}
EXPERIMENT_BODY: dict[str, Any] = {
    "required": True,
    "description": "An Experiment of kubeflow.org/v1beta1. Rules beyond its form are in docs/reference/errors.md.",
    "content": {media_type: {"schema": {"$ref": f"{SCHEMAS}{NEW_EXPERIMENT}"}} for media_type in MEDIA_TYPES},
}
RUNTIMES_BODY: dict[str, Any] = {
    "required": True,
    "description": "TrainingRuntimes and ClusterTrainingRuntimes of trainer.kubeflow.org/v1alpha1, as one or "
    "several documents.",
    "content": {media_type: {"schema": {"type": "object"}} for media_type in MEDIA_TYPES},
}


async def read_document(request: Request) -> str:
    """Return the text of the body.

    A form or `text/plain`, the only types that a web page may send across sites unasked, is refused.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _ACCEPTED:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f'cannot read "{media_type}"; send application/yaml or application/json, '
            "with curl by -H 'Content-Type: application/yaml' --data-binary @FILE",
        )
    try:
        return (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(SOURCE, f"byte {error.start} is not UTF-8", "send UTF-8 text", "document-encoding") from error


def check_namespace(document: str, namespace: str) -> None:
    """Refuse a document that names another namespace than the path; one that cannot be read is left to the service.

    Raises:
        InvalidError: The namespaces differ.
    """
    try:
        documents = load_documents(document, SOURCE)
    except InvalidError:
        return
    for loaded in documents:
        metadata = loaded.data.get("metadata") if loaded.kind in EXPERIMENTS else None
        named = metadata.get("namespace") if isinstance(metadata, dict) else None
        if isinstance(named, str) and named not in ("", namespace):
            cause = f'"{named}" is not the namespace of the path, "{namespace}"'
            remedy = "make them equal, or post to /api/v1/experiments"
            raise invalid("metadata.namespace", cause, remedy, "namespace-mismatch")
