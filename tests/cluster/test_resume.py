"""Experiments that continue after their end: what their suggestion service kept in a volume is there again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from katib.model.version import __version__
from tests.support.pod_cluster import (
    GONE_SECONDS,
    Json,
    PodCluster,
    Room,
    accepts,
    algorithm,
    experiment,
    is_true,
    python_job,
    wait_for,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

COUNTER = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from katib.wire.rpc._generated import api_pb2 as pb, health_pb2
from katib.wire.rpc.services import add_servicer
from suggestion_services.server import HealthServicer

KEPT = Path("/kept/count")


class Counter:
    def ValidateAlgorithmSettings(self, request, context):
        return pb.ValidateAlgorithmSettingsReply()

    def GetSuggestions(self, request, context):
        reply = pb.GetSuggestionsReply()
        for _ in range(request.current_request_number):
            count = int(KEPT.read_text()) + 1 if KEPT.exists() else 1
            KEPT.write_text(str(count))
            value = pb.ParameterAssignment(name="lr", value=f"{0.1 + count / 1000:.3f}")
            reply.parameter_assignments.add(assignments=[value])
        return reply


server = grpc.server(ThreadPoolExecutor())
add_servicer(server, Counter(), pb)
add_servicer(server, HealthServicer(), health_pb2)
server.add_insecure_port("0.0.0.0:6789")
server.start()
server.wait_for_termination()
"""
"""A service that looks at nothing but a number in its volume: without it, it proposes the same values once more."""


def counting_service(namespace: str) -> Json:
    """Return an entry of the KatibConfig: the service, and a volume of the node that anybody could make."""
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": f"/tmp/{namespace}-volume", "type": "DirectoryOrCreate"},
    }
    return {
        "algorithmName": "counting",
        "image": f"katib/suggestion:{__version__}",
        "command": ["python", "-c", COUNTER],
        "securityContext": {"runAsUser": 0},  # a kubelet makes such a directory for root
        "volumeMountPath": "/kept",
        "persistentVolumeSpec": volume,
    }


@pytest.fixture
def volume(cluster: PodCluster, room: Room) -> Iterator[str]:
    """The name of the volume that is made for the experiment `kept`."""
    name = f"kept-counting-{room.namespace}"
    yield name
    cluster.run("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")


def values(room: Room) -> list[str]:
    return sorted(trial["spec"]["parameterAssignments"][0]["value"] for trial in room.trials("kept"))


def test_a_service_that_is_started_again_finds_what_it_kept_in_its_volume(room: Room, volume: str) -> None:
    wanted = experiment(
        "kept",
        python_job("import os; print('loss=' + os.environ['lr'])"),
        trials=2,
        algorithm={"algorithmName": "counting"},
        resumePolicy="FromVolume",
    )

    def claim() -> Json | None:
        return room.cluster.find("persistentvolumeclaim", "kept-counting", room.namespace)

    def is_stopped() -> bool:
        return not room.cluster.items("deployments", room.namespace) and not any(
            "katib.kubeflow.org/suggestion" in pod["metadata"].get("labels", {}) for pod in room.pods()
        )

    with algorithm(room.cluster, counting_service(room.namespace)):
        wait_for(lambda: accepts(room, wanted), "the new algorithm to be known", 90, every=2)
        room.ended("kept")
        assert values(room) == ["0.101", "0.102"]
        wait_for(is_stopped, "the service to be stopped", GONE_SECONDS, room.picture)
        assert (claim() or {})["status"]["phase"] == "Bound"

        room.patch("kept", {"maxTrialCount": 4})
        wait_for(lambda: len(room.trials("kept")) == 4, "the experiment to continue", 150, room.picture)
        wait_for(lambda: is_true(room.experiment("kept"), "Succeeded"), "its end", 150, room.picture)

    assert values(room) == ["0.101", "0.102", "0.103", "0.104"]
    assert room.experiment("kept")["status"]["trialsSucceeded"] == 4
    room.delete("kept")
    wait_for(lambda: claim() is None, "the claim to go with its experiment", GONE_SECONDS, room.picture)
    wait_for(lambda: not is_there(room, volume), "the volume to go with its claim", GONE_SECONDS, room.picture)


def is_there(room: Room, volume: str) -> bool:
    """Return whether a volume is left; one that the cluster cannot empty by itself counts as gone."""
    found = room.cluster.find("persistentvolume", volume)
    return found is not None and found["status"]["phase"] != "Failed"
