"""Generate what `manifests/components` has from the code: definitions and trial templates (run by `make crds`).

The models are the one source of the schema. Kubernetes wants it structural: no references, no unions, and objects that
are nobody's business (a trial's job, a collector's container) marked to be kept as they are.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from katib.api.types import GROUP, VERSION, Experiment, Resource, Suggestion, Trial
from katib.api.types.schemas import schemas
from tools.crd_fields import DESCRIPTIONS, SCALARS

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = ROOT / "manifests" / "components"
TARGET = COMPONENTS / "crds"

Json = dict[str, Any]

_LAST_CONDITION = ".status.conditions[-1:]"
_STATE_COLUMNS = [
    {"name": "Type", "type": "string", "jsonPath": f"{_LAST_CONDITION}.type"},
    {"name": "Status", "type": "string", "jsonPath": f"{_LAST_CONDITION}.status"},
]
_AGE_COLUMN = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_COUNT_COLUMNS = [
    {"name": "Requested", "type": "string", "jsonPath": ".spec.requests"},
    {"name": "Assigned", "type": "string", "jsonPath": ".status.suggestionCount"},
]

KINDS: dict[type[Resource], list[Json]] = {
    Experiment: [*_STATE_COLUMNS, _AGE_COLUMN],
    Suggestion: [*_STATE_COLUMNS, *_COUNT_COLUMNS, _AGE_COLUMN],
    Trial: [*_STATE_COLUMNS, _AGE_COLUMN],
}

_KEPT = ("type", "format", "description", "properties", "items", "additionalProperties", "minimum", "maximum")


def main() -> int:
    """Write all files; with `--check` compare instead and return 1 when one is stale."""
    check = "--check" in sys.argv[1:]
    stale = []
    TARGET.mkdir(parents=True, exist_ok=True)
    wanted = {
        TARGET / f"{plural(model)}.yaml": yaml.safe_dump(definition(model, columns), sort_keys=False, width=120)
        for model, columns in KINDS.items()
    }
    wanted[COMPONENTS / "config" / "trial-templates.yaml"] = (
        ROOT / "katib" / "local" / "trial-templates.yaml"
    ).read_text()
    for path, text in wanted.items():
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.relative_to(ROOT))
    for name in stale:
        print(f"{name} does not fit the code; run `make crds`")
    return bool(stale)


def plural(model: type[Resource]) -> str:
    """Return the plural of a kind."""
    return f"{model.__name__.lower()}s"


def definition(model: type[Resource], columns: list[Json]) -> Json:
    """Return the CustomResourceDefinition of a kind."""
    name = model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural(model)}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": plural(model),
                "singular": name.lower(),
                "categories": ["all", "kubeflow", "katib"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": _root(model)},
                }
            ],
        },
    }


def _root(model: type[Resource]) -> Json:
    definitions = schemas(model, reference="#/$defs/{name}")
    schema = definitions[model.__name__]
    fields = {
        name: _field(model.__name__, name, schema["properties"][name], definitions) for name in ("spec", "status")
    }
    own = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {"type": "object", "description": schema["description"], "properties": own | fields}


def structural(schema: Json, definitions: Json) -> Json:
    """Return a schema without references and unions."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return structural({**definitions[name], "title": name}, definitions)
    if "anyOf" in schema:  # a field that may be null
        (one,) = [option for option in schema["anyOf"] if option != {"type": "null"}]
        return _nullable(structural(one, definitions))
    found = {key: schema[key] for key in _KEPT if key in schema}
    if "exclusiveMaximum" in schema:  # whole numbers of 32 bits
        found = {"type": "integer", "format": "int32"}
    if "properties" in found:
        title = schema["title"]
        found["properties"] = {name: _field(title, name, v, definitions) for name, v in found["properties"].items()}
    if "items" in found:
        found["items"] = structural(found["items"], definitions)
    further = found.get("additionalProperties")
    if further is True:
        del found["additionalProperties"]
        if "properties" not in found:  # what newer versions add beside known fields, their definitions declare
            found["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(further, dict):
        found["additionalProperties"] = structural(further, definitions)
    return found


def _nullable(schema: Json) -> Json:
    """Let a value be null, but no block of fields: older clusters then explain none of its fields."""
    return schema if "properties" in schema else schema | {"nullable": True}


def _field(model: str, name: str, schema: Json, definitions: Json) -> Json:
    key = f"{model}.{name}"
    found = structural(schema, definitions)
    if key in SCALARS:
        scalar = {"nullable": True, "x-kubernetes-preserve-unknown-fields": True}  # a rule cannot read a null otherwise
        found = found | {"items": scalar} if "items" in found else scalar
    return {"description": DESCRIPTIONS[key]} | {k: v for k, v in found.items() if k != "description"}


if __name__ == "__main__":
    sys.exit(main())
