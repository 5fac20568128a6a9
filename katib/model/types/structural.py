"""Structural schemas of the kinds, as Kubernetes requires: without references and unions, each field described.

Objects of other kinds (a trial's job, a collector's container) are marked to preserve unknown fields.
"""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

from msgspec.json import schema_components

from katib.model.types.field_descriptions import DESCRIPTIONS, SCALARS
from katib.model.types.fitting import FURTHER
from katib.model.types.model import Model
from katib.model.types.resources import Resource


def schemas(*models: type[Model], reference: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of types and of all their parts, by name.

    Args:
        models: The types.
        reference: Format of a reference to another schema; `{name}` stands for its name.
    """
    _, components = schema_components(models, ref_template=reference)
    return {name: _described(schema) for name, schema in components.items()}


def _described(schema: Any) -> Any:
    """Return a schema without internals of decoding: an object is open unless it names its fields and no others."""
    if isinstance(schema, list):
        return [_described(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _described(part) for name, part in schema.items() if part != [] or name != "required"}
    if isinstance(text := found.get("description"), str):
        found["description"] = cleandoc(text)
    if found.get("type") == "object":
        properties = found.get("properties", {})
        if properties.pop(FURTHER, None):
            found["additionalProperties"] = True
        elif not properties:
            found.setdefault("additionalProperties", True)
    return found


Json = dict[str, Any]

_KEPT = ("type", "format", "description", "properties", "items", "additionalProperties", "minimum", "maximum")


def kind_schema(model: type[Resource]) -> Json:
    """Return the schema of a kind, without the fields of its metadata."""
    definitions = schemas(model, reference="#/$defs/{name}")
    schema = definitions[model.__name__]
    fields = {
        name: _field(model.__name__, name, schema["properties"][name], definitions) for name in ("spec", "status")
    }
    own = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {"type": "object", "description": schema["description"], "properties": own | fields}


def _structural(schema: Json, definitions: Json) -> Json:
    """Return a schema without references and unions."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return _structural({**definitions[name], "title": name}, definitions)
    if "anyOf" in schema:  # a field that may be null
        (one,) = [option for option in schema["anyOf"] if option != {"type": "null"}]
        return _nullable(_structural(one, definitions))
    found = {key: schema[key] for key in _KEPT if key in schema}
    if "exclusiveMaximum" in schema:  # whole numbers of 32 bits
        found = {"type": "integer", "format": "int32"}
    if "properties" in found:
        title = schema["title"]
        found["properties"] = {name: _field(title, name, v, definitions) for name, v in found["properties"].items()}
    if "items" in found:
        found["items"] = _structural(found["items"], definitions)
    further = found.get("additionalProperties")
    if further is True:
        del found["additionalProperties"]
        if "properties" not in found:  # known fields declare additions of newer versions
            found["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(further, dict):
        found["additionalProperties"] = _structural(further, definitions)
    return found


def _nullable(schema: Json) -> Json:
    """Allow null for a value, but not for a block of fields: older clusters would not explain its fields."""
    return schema if "properties" in schema else schema | {"nullable": True}


def _field(model: str, name: str, schema: Json, definitions: Json) -> Json:
    key = f"{model}.{name}"
    found = _structural(schema, definitions)
    if key in SCALARS:
        scalar = {"nullable": True, "x-kubernetes-preserve-unknown-fields": True}  # otherwise a rule cannot read a null
        found = found | {"items": scalar} if "items" in found else scalar
    return {"description": DESCRIPTIONS[key]} | {k: v for k, v in found.items() if k != "description"}
