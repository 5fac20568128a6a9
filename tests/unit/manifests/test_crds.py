"""The definitions that a cluster gets, the commands of the manifests, and what their roles allow."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.doors.kube_api import columns
from katib.model.job_kinds import KNOWN_KINDS

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
    here = {"experiments": columns.EXPERIMENT, "suggestions": columns.SUGGESTION, "trials": columns.TRIAL}[plural]
    shown = [(column["name"], column.get("priority", 0) == 1) for column in version["additionalPrinterColumns"]]
    assert shown == [(column.name, column.is_wide) for column in here]


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


MANIFESTS = Path(__file__).parents[3] / "manifests"


def test_every_module_that_a_manifest_runs_exists() -> None:
    texts = [path.read_text() for path in MANIFESTS.rglob("*.yaml")]
    modules = {name for text in texts for name in re.findall(r"-m,\s*([\w.]+)", text)}

    assert modules
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []


COMPONENTS = Path(__file__).resolve().parents[3] / "manifests" / "components"
VOLUMES = {"persistentvolumes", "persistentvolumeclaims"}


def granted(component: str) -> set[tuple[str, str]]:
    """Return resources and verbs of all roles of a component."""
    files = (COMPONENTS / component).glob("*.yaml")
    documents: list[dict[str, Any]] = [doc for path in files for doc in yaml.safe_load_all(path.read_text())]
    rules = [rule for document in documents for rule in document.get("rules") or () if "resources" in rule]
    return {pair for rule in rules for pair in product(rule["resources"], rule["verbs"])}


@pytest.mark.parametrize("kind", KNOWN_KINDS)
def test_every_known_kind_of_job_can_be_run_by_the_controller_and_read_by_the_rest_service(kind: str) -> None:
    plural = f"{kind.lower()}s"
    verbs = ("get", "list", "watch", "create", "delete")

    assert {(plural, verb) for verb in verbs} <= granted("rbac")
    assert (plural, "get") in granted("server")


@pytest.mark.parametrize("resource", ["trainingruntimes", "clustertrainingruntimes"])
def test_the_rest_service_may_store_training_runtimes(resource: str) -> None:
    assert {(resource, verb) for verb in ("get", "create", "update")} <= granted("server")


def test_nobody_may_delete_volumes() -> None:
    everywhere = {right for folder in COMPONENTS.iterdir() for right in granted(folder.name)}

    assert {(resource, verb) for resource, verb in everywhere if resource in VOLUMES} == set(
        product(VOLUMES, ("get", "create"))
    )
