"""What is served is what a home holds."""

from __future__ import annotations

from katib.kube_api.openapi import Descriptions
from katib.kube_api.resources import RESOURCES, by_path
from katib.local.engine import STATUS_KINDS
from katib.local.jobs.kinds import job_kinds
from katib.tuning.replicas import POD


def test_every_kind_of_job_is_served() -> None:
    assert {kind.kind for kind in job_kinds()} <= {resource.kind for resource in RESOURCES}


def test_a_status_is_written_apart_where_the_store_keeps_it_apart() -> None:
    apart = {r.kind for r in RESOURCES if "status" in r.subresources and "update" in r.verbs}

    assert apart == STATUS_KINDS - {POD}


def test_every_resource_has_a_path_of_its_own_and_a_description() -> None:
    kinds = [entry for schema in Descriptions({}).swagger["definitions"].values() for entry in schema.get(GVK, ())]

    assert len(by_path(RESOURCES)) == len(RESOURCES)
    assert len(kinds) == len(RESOURCES)


GVK = "x-kubernetes-group-version-kind"
