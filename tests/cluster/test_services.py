"""Services in pods: reached through their address, explained by their pods when they do not start, replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from katib.engine.controllers.kinds import POD
from katib.engine.runtime.objects import Key, Kind
from katib.errors import KatibError
from katib.places.cluster.services.plan import SERVICE
from katib.places.cluster.services.served import ClusterTiming
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.services import calls_over
from tests.support.api_server import ApiServer
from tests.support.cluster_services import EARLY, POD_SECONDS, ServiceCluster, await_client, failure_of, waiting_for
from tests.support.pod_cluster import GONE_SECONDS, PATIENCE, PodCluster
from tests.support.waiting import eventually

QUICK = ClusterTiming(patience=3.0, first_look=0.5, look=1.0)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def node(cluster: PodCluster, tmp_path: Path) -> Iterator[ServiceCluster]:
    server = ApiServer(cluster.kubeconfig, owned=False, folder=tmp_path)
    with ExitStack() as stack:
        stack.callback(server.close)
        yield ServiceCluster(server, stack)


def test_a_real_service_suggests_through_its_address(node: ServiceCluster) -> None:
    services = node.services()
    experiment = node.submit("tpe")
    client = await_client(services, experiment)
    client.validate(experiment).result(60)

    assert len(client.get_suggestions(experiment, (), current_request=2, total_request=2).result(60).assignments) == 2
    assert services.states_of(node.namespace, "demo")[0].state == "ready"
    services.release(experiment)
    eventually(lambda: not node.left(), seconds=PATIENCE * GONE_SECONDS)


def test_the_early_stopping_service_of_a_pod_writes_the_status(node: ServiceCluster) -> None:
    services = node.services()
    experiment = node.submit(earlyStopping=EARLY)
    client = await_client(services, experiment)
    client.validate(experiment).result(60)
    assert client.get_early_stopping_rules(experiment, ()).result(60) == ()
    trial = f"{node.namespace}-1"  # an installed database knows trials by their names alone
    node.trial(trial)
    address = node.store.get(SERVICE, Key(node.namespace, "demo-random"))["spec"]["clusterIP"]
    with grpc.insecure_channel(f"{address}:6788") as channel:
        stub = calls_over(channel, pb)
        stub.SetTrialStatus(pb.SetTrialStatusRequest(trial_name=trial), timeout=60)

    conditions = node.conditions_of(trial)
    assert {"EarlyStopped"} < conditions, sorted(conditions)  # what was there before is kept


@pytest.mark.parametrize(
    ("algorithm", "words"), [("missing", ["container suggestion:", "ImagePull"]), ("huge", ["Unschedulable"])]
)
def test_a_service_without_image_or_room_is_waited_for_with_the_words_of_its_pod(
    node: ServiceCluster, algorithm: str, words: Sequence[str]
) -> None:
    services = node.services(timing=QUICK)
    experiment = node.submit(algorithm)
    told = waiting_for(services, experiment)

    for word in words:
        assert word in told
    services.release(experiment)
    eventually(lambda: not node.left(), seconds=PATIENCE * GONE_SECONDS)


def test_a_service_that_crashes_fails_with_the_words_of_its_pod(node: ServiceCluster) -> None:
    """After a patience in which even a busy machine lets it crash."""
    services = node.services(timing=replace(QUICK, patience=30.0))
    experiment = node.submit("crashing")
    failure = failure_of(services, experiment)

    for word in ("container suggestion: ended (exit code 2", 'unknown algorithm "nonsense"'):
        assert word in failure
    services.release(experiment)
    eventually(lambda: not node.left(), seconds=PATIENCE * GONE_SECONDS)


def test_a_quota_that_is_raised_lets_the_service_start(node: ServiceCluster) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": node.namespace}}
    stored = node.store.create({**quota, "spec": {"hard": {"pods": "0"}}})
    services = node.services(timing=QUICK)
    experiment = node.submit()
    assert "exceeded quota" in waiting_for(services, experiment)

    node.store.delete(Kind.of(stored), Key.of(stored))
    assert await_client(services, experiment)


def test_a_pod_that_dies_is_replaced_and_found_again(node: ServiceCluster) -> None:
    services = node.services()
    experiment = node.submit()
    await_client(services, experiment)
    (pod,) = node.store.list(POD, node.namespace).items
    node.told.clear()
    node.store.delete(POD, Key.of(pod))
    eventually(lambda: node.told, "the loss")

    def answers() -> bool:
        client = services.service_for(experiment)
        if client is None:
            return False
        try:
            reply = client.get_suggestions(experiment, (), current_request=1, total_request=1).result(60)
        except KatibError:
            return False
        return len(reply.assignments) == 1

    eventually(answers, "the new pod's answer", seconds=POD_SECONDS)
