"""The controller does what its roles allow, and its roles allow little else."""

from __future__ import annotations

import re
from itertools import product

import pytest
import yaml

from tests.support.pod_cluster import CORE, Room, experiment, python_job, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

CONTROLLERS = "katib.kubeflow.org/component=controller"
ROLES = ("katib-controller", "katib-controller-certificate", "katib-controller-known-jobs")
SELDOM = {
    ("experiments", "get"): "after a conflict",
    ("suggestions", "patch"): "when more is asked for than at the beginning",
    ("customresourcedefinitions", "get"): "where definitions know rules",
    ("customresourcedefinitions", "patch"): "where definitions know rules",
    ("deployments", "patch"): "when another controller made one",
    ("services", "patch"): "when another controller made one",
    ("deployments", "get"): "when one is there already",
    ("services", "get"): "when one is there already",
    ("events", "patch"): "when something happens again",
    ("events", "list"): "when a job gets no pod",
    ("pods", "delete"): "when a pod has no collector",
    ("secrets", "create"): "when somebody deleted it",
    ("secrets", "update"): "when the certificate is renewed",
    ("mutatingwebhookconfigurations", "update"): "when the certificate is renewed",
    ("validatingwebhookconfigurations", "update"): "when the certificate is renewed",
    ("leases", "create"): "once",
    ("trials/status", "get"): "given to early stopping services",
    ("trials/status", "patch"): "given to early stopping services",
    **dict.fromkeys(product(["persistentvolumes", "persistentvolumeclaims"], ["get", "create"]), "FromVolume"),
}
"""Rights that a common experiment does not need, and what does."""

FOREIGN_GROUPS = {"trainer.kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io"}


def granted(room: Room) -> set[tuple[str, str]]:
    """Return resources and verbs of all roles of the controller but those for kinds that are not installed."""
    found = set()
    for kind in ("clusterrole", "role"):
        for role in yaml.safe_load(room.cluster.run("get", kind, f"--namespace={CORE}", "-o", "yaml"))["items"]:
            if role["metadata"]["name"] in ROLES:
                for rule in role["rules"]:
                    found |= {
                        (resource, verb)
                        for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"])
                        if group not in FOREIGN_GROUPS
                        and not resource.endswith("/finalizers")
                        and not (group == "kubeflow.org" and resource.endswith("jobs"))
                    }
    return found


def asked(room: Room) -> dict[tuple[str, str], set[int]]:
    """Return what the controllers asked for since their start, and with which answers."""
    found: dict[tuple[str, str], set[int]] = {}
    labels = re.compile(
        r'^katib_api_requests_total{group="[^"]*",resource="([\w/]+)",status="(\d+)",verb="(\w+)"}', re.MULTILINE
    )
    names = room.cluster.run("get", "pods", "-n", CORE, "-l", CONTROLLERS, "-o", "jsonpath={.items[*].metadata.name}")
    for name in names.split():
        metrics = room.cluster.run("get", "--raw", f"/api/v1/namespaces/{CORE}/pods/{name}:8080/proxy/metrics")
        for resource, status, verb in labels.findall(metrics):
            found.setdefault((resource, verb), set()).add(int(status))
    return found


def test_a_common_experiment_needs_every_right_that_is_not_for_something_seldom(room: Room) -> None:
    stopping = {"algorithmName": "medianstop"}
    room.apply(experiment("common", python_job("print('loss=1')"), trials=2, earlyStopping=stopping))
    room.ended("common")
    wait_for(lambda: ("roles", "delete") in asked(room), "the service to be removed", 30, room.picture)
    room.cluster.run("delete", "experiment", "common", "-n", room.namespace)

    common = granted(room) - set(SELDOM)

    def unused() -> list[tuple[str, str]]:
        return sorted(common - set(asked(room)))

    wait_for(lambda: not unused(), "each right to be needed", 30, lambda: str(unused()))


def test_nothing_that_is_allowed_is_refused_and_nothing_else_is_asked_for(room: Room) -> None:
    """Kinds of other tests are left out: they try what happens without a right."""
    room.apply(experiment("plain", python_job("print('loss=1')"), trials=1, parallel=1))
    room.ended("plain")
    allowed = granted(room)
    ours = {resource for resource, _ in allowed}

    assert {right for right in asked(room) if right[0] in ours and right not in allowed} == set()
