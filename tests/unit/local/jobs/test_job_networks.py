from __future__ import annotations

from typing import Any

import pytest

from katib.engine.runtime.objects import Kind
from katib.places.machine.containers.arguments import Abilities, RuntimeProgram
from katib.places.machine.containers.choice import ContainerRuntime
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.networks import NamedWiring, network_of
from katib.places.machine.pods.environment import HOST_NETWORK

ROLES = Kind("kubeflow.org/v1", "PyTorchJob")
DEMO = {"metadata": {"name": "demo", "uid": "0123456789abcdef"}}
PODMAN = ContainerRuntime(RuntimeProgram.PODMAN, "/usr/bin/podman")
ALONE: dict[str, Any] = {"spec": {"containers": [{"name": "main"}]}}
CROWDED: dict[str, Any] = {"spec": {"containers": [{"name": "main"}, {"name": "other"}]}}
WITH_SIDECAR: dict[str, Any] = {"spec": {**ALONE["spec"], "initContainers": [{"name": "s", "restartPolicy": "Always"}]}}
ON_HOST: dict[str, Any] = {"spec": {**ALONE["spec"], "hostNetwork": True}}


def test_a_job_with_roles_has_a_network_of_its_own() -> None:
    assert network_of(DEMO, ROLES, [ALONE, ALONE], PODMAN, needs_machine=False) == "katib-demo-01234567"
    assert NamedWiring().address("demo-worker-0", 23456) == ("demo-worker-0", 23456)


@pytest.mark.parametrize(
    ("kind", "template", "images", "needs_machine"),
    [
        pytest.param(JOB, ALONE, PODMAN, False, id="pods that do not know each other"),
        pytest.param(ROLES, ALONE, PODMAN, True, id="metrics by an address of this machine"),
        pytest.param(ROLES, CROWDED, PODMAN, False, id="containers side by side"),
        pytest.param(ROLES, WITH_SIDECAR, PODMAN, False, id="a sidecar"),
        pytest.param(ROLES, ON_HOST, PODMAN, False, id="the network of the machine on request"),
        pytest.param(
            ROLES, ALONE, ContainerRuntime(RuntimeProgram.PODMAN, "x", Abilities(names=False)), False, id="no names"
        ),
    ],
)
def test_all_others_are_on_the_network_of_the_machine(
    kind: Kind, template: dict[str, Any], images: ContainerRuntime, needs_machine: bool
) -> None:
    assert network_of(DEMO, kind, [template], images, needs_machine=needs_machine) == HOST_NETWORK


def test_a_network_is_made_once_by_several_pods_and_labelled() -> None:
    runtime = ContainerRuntime(RuntimeProgram.PODMAN, "/opt/my tools/podman", labels={"katib.data-dir": "abc"})

    made = runtime.make_network("katib-demo")

    exists = "'/opt/my tools/podman' network inspect katib-demo >/dev/null 2>&1"
    create = "'/opt/my tools/podman' network create --label katib.data-dir=abc katib-demo"
    assert made.argv == ("/bin/sh", "-c", f"{exists} || {create} >/dev/null || {exists}")
    assert runtime.remove_network("katib-demo").argv == ("/opt/my tools/podman", "network", "rm", "katib-demo")
