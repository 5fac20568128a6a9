"""Services of a cluster against a real API server; where it has a node, with real pods and gRPC through the ClusterIP.

The images come from `KATIB_TEST_SUGGESTION_IMAGE` and `KATIB_TEST_EARLY_STOPPING_IMAGE`, else they are the product's.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from katib.api.types import Experiment, Suggestion
from katib.configuration.reading import read_katib_config
from katib.errors import ConflictError, ForbiddenError, KatibError, NotFoundError, TerminalError
from katib.rpc._generated import api_pb2 as pb
from katib.rpc._generated import api_pb2_grpc
from katib.runtime.objects import Key, Kind
from katib.services.cluster.catalog import ClusterCatalog
from katib.services.cluster.directory import ClusterServices
from katib.services.cluster.kinds import CONFIG_MAP, DEPLOYMENT, POD, ROLE, ROLE_BINDING, SERVICE, SERVICE_SELECTORS
from katib.services.cluster.watch import ClusterTiming
from katib.stores.kubernetes import KubernetesStore
from suggestion_services.medianstop.trial_status import TrialStatuses
from tests.support.api_server import ApiServer
from tests.support.server_kinds import install_kind
from tests.support.services import eventually

pytestmark = pytest.mark.cluster

SUGGESTION_IMAGE = os.environ.get("KATIB_TEST_SUGGESTION_IMAGE", "katib/suggestion:0.1.0")
EARLY_STOPPING_IMAGE = os.environ.get("KATIB_TEST_EARLY_STOPPING_IMAGE", "katib/early-stopping:0.1.0")
API = "kubeflow.org/v1beta1"
SUGGESTION, TRIAL = (Kind(API, kind) for kind in ("Suggestion", "Trial"))
NODE = Kind("v1", "Node")
EARLY = {"algorithmName": "medianstop"}
RESTRICTED = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
PARAMETER = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "0.9"}}
POD_SECONDS = 90.0
RIGHTS = [
    {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "create", "update", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "create", "delete"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims", "persistentvolumes"], "verbs": ["get", "create"]},
    {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings"],
        "verbs": ["get", "create", "delete"],
    },
    {"apiGroups": ["kubeflow.org"], "resources": ["trials"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["kubeflow.org"], "resources": ["trials/status"], "verbs": ["get", "patch", "update"]},
]
"""What the controller needs for services. The last two are those it hands on to early stopping services."""


def config_text() -> str:
    ours = {
        "image": SUGGESTION_IMAGE,
        "securityContext": RESTRICTED,
        "resources": {"limits": {"memory": "400Mi", "cpu": 2}},
    }
    suggestions = [
        {**ours, "algorithmName": name, "args": ["--algorithm", name, "--address", "0.0.0.0:6789"]}
        for name in ("random", "tpe")
    ]
    broken = [
        {**ours, "algorithmName": "crashing", "args": ["--algorithm", "nonsense", "--address", "0.0.0.0:6789"]},
        {"algorithmName": "missing", "image": "katib/no-such-image:0"},
        {"algorithmName": "huge", "image": SUGGESTION_IMAGE, "resources": {"requests": {"memory": "9Ti"}}},
        {"algorithmName": "refused", "image": SUGGESTION_IMAGE, "ports": [{"containerPort": 123456}]},
    ]
    early = [{**EARLY, "image": EARLY_STOPPING_IMAGE, "securityContext": RESTRICTED}]
    return yaml.safe_dump({"runtime": {"suggestions": suggestions + broken, "earlyStoppings": early}})


class Cluster:
    """A namespace of its own, with services as a controller runs them."""

    def __init__(self, server: ApiServer, stack: ExitStack) -> None:
        self.server = server
        self._stack = stack
        for kind in (SUGGESTION, TRIAL):
            if not is_installed(server, kind):
                install_kind(server, *kind)
        self.namespace = server.namespace(f"katib-services-{secrets.token_hex(3)}")
        stack.callback(server.delete_namespace, self.namespace)
        connection = server.connect()
        stack.callback(connection.close)
        self.store = KubernetesStore(connection)
        self.config = read_katib_config(config_text(), "katib-config.yaml")
        self.told: list[tuple[str, str]] = []

    def services(self, kubeconfig: Path | None = None, timing: ClusterTiming | None = None) -> ClusterServices:
        connection = self.server.connect(kubeconfig)
        self._stack.callback(connection.close)
        services = ClusterServices(
            KubernetesStore(connection, selectors=SERVICE_SELECTORS),
            suggestion_of=self._suggestion,
            config=lambda: self.config,
            catalog=ClusterCatalog(lambda: self.config),
            db_manager_address=lambda: "127.0.0.1:1",
            grpc_probes=False,
            timing=timing,
        )
        services.on_change(lambda *user: self.told.append(user))
        services.start()
        self._stack.callback(services.close)
        return services

    def user(self, rights: Sequence[Mapping[str, Any]]) -> Path:
        """Return the kubeconfig of a user with these rights, for as long as the test runs."""
        name = f"{self.namespace}-{secrets.token_hex(3)}"
        self._stack.callback(self.server.forget_user, name)
        return self.server.user(name, rights)

    def submit(self, algorithm: str = "random", name: str = "demo", **fields: Any) -> Experiment:
        """Store a Suggestion. Its Experiment is a stand-in: where Katib is installed, nobody else is to serve it."""
        stand_in = self.store.create(self._header(CONFIG_MAP, name))
        objective = {"type": "minimize", "objectiveMetricName": "loss"}
        spec = {"algorithm": {"algorithmName": algorithm}, **fields}
        header = self._header(SUGGESTION, name)
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": stand_in["metadata"]["uid"]}
        header["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        self.store.create({**header, "spec": {**spec, "requests": 1}})
        return Experiment.decode(
            {"metadata": stand_in["metadata"], "spec": {**spec, "objective": objective, "parameters": [PARAMETER]}}
        )

    def trial(self, name: str) -> None:
        """Store a Trial that runs, as far as anybody can tell, and never ends."""
        header = self._header(TRIAL, name)
        container = {"name": "main", "image": "none", "command": ["true"]}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": header["metadata"],
            "spec": {"parallelism": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        }
        stored = self.store.create({**header, "spec": {"runSpec": job, "primaryContainerName": "main"}})
        running = {"type": "Running", "status": "True", "reason": "TrialRunning", "message": "Trial is running"}
        with suppress(ConflictError):  # an installed controller was faster
            self.store.update_status({**stored, "status": {"conditions": [running]}})

    def conditions_of(self, trial: str) -> set[str]:
        status = self.store.get(TRIAL, Key(self.namespace, trial))["status"]
        return {condition["type"] for condition in status["conditions"]}

    def left(self) -> set[str]:
        """Return what serves somebody."""
        kinds = (DEPLOYMENT, SERVICE, POD, ROLE, ROLE_BINDING)
        own_accounts = {
            f"ServiceAccount {Key.of(obj).name}"
            for obj in self.store.list(Kind("v1", "ServiceAccount"), self.namespace).items
            if Key.of(obj).name != "default"
        }
        objects = [obj for kind in kinds for obj in self.store.list(kind, self.namespace).items]
        return own_accounts | {f"{obj['kind']} {Key.of(obj).name}" for obj in objects}

    def _header(self, kind: Kind, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    def _suggestion(self, key: Key) -> Suggestion | None:
        try:
            return Suggestion.decode(self.store.get(SUGGESTION, key))
        except NotFoundError:
            return None


def is_installed(server: ApiServer, kind: Kind) -> bool:
    try:
        server.admin.discovery.resource(*kind)
    except KatibError:
        return False
    return True


@pytest.fixture
def cluster(api_server: ApiServer) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(api_server, stack)


@pytest.fixture
def node(cluster: Cluster) -> Cluster:
    if not cluster.store.list(NODE).items:
        pytest.skip("the API server has no node to run pods on")
    return cluster


def failure_of(services: ClusterServices, experiment: Experiment) -> str:
    """Return why the services of an experiment fail for good."""

    def ask() -> str:
        try:
            assert services.service_for(experiment) is None
        except TerminalError as error:
            return str(error)
        return ""

    return str(eventually(ask, seconds=POD_SECONDS, what="the failure"))


def await_client(services: ClusterServices, experiment: Experiment) -> Any:
    return eventually(lambda: services.service_for(experiment), seconds=POD_SECONDS, what="the client")


# --- with an API server alone -----------------------------------------------------------------------------------------


def test_objects_come_and_go_with_exactly_the_rights_that_are_documented(cluster: Cluster) -> None:
    user = cluster.user(RIGHTS)
    services = cluster.services(user)
    experiment = cluster.submit(earlyStopping=EARLY, resumePolicy="FromVolume")
    for _ in range(3):
        assert services.service_for(experiment) is None
    assert {f"{kind} demo-random" for kind in ("Deployment", "Service", "ServiceAccount", "Role", "RoleBinding")} <= (
        cluster.left()
    )

    services.release(experiment)
    services.release(experiment)
    eventually(lambda: not cluster.left(), seconds=60)
    claims = cluster.store.list(Kind("v1", "PersistentVolumeClaim"), cluster.namespace).items
    assert [Key.of(claim).name for claim in claims] == ["demo-random"]


@pytest.mark.slow
def test_all_goes_with_the_experiment(cluster: Cluster) -> None:
    services = cluster.services()
    services.service_for(cluster.submit(earlyStopping=EARLY))
    cluster.store.delete(CONFIG_MAP, Key(cluster.namespace, "demo"))

    eventually(lambda: not cluster.left(), seconds=90, what="the collection of garbage")


def test_a_missing_right_is_named(cluster: Cluster) -> None:
    rights = [rule for rule in RIGHTS if rule["resources"] != ["serviceaccounts"]]
    services = cluster.services(cluster.user(rights), ClusterTiming(patience=1.0, retry=0.1))
    failure = failure_of(services, cluster.submit(earlyStopping=EARLY))

    assert "did not become ready within 1 s: ServiceAccount" in failure
    assert "serviceaccounts" in failure


def test_an_object_that_the_api_server_refuses_fails_with_its_words(cluster: Cluster) -> None:
    failure = failure_of(cluster.services(), cluster.submit("refused"))

    assert "Deployment" in failure
    assert "containerPort" in failure


def test_a_stopped_trial_is_written_to_a_real_api_server(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = cluster.user(RIGHTS[-2:])
    statuses = statuses_of(kubeconfig, cluster.namespace, tmp_path)
    cluster.trial("demo-1")
    statuses.stop("demo-1")
    statuses.stop("demo-1")

    assert {"Running", "EarlyStopped"} <= cluster.conditions_of("demo-1")
    with pytest.raises(NotFoundError, match="demo-2"):
        statuses.stop("demo-2")
    poor = cluster.user(RIGHTS[-2:-1])
    cluster.trial("demo-3")
    with pytest.raises(ForbiddenError, match="trials/status"):
        statuses_of(poor, cluster.namespace, tmp_path).stop("demo-3")


def statuses_of(kubeconfig: Path, namespace: str, directory: Path) -> TrialStatuses:
    """Return what a pod of this user would have."""
    config = yaml.safe_load(kubeconfig.read_text())
    (directory / "namespace").write_text(namespace)
    (directory / "token").write_text(config["users"][0]["user"]["token"])
    where = config["clusters"][0]["cluster"]
    authority = where.get("certificate-authority-data")
    ca = base64.b64decode(authority) if authority else Path(where["certificate-authority"]).read_bytes()
    (directory / "ca.crt").write_bytes(ca)
    return TrialStatuses(where["server"], directory, now=lambda: datetime.now(UTC))


# --- with pods --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_service_suggests_through_its_address(node: Cluster) -> None:
    services = node.services()
    experiment = node.submit("tpe")
    client = await_client(services, experiment)
    client.validate(experiment).result(20)
    reply = client.get_suggestions(experiment, (), current_request=2, total_request=2).result(20)

    assert len(reply.assignments) == 2
    assert services.states_of(node.namespace, "demo")[0].state == "ready"
    services.release(experiment)
    eventually(lambda: not node.left(), seconds=60)


def test_the_early_stopping_service_of_a_pod_writes_the_status(node: Cluster) -> None:
    services = node.services()
    experiment = node.submit(earlyStopping=EARLY)
    client = await_client(services, experiment)
    client.validate(experiment).result(20)
    assert client.get_early_stopping_rules(experiment, ()).result(20) == ()
    node.trial("demo-1")
    address = node.store.get(SERVICE, Key(node.namespace, "demo-random"))["spec"]["clusterIP"]
    with grpc.insecure_channel(f"{address}:6788") as channel:
        stub = api_pb2_grpc.EarlyStoppingStub(channel)
        stub.SetTrialStatus(pb.SetTrialStatusRequest(trial_name="demo-1"), timeout=20)

    assert {"Running", "EarlyStopped"} <= node.conditions_of("demo-1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("crashing", ["container suggestion: ended (exit code 2", 'unknown algorithm "nonsense"']),
        ("missing", ["container suggestion:", "ImagePull"]),
        ("huge", ["Unschedulable"]),
    ],
)
def test_a_service_that_cannot_start_fails_with_the_words_of_its_pod(
    node: Cluster, algorithm: str, words: Sequence[str]
) -> None:
    services = node.services(timing=ClusterTiming(patience=3.0, first_look=0.5, look=1.0))
    experiment = node.submit(algorithm)
    failure = failure_of(services, experiment)

    for word in words:
        assert word in failure
    services.release(experiment)
    eventually(lambda: not node.left(), seconds=60)


def test_a_quota_fails_with_the_words_of_the_quota(node: Cluster) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": node.namespace}}
    node.store.create({**quota, "spec": {"hard": {"pods": "0"}}})
    failure = failure_of(node.services(timing=ClusterTiming(patience=3.0, first_look=0.5, look=1.0)), node.submit())

    assert "exceeded quota" in failure


@pytest.mark.slow
def test_a_pod_that_dies_is_replaced_and_found_again(node: Cluster) -> None:
    services = node.services()
    experiment = node.submit()
    await_client(services, experiment)
    (pod,) = node.store.list(POD, node.namespace).items
    node.told.clear()
    node.store.delete(POD, Key.of(pod))
    eventually(lambda: node.told, seconds=60, what="the loss")

    def answers() -> bool:
        client = services.service_for(experiment)
        if client is None:
            return False
        try:
            reply = client.get_suggestions(experiment, (), current_request=1, total_request=1).result(20)
        except KatibError:
            return False
        return len(reply.assignments) == 1

    eventually(answers, seconds=POD_SECONDS, what="the new pod's answer")
