"""The OpenAPI description of the verbs, from their declarations."""

from __future__ import annotations

from typing import Any

from msgspec import NODEFAULT, UNSET, json

from katib.doors.rest.documents import EXPERIMENT_BODY, RUNTIMES_BODY
from katib.doors.rest.problems import PROBLEM, SCHEMAS
from katib.doors.rest.verb_routes import API
from katib.service.tuning.service import (
    KIND_MARK,
    VERBS,
    FollowChanges,
    GetObject,
    ReadFile,
    ReadLogs,
    Run,
    StoreRuntimes,
    Submit,
)
from katib.service.tuning.verbs import DOCUMENT, Field, Verb, Way, answer_of, fields_of, objects_in, without_none

_NAMES = {"CallerAnswer": "CallersTrial", "MetricLog": "Reading", "EndedTrial": "EndedTrialData"}
"""Structs whose schemas have other names."""
_SPARSE = ("Reading", "EndedTrialData")
"""Schemas of structs that are written without defaults."""
_TAGS = {
    "get_suggestion": ["experiments", "suggestions"],
    "explain": ["experiments", "why"],
    "store_runtimes": ["experiments", "runtimes"],
    "list_algorithms": ["algorithms"],
}
_SEVERAL = "SubmittedExperiments"
_STREAMS = {
    ReadLogs: {"description": "The output as it was written.", "content": {"text/plain": {}}},
    ReadFile: {"description": "The file.", "content": {"application/octet-stream": {}}},
    FollowChanges: {
        "description": "Events named ADDED, MODIFIED and DELETED; their data is a type and an object. `problem` and "
        "`end` close the stream.",
        "content": {"text/event-stream": {"schema": {"$ref": f"{SCHEMAS}ChangeData"}}},
    },
}


class Description:
    """The paths of the verbs, and the schemas that they refer to.

    Attributes:
        paths: Operation by method by path.
        schemas: Schema by name.
    """

    def __init__(self) -> None:
        self.paths: dict[str, dict[str, Any]] = {}
        self.schemas: dict[str, Any] = {}
        for verb in VERBS:
            for way in verb.rest.ways:
                self.paths.setdefault(f"{API}{way.path}", {})[verb.rest.method.lower()] = self._operation(verb, way)
        self.schemas["ChangeData"] = {
            "title": "ChangeData",
            "description": "The data of one server-sent event.",
            "type": "object",
            "properties": {"type": {"type": "string"}, "object": {"type": "object"}},
            "required": ["type", "object"],
        }

    def _operation(self, verb: type[Verb[Any]], way: Way) -> dict[str, Any]:
        fields = fields_of(verb, way)
        tag = "trials" if "/trials/" in way.path else "experiments"
        operation: dict[str, Any] = {
            "tags": _TAGS.get(way.name, [tag]),
            "summary": way.name.replace("_", " ").title(),
            "description": (verb.__doc__ or "").partition("\n\n    Raises:")[0].replace("\n    ", "\n").strip(),
            "operationId": way.name,
            "responses": {**self._answers(verb, way), **PROBLEM},
        }
        if parameters := [self._parameter(field) for field in fields if field.place != "body"]:
            operation["parameters"] = parameters
        if verb.rest.body == DOCUMENT:
            operation["requestBody"] = RUNTIMES_BODY if verb is StoreRuntimes else EXPERIMENT_BODY
        elif verb.rest.body:
            body = [field for field in fields if field.place == "body"]
            schema = self._object(verb.rest.body, {one.wire: self._schema(one.type) for one in body})
            if required := [field.wire for field in body if field.required]:
                schema["required"] = required
            schema["description"] = operation["description"].partition("\n")[0]
            if verb.__struct_config__.forbid_unknown_fields:
                schema["additionalProperties"] = False
            content = {"application/json": {"schema": {"$ref": f"{SCHEMAS}{verb.rest.body}"}}}
            operation["requestBody"] = {"required": True, "content": content}
        return operation

    def _parameter(self, field: Field) -> dict[str, Any]:
        schema = self._schema(without_none(field.type))
        described = {"description": schema.pop("description")} if "description" in schema else {}
        if not field.required and field.default not in (None, UNSET, (), NODEFAULT):
            schema["default"] = field.default
        return {
            "name": field.wire,
            "in": field.place,
            "required": field.required or field.place == "path",
            "schema": schema,
            **described,
        }

    def _answers(self, verb: type[Verb[Any]], way: Way) -> dict[str, Any]:
        if verb in _STREAMS:
            return {"200": _STREAMS[verb]}
        if answer_of(verb) is type(None):
            return {str(verb.rest.status): {"description": "Successful Response"}}
        found = {"$ref": f"{SCHEMAS}{way.fixed['kind']}"} if verb is GetObject else self._answer(verb)
        if verb is Submit:
            each = {"items": {"type": "array", "items": found}}
            self._object(_SEVERAL, each)["required"] = ["items"]
            found = {"anyOf": [found, {"$ref": f"{SCHEMAS}{_SEVERAL}"}]}
        content = {"application/json": {"schema": found}}
        answers: dict[str, Any] = {str(verb.rest.status): {"description": "Successful Response", "content": content}}
        if verb in (Submit, Run):
            answers["201"] = {"description": "It was created.", "content": content}
        if may_be_none(verb):
            answers["204"] = {"description": "There is none yet."}
        return answers

    def _answer(self, verb: type[Verb[Any]]) -> dict[str, Any]:
        kind = answer_of(verb)
        schema: dict[str, Any]
        if (objects := objects_in(kind)) is not None:
            one = {"$ref": f"{SCHEMAS}{objects.__name__}"}
            schema = one if kind is objects else {"type": "array", "items": one}
        else:
            schema = self._schema(kind)
        if not verb.rest.holds:
            return schema
        made = self._object(verb.rest.answer, {verb.rest.holds: schema})
        made["required"] = [verb.rest.holds]
        return {"$ref": f"{SCHEMAS}{verb.rest.answer}"}

    def _object(self, name: str, properties: dict[str, Any]) -> dict[str, Any]:
        made = {"title": name, "type": "object", "properties": properties}
        self.schemas[name] = made
        return made

    def _schema(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, and keep those that it refers to."""
        (schema,), components = json.schema_components([kind], ref_template=SCHEMAS + "{name}")
        for name, found in components.items():
            shown = _NAMES.get(name, name)
            self.schemas[shown] = _renamed({**found, "title": shown})
            if "properties" in found:
                self._describe_struct(self.schemas[shown])
        return _renamed(schema)  # type: ignore[no-any-return]

    def _describe_struct(self, schema: dict[str, Any]) -> None:
        """Describe a struct as it is written: with all fields, but those whose absence means None."""
        schema["description"] = schema.get("description", "").partition("\n\n")[0]
        if schema["title"] not in _SPARSE:
            schema["required"] = list(schema["properties"])
        for field in schema["properties"].values():
            field.pop("default", None)


def may_be_none(verb: type[Verb[Any]]) -> bool:
    return type(None) in getattr(verb.__orig_bases__[0].__args__[0], "__args__", ())  # type: ignore[attr-defined]


def _renamed(schema: Any) -> Any:
    if isinstance(schema, dict):
        if KIND_MARK in schema:
            return {"$ref": f"{SCHEMAS}{schema[KIND_MARK]}"}
        schema = {name: _renamed(value) for name, value in schema.items()}
        if isinstance(reference := schema.get("$ref"), str):
            name = reference.removeprefix(SCHEMAS)
            schema["$ref"] = SCHEMAS + _NAMES.get(name, name)
        if "enum" in schema:
            schema["type"] = "string"
        if isinstance(pattern := schema.get("pattern"), str):
            schema["pattern"] = pattern.replace("\\Z", "$")
        return schema
    return [_renamed(one) for one in schema] if isinstance(schema, list) else schema
