"""Services of a cluster, as one controller runs them: over objects in memory, or over an API server.

`World` has objects in memory, a kubelet that does what the test says, and real gRPC on loopback. A Service's address is
one of 127.0.0.0/8, where the test serves on the usual ports; pods and conditions are written by the test; nothing is
scheduled, and what is owned goes at once.

`ServiceCluster` has a namespace of an API server. Its images come from `KATIB_TEST_SUGGESTION_IMAGE` and
`KATIB_TEST_EARLY_STOPPING_IMAGE`, else they are the product's.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self

import grpc
import pytest
import yaml

from katib.engine.controllers.kinds import CONFIG_MAP, POD, SUGGESTION, TRIAL
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import Backoff, ConflictError, KatibError, NotFoundError, TerminalError
from katib.model.configuration import read_configuration
from katib.model.types import Experiment, Suggestion
from katib.model.version import __version__
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.services.directory import ClusterServices
from katib.places.cluster.services.objects import LogEndpoint
from katib.places.cluster.services.plan import (
    DEPLOYMENT,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICE_SELECTORS,
    SUGGESTION_PORT,
    VOLUME,
    VOLUME_CLAIM,
)
from katib.places.cluster.services.served import ClusterTiming
from katib.places.cluster.store import KubernetesStore
from katib.wire.rpc._generated import api_pb2, health_pb2
from katib.wire.rpc.services import add_servicer
from tests.support.api_server import ApiServer
from tests.support.memory_store import MemoryStore
from tests.support.server_kinds import install_kind
from tests.support.services import ScriptedEarlyStopping, ScriptedSuggestion
from tests.support.waiting import eventually

NAMESPACE = "team"
EARLY = {"algorithmName": "medianstop"}
SERVING_KINDS = (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, VOLUME_CLAIM, VOLUME)
CONFIG = """
runtime:
  suggestions:
    - {algorithmName: tpe, image: suggestion}
    - {algorithmName: random, image: suggestion, serviceAccountName: own}
    - {algorithmName: far, address: "127.0.0.1:1"}
    - algorithmName: pbt
      image: pbt
      persistentVolumeSpec: {capacity: {storage: 1Gi}, hostPath: {path: /data}}
      persistentVolumeLabels: {kind: local}
  earlyStoppings:
    - {algorithmName: medianstop, image: stopping}
    - {algorithmName: farstop, address: "stop.example:6788"}
"""
QUICK = ClusterTiming(patience=0.3, first_look=0.01, look=0.02, probe=Backoff(0.01, 0.02), retry=0.02, grace=0)

# Tests listen on one port, so each process that runs tests has addresses of its own.
_PID = os.getpid()
_hosts = (
    f"127.{100 + (_PID + a) % 100}.{_PID // 100 % 200}.{b}" for a, b in itertools.product(range(100), range(1, 200))
)


class Serving:
    """What every world of services has: Suggestions in a store, a KatibConfig, and who was notified."""

    store: ObjectStore
    config: KatibConfig

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def make_services(self, store: ObjectStore, timing: ClusterTiming | None) -> ClusterServices:
        services = ClusterServices(
            store,
            suggestion_of=self.find_suggestion,
            config=lambda: self.config,
            db_manager=LogEndpoint("katib-db-manager.kubeflow:6789"),
            grpc_probes=False,
            timing=timing,
        )
        services.on_change(lambda *user: self.told.append(user))
        return services

    def find_suggestion(self, key: Key) -> Suggestion | None:
        with suppress(NotFoundError):
            return Suggestion.decode(self.store.get(SUGGESTION, key))
        return None


class World(Serving):
    """Services over a store, as one controller runs them; a context manager.

    Args:
        store: Where objects are; a new world over an old store is a restart.
        timing: How long things may take.
        through: Wraps the store that the services see, to make it fail.
        config: Text of the KatibConfig.
    """

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        timing: ClusterTiming | None = None,
        through: Callable[[ObjectStore], ObjectStore] = lambda store: store,
        config: str = CONFIG,
    ) -> None:
        super().__init__()
        self.store: MemoryStore = store or MemoryStore(())
        self.config = read_configuration(KatibConfig, config, "katib-config.yaml")
        self.services = self.make_services(through(self.store), timing)

    def __enter__(self) -> Self:
        self.services.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.services.close()

    # --- the user ---------------------------------------------------------------------------------------------------

    def submit(self, name: str = "demo", algorithm: str = "tpe", **fields: Any) -> Experiment:
        """Store an Experiment and its Suggestion."""
        spec = {"algorithm": {"algorithmName": algorithm}, **fields}
        experiment = self.store.create(an_object("Experiment", name, spec))
        owner = {key: experiment[key] for key in ("apiVersion", "kind")} | {
            "name": name,
            "uid": experiment["metadata"]["uid"],
            "controller": True,
        }
        suggestion = an_object("Suggestion", name, spec)
        suggestion["metadata"] |= {"ownerReferences": [owner], "labels": {"team": "blue"}}
        self.store.create(suggestion)
        return Experiment.decode(experiment)

    def start(self, **fields: Any) -> Experiment:
        """Store an Experiment and ask for its service, which is not ready yet."""
        experiment = self.submit(**fields)
        self.services.service_for(experiment)
        return experiment

    # --- the cluster ------------------------------------------------------------------------------------------------

    def objects(self) -> set[str]:
        """Return kind and name of all that serves an experiment."""
        return {f"{kind.kind} {Key.of(obj).name}" for kind in SERVING_KINDS for obj in self.store.list(kind).items}

    def deployment(self, name: str = "demo-tpe") -> dict[str, Any]:
        return dict(self.store.get(DEPLOYMENT, Key(NAMESPACE, name)))

    def expose(self, name: str = "demo-tpe") -> str:
        """Give the Service an address and return it."""
        host = next(_hosts)
        service = self.store.get(SERVICE, Key(NAMESPACE, name))
        self.store.update({**service, "spec": {**service["spec"], "clusterIP": host}})
        return host

    def make_available(self, name: str = "demo-tpe", *, available: bool = True) -> None:
        """Say that the Deployment has its pod."""
        self.set_conditions(name, {"type": "Available", "status": str(available)})

    def set_conditions(self, name: str, *conditions: dict[str, str]) -> None:
        self.store.update({**self.deployment(name), "status": {"conditions": list(conditions)}})

    def add_pod(self, status: dict[str, Any], name: str = "demo-tpe") -> None:
        labels = self.deployment(name)["spec"]["template"]["metadata"]["labels"]
        pod: dict[str, Any] = {"apiVersion": POD.api_version, "kind": POD.kind, "status": status}
        self.store.create({**pod, "metadata": {"generateName": f"{name}-", "namespace": NAMESPACE, "labels": labels}})

    def wait_for_words(self, words: str, name: str = "demo") -> None:
        """Wait until the state of the services speaks of something."""
        eventually(lambda: any(words in state.last_error for state in self.services.states_of(NAMESPACE, name)))

    def ready(self, experiment: Experiment) -> Any:
        """Return the client once there is one."""
        return eventually(lambda: self.services.service_for(experiment), "a client")

    def failure(self, experiment: Experiment) -> str:
        """Return why the services fail for good, once they do."""
        with pytest.raises(TerminalError) as caught:
            self.ready(experiment)
        return str(caught.value)

    def await_object(self, experiment: Experiment, kind: str) -> None:
        """Ask for the service until it has an object of this kind."""
        eventually(lambda: self.services.service_for(experiment) or f"{kind} demo-tpe" in self.objects())

    @contextmanager
    def serving(
        self, *, health: Health | Literal["own"] | None = "own", suggestion: ScriptedSuggestion | None = None
    ) -> Iterator[str]:
        """Have a Service with an address, an available Deployment, and a service that listens there."""
        host = self.expose()
        self.make_available()
        with listening(host, health=Health() if health == "own" else health, suggestion=suggestion):
            yield host


def an_object(kind: str, name: str, spec: dict[str, Any], namespace: str = NAMESPACE) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


class Health:
    """Serves, as soon as the test lets it."""

    def __init__(self) -> None:
        self.serving = True
        self.asked: list[str] = []

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        self.asked.append(request.service)
        status = health_pb2.HealthCheckResponse
        return status(status=status.SERVING if self.serving else status.NOT_SERVING)


@contextmanager
def listening(
    host: str,
    port: int = SUGGESTION_PORT,
    *,
    health: Health | None = None,
    suggestion: ScriptedSuggestion | None = None,
    early_stopping: ScriptedEarlyStopping | None = None,
) -> Iterator[None]:
    """Serve gRPC where a Service leads to."""
    server = grpc.server(ThreadPoolExecutor(4), options=(("grpc.so_reuseport", 0),))
    if health is not None:
        add_servicer(server, health, health_pb2)
    if suggestion is not None:
        add_servicer(server, suggestion, api_pb2)
    if early_stopping is not None:
        add_servicer(server, early_stopping, api_pb2)
    assert server.add_insecure_port(f"{host}:{port}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait(60)


def owner_of(obj: Object) -> dict[str, Any]:
    """Return the controller of an object."""
    (owner,) = obj["metadata"]["ownerReferences"]
    return dict(owner)


SUGGESTION_IMAGE = os.environ.get("KATIB_TEST_SUGGESTION_IMAGE", f"katib/suggestion:{__version__}")
EARLY_STOPPING_IMAGE = os.environ.get("KATIB_TEST_EARLY_STOPPING_IMAGE", f"katib/early-stopping:{__version__}")
RESTRICTED = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
PARAMETER = {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "0.9"}}
POD_SECONDS = 180.0


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


class ServiceCluster(Serving):
    """A namespace of its own, with services as a controller runs them."""

    def __init__(self, server: ApiServer, stack: ExitStack) -> None:
        super().__init__()
        self.server = server
        self._stack = stack
        for kind in (SUGGESTION, TRIAL):
            try:
                server.admin.discovery.resource(*kind)
            except KatibError:
                install_kind(server, *kind)
        self.namespace = server.namespace(f"katib-services-{secrets.token_hex(3)}")
        stack.callback(server.delete_namespace, self.namespace)
        connection = server.connect()
        stack.callback(connection.close)
        self.store = KubernetesStore(connection)
        self.config = read_configuration(KatibConfig, config_text(), "katib-config.yaml")

    def services(self, kubeconfig: Path | None = None, timing: ClusterTiming | None = None) -> ClusterServices:
        connection = self.server.connect(kubeconfig)
        self._stack.callback(connection.close)
        services = self.make_services(KubernetesStore(connection, selectors=SERVICE_SELECTORS), timing)
        services.start()
        self._stack.callback(services.close)
        return services

    def user(self, rights: Sequence[Mapping[str, Any]]) -> Path:
        """Return the kubeconfig of a user with these rights, for as long as the test runs."""
        name = f"{self.namespace}-{secrets.token_hex(3)}"
        self._stack.callback(self.server.forget_user, name)
        return self.server.user(name, rights)

    def submit(
        self,
        algorithm: str = "random",
        name: str = "demo",
        *,
        settings: Sequence[Mapping[str, str]] = (),
        **fields: Any,
    ) -> Experiment:
        """Store a Suggestion. Its Experiment is a stand-in, which no controller of an installed Katib serves."""
        stand_in = self.store.create(self._header(CONFIG_MAP, name))
        objective = {"type": "minimize", "objectiveMetricName": "loss"}
        asked = {"algorithmName": algorithm, "algorithmSettings": list(settings)}
        spec: dict[str, Any] = {"algorithm": asked, **fields}
        header = self._header(SUGGESTION, name)
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": stand_in["metadata"]["uid"]}
        header["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        self.store.create({**header, "spec": {**spec, "requests": 1}})
        return Experiment.decode(
            {"metadata": stand_in["metadata"], "spec": {**spec, "objective": objective, "parameters": [PARAMETER]}}
        )

    def trial(self, name: str) -> None:
        """Store a Trial that seems to run and never ends."""
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
        """Return what serves an experiment."""
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


def failure_of(services: ClusterServices, experiment: Experiment) -> str:
    """Return why the services of an experiment fail for good."""

    with pytest.raises(TerminalError) as caught:
        await_client(services, experiment)
    return str(caught.value)


def waiting_for(services: ClusterServices, experiment: Experiment) -> str:
    """Return what of the cluster keeps the services of an experiment from being ready."""

    def ask() -> str:
        assert services.service_for(experiment) is None
        return services.waiting_for(experiment)

    return str(eventually(ask, "the cluster's trouble", seconds=POD_SECONDS))


def await_client(services: ClusterServices, experiment: Experiment) -> Any:
    return eventually(lambda: services.service_for(experiment), "the client", seconds=POD_SECONDS)
