"""Removal and installation over a half removed one, at an API server of their own: definitions come and go here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.runtime.objects import Key, Kind
from katib.errors import KatibError, KindNotInstalledError, NotFoundError
from tests.support.api_server import LocalApiServer
from tests.support.control_plane import KATIB, ControllerProcess, ControlPlane, ended
from tests.support.server_kinds import CRDS, install_our_kinds
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing"),
]

NAMESPACE = "removal"
DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
NAMES = [f"{plural}.kubeflow.org" for plural in ("experiments", "suggestions", "trials")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalApiServer]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if os.environ.get("KUBECONFIG") or not assets:
        pytest.skip("needs an API server of its own: unset KUBECONFIG and set KUBEBUILDER_ASSETS")
    made = LocalApiServer(Path(assets), tmp_path_factory.mktemp("server"))
    try:
        made.start_all()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def plane(server: LocalApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(server, tmp_path_factory.mktemp("plane")) as made:
        made.namespace(NAMESPACE)
        yield made


@pytest.fixture
def running(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[ControllerProcess]:
    """A controller with an experiment that is over and one whose trials run."""
    install_our_kinds(plane.server)
    controller = plane.controller(request.node.name[:40]).start()
    controller.await_work()
    plane.stand_ins.outcome = lambda _job: "0.5"
    plane.submit("over", NAMESPACE, maxTrialCount=3)
    plane.wait_for_end("over", NAMESPACE)
    plane.stand_ins.outcome = lambda _job: None
    plane.submit("busy", NAMESPACE, maxTrialCount=6, parallelTrialCount=3)
    eventually(lambda: len(plane.trials(NAMESPACE)) == 6)
    yield controller
    controller.kill()


def kubectl(plane: ControlPlane, *arguments: str) -> str:
    command = ["kubectl", f"--kubeconfig={plane.server.kubeconfig}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def remove_definitions(plane: ControlPlane, *, wait: bool) -> None:
    kubectl(plane, "delete", "-k", str(CRDS), f"--wait={str(wait).lower()}", "--timeout=180s")


def definitions(plane: ControlPlane) -> dict[str, bool]:
    """Return the names of our definitions that are there, and whether each is being deleted."""
    found = {}
    for name in NAMES:
        try:
            found[name] = "deletionTimestamp" in plane.store.get(DEFINITION, Key("", name))["metadata"]
        except NotFoundError:
            continue
    return found


def objects(plane: ControlPlane) -> list[Any]:
    found: list[Any] = []
    for kind in (EXPERIMENT, SUGGESTION, TRIAL):
        try:
            found += plane.store.list(kind).items
        except KindNotInstalledError:
            continue
    return found


def runs_an_experiment(plane: ControlPlane, name: str) -> bool:
    plane.stand_ins.outcome = lambda _job: "0.5"

    def submitted() -> bool:
        try:
            plane.submit(name, NAMESPACE, maxTrialCount=2)
        except KatibError:  # the definition was served this moment, and its validation is not everywhere yet
            return False
        return True

    eventually(submitted)
    return bool(ended(plane.wait_for_end(name, NAMESPACE)))


def test_when_all_experiments_are_deleted_nothing_is_left_that_needs_the_controller(
    plane: ControlPlane, running: ControllerProcess
) -> None:
    kubectl(plane, "delete", "experiments", "--all", "--all-namespaces", "--timeout=180s")
    running.kill()

    assert plane.store.list(EXPERIMENT).items == ()
    assert plane.store.list(TRIAL).items == ()
    remove_definitions(plane, wait=True)
    assert definitions(plane) == {}


def test_what_a_controller_left_behind_is_released_by_a_command_and_definitions_go(
    plane: ControlPlane, running: ControllerProcess
) -> None:
    running.kill()
    kubectl(plane, "delete", "experiments", "--all", "--all-namespaces", "--wait=false")
    remove_definitions(plane, wait=False)
    eventually(lambda: definitions(plane).get("trials.kubeflow.org"))
    assert definitions(plane)["experiments.kubeflow.org"]

    command = [*KATIB, "release-finalizers", "--kubeconfig", str(plane.server.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)

    assert (done.returncode, done.stderr) == (0, "")
    assert f"experiment {NAMESPACE}/busy released\n" in done.stdout
    assert len(done.stdout.splitlines()) == 2 + 6
    eventually(lambda: definitions(plane) == {})
    install_our_kinds(plane.server)
    assert objects(plane) == []


def test_an_installation_over_definitions_that_are_being_deleted_ends_the_removal_and_serves_the_next_ones(
    plane: ControlPlane, running: ControllerProcess
) -> None:
    running.kill()
    remove_definitions(plane, wait=False)
    eventually(lambda: definitions(plane).get("experiments.kubeflow.org"))
    kubectl(plane, "apply", "-k", str(CRDS))
    again = plane.controller("again").start()
    try:
        held = {"experiments.kubeflow.org", "trials.kubeflow.org"}  # nothing holds Suggestions: theirs is new already
        eventually(lambda: not held & set(definitions(plane)), seconds=180)
        assert again.is_alive
        kubectl(plane, "apply", "-k", str(CRDS))
        install_our_kinds(plane.server)

        assert runs_an_experiment(plane, "next")
        assert again.is_alive
        kubectl(plane, "delete", "experiments", "--all", "--all-namespaces", "--timeout=180s")
    finally:
        again.stop()
        sys.stdout.write(again.log.read_text()[-4000:])
