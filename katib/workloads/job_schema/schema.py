"""The schema of a Job, generated from the official client by `tools/generate_job_schema.py` and kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Model:
    """One part of a Job, such as a container.

    Attributes:
        name: Name in the API, without version: `Container`.
        fields: Type of each field: `text`, `integer`, `boolean`, `integer-or-text`, `quantity`, `any`, or the key of
            another model; `[]` before it is a list, `{}` a map of them.
        required: Fields that must be given.
    """

    name: str
    fields: Mapping[str, str]
    required: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobSchema:
    """All models, by their key, such as `V1Container`."""

    root: str
    models: Mapping[str, Model]


@cache
def job_schema() -> JobSchema:
    """Return the schema; read once, on first use."""
    raw = json.loads(files(__package__).joinpath("job.json").read_bytes())
    models = {
        key: Model(key.removeprefix("V1").removeprefix("alpha3"), model["fields"], tuple(model.get("required", ())))
        for key, model in raw["models"].items()
    }
    return JobSchema(raw["root"], models)
