"""What the roles of the manifests allow, as far as a file can say it; what is used is seen in a cluster."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.api.job_kinds import KNOWN_KINDS

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
