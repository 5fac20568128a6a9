"""The definitions that a cluster gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "manifests" / "components" / "crds"


def load(plural: str) -> dict[str, Any]:
    definition: dict[str, Any] = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    return definition


def test_the_definitions_fit_the_models() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.generate_crds", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("plural", ["experiments", "suggestions", "trials"])
def test_a_definition_is_registered_as_katibs(plural: str) -> None:
    definition = load(plural)

    version = definition["spec"]["versions"][0]
    assert definition["metadata"]["name"] == f"{plural}.kubeflow.org"
    assert definition["spec"]["scope"] == "Namespaced"
    assert definition["spec"]["names"]["categories"] == ["all", "kubeflow", "katib"]
    assert (version["name"], version["served"], version["storage"]) == ("v1beta1", True, True)
    assert version["subresources"] == {"status": {}}
    assert [c["name"] for c in version["additionalPrinterColumns"]][:2] == ["Type", "Status"]


@pytest.mark.parametrize("plural", ["experiments", "suggestions", "trials"])
def test_a_schema_is_structural(plural: str) -> None:
    def check(schema: dict[str, Any]) -> None:
        assert "type" in schema or schema.get("x-kubernetes-preserve-unknown-fields"), schema
        assert not {"$ref", "anyOf", "oneOf", "allOf", "default", "title"} & set(schema)
        for field in schema.get("properties", {}).values():
            check(field)
        for nested in ("items", "additionalProperties"):
            if isinstance(schema.get(nested), dict):
                check(schema[nested])

    check(load(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def test_what_a_trial_runs_as_is_kept_as_it_is() -> None:
    spec = load("experiments")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

    template = spec["properties"]["trialTemplate"]["properties"]
    assert template["trialSpec"]["x-kubernetes-preserve-unknown-fields"] is True
