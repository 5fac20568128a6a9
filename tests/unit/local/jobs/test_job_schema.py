from __future__ import annotations

import copy
from typing import Any

import pytest

from katib.model.templates.job_schema import DESCRIPTIONS, check_job_schema, job_schema
from katib.model.templates.typed_fields import FIELD_TYPES, TEXT_MAPS, FieldType, field_type
from tests.support.golden import Golden
from tests.support.templates import job

PATH = "spec.trialTemplate.trialSpec"
STATUS_MODELS = {"V1JobStatus", "V1JobCondition", "V1UncountedTerminatedPods", "V1ManagedFieldsEntry"}
SERVER_FIELDS = {"generation"}


def edited(path: str, value: Any) -> dict[str, Any]:
    """Return a valid Job with one field set, the path in dots and list indexes."""
    obj = copy.deepcopy(job("a", env={"N": "v"}))
    parent: Any = obj
    *steps, last = path.split(".")
    for step in steps:
        parent = parent[int(step)] if isinstance(parent, list) else parent.setdefault(step, {})
    parent[int(last) if isinstance(parent, list) else last] = value
    return obj


CONTAINER = "spec.template.spec.containers.0"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spec.parallelism", 2),
        ("spec.parallelism", "${trialParameters.n}"),
        ("spec.suspend", None),
        ("spec.template.metadata.creationTimestamp", None),
        (f"{CONTAINER}.resources.limits", {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": 1.5}),
        (f"{CONTAINER}.resources", {"requests": {"cpu": "${trialParameters.n}"}}),
        (f"{CONTAINER}.livenessProbe", {"httpGet": {"port": "http"}}),
        (f"{CONTAINER}.livenessProbe", {"httpGet": {"port": 80}}),
        ("metadata.labels", {"${trialParameters.n}": "a"}),
        ("spec.template.spec.volumes", [{"name": "v", "emptyDir": {"sizeLimit": 5}}]),
    ],
)
def test_what_kubernetes_takes_is_fine(field: str, value: Any) -> None:
    assert check_job_schema(edited(field, value), PATH) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (f"{CONTAINER}.comand", ["a"]),
        (f"{CONTAINER}.workdir", "/"),
        ("invalidSpec", {}),
        ("spec.template.spec.containers", {"a": 1}),
        (f"{CONTAINER}.command", "train --lr=${trialParameters.lr}"),
        ("spec.parallelism", "4"),
        ("spec.parallelism", True),
        ("spec.parallelism", 2.5),
        ("spec.suspend", "true"),
        (f"{CONTAINER}.env.0.value", 5),
        (f"{CONTAINER}.args.0", None),
        (f"{CONTAINER}.resources", {"limits": {"nvidia.com/gpu": [1]}}),
        ("metadata.labels", {"a": 5}),
        ("metadata.labels", "a"),
        ("spec.template.spec.containers.0", "a"),
        (f"{CONTAINER}.name", None),
        ("spec.template", None),
    ],
)
def test_what_kubernetes_would_drop_or_refuse_is_an_error(field: str, value: Any, golden: Golden) -> None:
    golden(check_job_schema(edited(field, value), PATH))


def test_all_errors_are_returned_at_once() -> None:
    obj = edited("spec.paralelism", 1)
    obj["spec"]["suspend"] = 3

    assert [e.origin for e in check_job_schema(obj, PATH)] == ["job-field-unknown", "job-field-type"]


def test_every_type_of_the_schema_is_a_scalar_or_a_model() -> None:
    schema = job_schema()
    scalars = {"text", "integer", "boolean", "integer-or-text", "quantity", "any"}
    types = {kind.lstrip("[]{}") for model in schema.models.values() for kind in model.fields.values()}

    assert types - scalars <= schema.models.keys()
    assert schema.root in schema.models


@pytest.mark.parametrize(("kind", "expected"), [("integer", FieldType.INTEGER), ("boolean", FieldType.BOOLEAN)])
def test_templates_know_every_number_and_boolean_of_a_job(kind: str, expected: FieldType) -> None:
    """`user` names a text in most volumes and a number in few, so it stays what was written."""
    fields = {
        field
        for key, model in job_schema().models.items()
        for field, found in model.fields.items()
        if found.removeprefix("[]") == kind and key not in STATUS_MODELS
    }
    also = {FieldType.INTEGER_OR_TEXT}
    wrong = {f for f in fields - SERVER_FIELDS - {"user", "values"} if FIELD_TYPES.get(f) not in {expected, *also}}

    assert wrong == set()


def test_templates_keep_every_text_of_a_job_a_text() -> None:
    text = {"text", "[]text", "quantity"}
    fields = {f for model in job_schema().models.values() for f, kind in model.fields.items() if kind in text}

    assert {f for f in fields if field_type([f]) not in {None, FieldType.INTEGER_OR_TEXT}} == set()


def test_templates_know_every_map_of_a_job() -> None:
    maps = {f for m in job_schema().models.values() for f, kind in m.fields.items() if kind in {"{}text", "{}quantity"}}

    assert maps <= TEXT_MAPS


def test_the_generated_schema_is_fresh() -> None:
    """Runs where the official client is installed in the version that the schema was made from."""
    pytest.importorskip("kubernetes")
    import importlib.util
    import json
    from importlib.metadata import version
    from pathlib import Path

    tool = Path(__file__).parents[4] / "tools" / "generate_job_schema.py"
    spec = importlib.util.spec_from_file_location("generate_job_schema", tool)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stored = module.TARGET.read_text()
    if json.loads(stored)["source"] != f"kubernetes {version('kubernetes')}":
        pytest.skip("another version of the client is installed")

    assert module.generate() == stored


def test_what_is_described_is_a_field() -> None:
    fields = {f"{key}.{name}" for key, model in job_schema().models.items() for name in model.fields}

    assert set(DESCRIPTIONS) <= fields
