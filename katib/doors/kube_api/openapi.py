"""OpenAPI v3 description of the API for each group and version, generated from the types.

`kubectl explain` shows it, and clients find out there whether a server supports `dryRun` and `fieldValidation`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from katib.doors.kube_api.resources import JOB, RESOURCES, ServedResource
from katib.engine.controllers.kinds import POD
from katib.engine.runtime.objects import Kind
from katib.engine.stores.semantics import encode
from katib.model.templates.job_schema import DESCRIPTIONS, job_schema
from katib.model.types import Experiment, Suggestion, Trial
from katib.model.types.optimization import OptimizationJob
from katib.model.types.structural import kind_schema
from katib.model.version import __version__

Json = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"
_ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCHEMAS = "#/components/schemas/"
_MODELS = {model.__name__: model for model in (Experiment, Suggestion, Trial, OptimizationJob)}
_SCALARS: Mapping[str, Json] = {
    "text": {"type": "string"},
    "integer": {"type": "integer", "format": "int64"},
    "boolean": {"type": "boolean"},
    "integer-or-text": {"type": "string", "format": "int-or-string"},
    "quantity": {"type": "string", "format": "int-or-string"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "map": _ANYTHING,
    "list": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}},
}
_WRITTEN_AS: Mapping[str, Any] = {
    "texts": "[]text",
    "env": "[]V1EnvVar",
    "pod": "V1PodTemplateSpec",
    "job": {"metadata": "V1ObjectMeta", "spec": "V1JobSpec"},
}
"""Types of fields of training jobs, as types of fields of a Job, or by their fields."""

_ANY_NAME = "*"
_TIME: Json = {"type": "string", "format": "date-time"}
_TEXTS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_FIELDS: Mapping[str, Json] = {
    "ConfigMap": {"data": _TEXTS, "binaryData": _TEXTS, "immutable": {"type": "boolean"}},
    "Secret": {"data": _TEXTS, "stringData": _TEXTS, "immutable": {"type": "boolean"}, "type": {"type": "string"}},
    "Event": {
        **{name: {"type": "string"} for name in ("reason", "message", "type", "firstTimestamp", "lastTimestamp")},
        "count": {"type": "integer"},
        "involvedObject": _ANYTHING,
        "source": _ANYTHING,
    },
}
"""Fields of kinds that have neither spec nor status."""

_METADATA: Mapping[str, tuple[str, Json]] = {
    "annotations": ("Texts that programs and people keep with the object.", _TEXTS),
    "creationTimestamp": ("When it was created; set by the server.", _TIME),
    "deletionTimestamp": ("When it was deleted, while it waits for finalizers.", _TIME),
    "finalizers": ("Who has to act before it goes.", {"type": "array", "items": {"type": "string"}}),
    "generateName": ("Beginning of a name that the server completes.", {"type": "string"}),
    "generation": ("Counts the changes of the spec; set by the server.", {"type": "integer", "format": "int64"}),
    "labels": ("Texts by which the object is selected.", _TEXTS),
    "managedFields": ("Who applied which fields; set by the server.", {"type": "array", "items": _ANYTHING}),
    "name": ("Unique among the objects of this kind in the namespace.", {"type": "string"}),
    "namespace": ("Where it is.", {"type": "string"}),
    "ownerReferences": ("Objects with which it goes.", {"type": "array", "items": _ANYTHING}),
    "resourceVersion": ("Changes with every write; set by the server.", {"type": "string"}),
    "uid": ("Its identity; set by the server.", {"type": "string"}),
}
_WRITING = ("dryRun", "fieldManager", "fieldValidation")
_LISTING = (
    *("allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion"),
    *("resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch"),
)
_ACTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "get": ("get", ()),
    "list": ("get", _LISTING),
    "create": ("post", _WRITING),
    "update": ("put", _WRITING),
    "patch": ("patch", (*_WRITING, "force")),
    "delete": ("delete", ("dryRun", "propagationPolicy")),
    "deletecollection": ("delete", ("dryRun", "fieldSelector", "labelSelector")),
}
"""Method and parameters by verb."""


Structures = Mapping[Kind, Mapping[str, Any]]


class Descriptions:
    """Descriptions of all served kinds, generated on first use.

    Args:
        structures: The fields of the specs of kinds without a type here, from `ObjectHome`.
    """

    def __init__(self, structures: Structures) -> None:
        self._structures = structures

    @cached_property
    def index(self) -> bytes:
        """Paths of the descriptions of all groups, as JSON text."""
        paths = {}
        for api_version, document in self.documents.items():
            digest = hashlib.sha256(document).hexdigest()[:32].upper()
            root = _root(api_version)
            paths[root.lstrip("/")] = {"serverRelativeURL": f"/openapi/v3{root}?hash={digest}"}
        return encode({"paths": paths}).encode()

    @cached_property
    def documents(self) -> Mapping[str, bytes]:
        """OpenAPI 3 description by group and version, as JSON text."""
        found = {}
        for api_version in dict.fromkeys(resource.kind.api_version for resource in RESOURCES):
            resources = [resource for resource in RESOURCES if resource.kind.api_version == api_version]
            document: Json = {
                "openapi": "3.0.0",
                "info": {"title": "Katib", "version": __version__},
                "paths": {path: item for resource in resources for path, item in _paths(resource)},
                "components": {"schemas": _definitions(resources, self._structures)},
            }
            found[api_version] = encode(document).encode()
        return found


# --- schemas ----------------------------------------------------------------------------------------------------------


def _definitions(resources: Any, structures: Structures) -> Json:
    found: Json = {_META: _object({name: {"description": d, **s} for name, (d, s) in _METADATA.items()})}
    for resource in resources:
        found[_name_of(resource.kind)] = _described(resource, structures)
    if any(resource.kind in (JOB, POD, *structures) for resource in resources):
        found |= {_pod_name(key): _modelled(key) for key in job_schema().models}
    return found


def _described(resource: ServedResource, structures: Structures) -> Json:
    kind = resource.kind
    schema = dict(_schema(kind, structures))
    own = {
        "apiVersion": {"description": f"Always {kind.api_version}.", "type": "string"},
        "kind": {"description": f"Always {kind.kind}.", "type": "string"},
        "metadata": _with_text("Name, labels and what the server notes.", {"$ref": _SCHEMAS + _META}),
    }
    schema["properties"] = own | {name: field for name, field in schema["properties"].items() if name not in own}
    group_version_kind = {"group": resource.group, "version": resource.version, "kind": kind.kind}
    return {**schema, _GROUP_VERSION_KIND: [group_version_kind]}


def _schema(kind: Kind, structures: Structures) -> Json:
    if kind.kind in _MODELS:
        return kind_schema(_MODELS[kind.kind])
    if kind == JOB:
        return _modelled(job_schema().root)
    if kind == POD:
        return _object({"spec": {"$ref": _SCHEMAS + _pod_name("V1PodSpec")}, "status": _ANYTHING})
    if kind in structures:
        return _object({"spec": _part(structures[kind]), "status": _ANYTHING})
    return _object(_FIELDS.get(kind.kind, {"spec": _ANYTHING, "status": _ANYTHING}))


def _object(fields: Mapping[str, Json]) -> Json:
    return {"type": "object", "properties": dict(fields)}


def _with_text(text: str, schema: Json) -> Json:
    """Return a schema with its description; OpenAPI 3.0 allows nothing beside a reference."""
    return {"description": text, **({"allOf": [schema]} if "$ref" in schema else schema)}


def _modelled(key: str) -> Json:
    """Return the schema of a part of a Job."""
    model = job_schema().models[key]
    schema = _object({name: _typed(kind) for name, kind in sorted(model.fields.items())})
    for name, field in schema["properties"].items():
        if text := DESCRIPTIONS.get(f"{key}.{name}"):
            schema["properties"][name] = _with_text(text, field)
    return {**schema, "required": list(model.required)} if model.required else schema


def _part(part: Any) -> Json:
    """Return the schema of a part of a training job."""
    if isinstance(part, list):
        return {"type": "array", "items": _part(part[0])}
    if not isinstance(part, Mapping):
        return _part(_WRITTEN_AS[part]) if part in _WRITTEN_AS else _typed(part)
    if _ANY_NAME in part:
        return {"type": "object", "additionalProperties": _part(part[_ANY_NAME])}
    return _object({name: _part(field) for name, field in sorted(part.items())})


def _typed(kind: str) -> Json:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind.startswith("[]"):
        return {"type": "array", "items": _typed(kind[2:])}
    if kind.startswith("{}"):
        return {"type": "object", "additionalProperties": _typed(kind[2:])}
    return {"$ref": _SCHEMAS + (_META if kind == "V1ObjectMeta" else _pod_name(kind))}


def _pod_name(key: str) -> str:
    return f"io.k8s.api.core.{key}"


def _name_of(kind: Kind) -> str:
    group, _, version = kind.api_version.rpartition("/")
    return ".".join([*reversed((group or "core.api.k8s.io").split(".")), version, kind.kind])


# --- paths ------------------------------------------------------------------------------------------------------------


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _paths(resource: ServedResource) -> Iterator[tuple[str, Json]]:
    base = _root(resource.kind.api_version)
    whole = f"{base}/namespaces/{{namespace}}" if resource.is_namespaced else base
    whole = f"{whole}/{resource.plural}"
    yield whole, _item(resource, ("list", "create", "deletecollection"), whole)
    one = f"{whole}/{{name}}"
    yield one, _item(resource, ("get", "update", "patch", "delete"), one)
    if "status" in resource.subresources and "update" in resource.verbs:
        yield f"{one}/status", _item(resource, ("get", "update", "patch"), f"{one}/status")


def _item(resource: ServedResource, verbs: tuple[str, ...], path: str) -> Json:
    names = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
    item: Json = {"parameters": [_parameter(name, "path") for name in names]}
    for verb in verbs:
        if verb in resource.verbs:
            method, parameters = _ACTIONS[verb]
            item[method] = _operation(resource, verb, parameters, path)
    return item


def _operation(resource: ServedResource, verb: str, parameters: tuple[str, ...], path: str) -> Json:
    of_status = "Status" if path.endswith("/status") else ""
    title = "".join(part.title() for part in resource.kind.api_version.replace("/", ".").split("."))
    operation: Json = {
        "operationId": f"{verb}{title}{resource.kind.kind}{of_status}",
        "parameters": [_parameter(name, "query") for name in parameters],
        "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": {"create": "post", "update": "put"}.get(verb, verb),
        _GROUP_VERSION_KIND: {"group": resource.group, "version": resource.version, "kind": resource.kind.kind},
    }
    if verb in ("create", "update", "patch"):
        media_type = "application/merge-patch+json" if verb == "patch" else "application/json"
        schema = {"$ref": _SCHEMAS + _name_of(resource.kind)}
        operation["requestBody"] = {"content": {media_type: {"schema": schema}}}
    return operation


def _parameter(name: str, place: str) -> Json:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, "schema": {"type": "string"}}
