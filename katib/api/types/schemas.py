"""JSON Schemas of the types, for the descriptions of REST and of the custom resources."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

from msgspec.json import schema_components

from katib.api.types.fitting import FURTHER
from katib.api.types.model import Model


def schemas(*models: type[Model], reference: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of types and of all that they are made of, by name.

    Args:
        models: The types.
        reference: How one schema refers to another; `{name}` stands for its name.
    """
    _, components = schema_components(models, ref_template=reference)
    return {name: _described(schema) for name, schema in components.items()}


def _described(schema: Any) -> Any:
    """Return a schema without what only reading needs: an object is open unless it names its fields and no others."""
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
