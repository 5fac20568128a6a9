"""Generate `katib/model/templates/job_schema/job.json` from the models of the official Kubernetes client.

Run `python tools/generate_job_schema.py` after an update of the client (`pip install kubernetes`), review the
difference, and give every new field a verdict in `katib/places/machine/admission/check.py`: a test requires it. At run
time only the JSON is used.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kubernetes import client

TARGET = Path(__file__).resolve().parent.parent / "katib" / "model" / "templates" / "job_schema" / "job.json"
ROOT_MODEL = "V1Job"

SCALARS = {"str": "text", "int": "integer", "float": "number", "bool": "boolean", "datetime": "text", "object": "any"}
QUANTITIES = frozenset(("sizeLimit", "divisor"))
QUANTITY_MAPS = frozenset(("limits", "requests", "overhead", "capacity"))
INTEGERS_OR_TEXT = frozenset((("V1HTTPGetAction", "port"), ("V1TCPSocketAction", "port")))


def main() -> None:
    TARGET.write_text(generate())


def generate() -> str:
    """Return the schema of a Job and of everything in it, one model per line."""
    models: dict[str, Any] = {}
    pending = [ROOT_MODEL]
    while pending:
        name = pending.pop()
        if name not in models:
            models[name] = describe(name)
            pending.extend(re.findall(r"\b[A-Z]\w*V?\d\w+", " ".join(models[name]["fields"].values())))
    schema = {
        "source": f"kubernetes {version('kubernetes')}",
        "root": ROOT_MODEL,
        "models": dict(sorted(models.items())),
    }
    return json.dumps(schema, separators=(",", ":")).replace('},"', '},\n"') + "\n"


def describe(name: str) -> dict[str, Any]:
    """Return the fields of a model with their types, and the required ones."""
    model = getattr(client, name)
    fields = {
        json_name: type_of(name, json_name, model.openapi_types[attribute])
        for attribute, json_name in sorted(model.attribute_map.items(), key=lambda item: item[1])
    }
    required = sorted(model.attribute_map[name] for name, field in model.model_fields.items() if field.is_required())
    return {"fields": fields, **({"required": required} if required else {})}


def type_of(model: str, field: str, python_type: str) -> str:
    """Return the type in the schema's notation: a scalar, `[]` or `{}` before the item type, or the name of a model."""
    if field in QUANTITIES:
        return "quantity"
    if (model, field) in INTEGERS_OR_TEXT:
        return "integer-or-text"
    listed = re.fullmatch(r"[Ll]ist\[(.+)\]", python_type)
    if listed:
        return f"[]{type_of(model, '', listed[1])}"
    mapped = re.fullmatch(r"[Dd]ict[\[(]str, (.+)[\])]", python_type)
    if mapped:
        return "{}quantity" if field in QUANTITY_MAPS else f"{{}}{type_of(model, '', mapped[1])}"
    return SCALARS.get(python_type, python_type)


if __name__ == "__main__":
    main()
