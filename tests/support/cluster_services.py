"""A cluster for services: objects in memory, a kubelet that does what the test says, and real gRPC on loopback.

Differs from the real thing: a Service's address is one of 127.0.0.0/8, where the test serves on the usual ports; pods
and conditions are written by the test; nothing is scheduled, and what is owned goes at once.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

import grpc

from katib.api.configuration import read_configuration
from katib.api.types import Experiment, Suggestion
from katib.backoff import Backoff
from katib.cluster.configuration.models import KatibConfig
from katib.cluster.services.catalog import ClusterCatalog
from katib.cluster.services.directory import ClusterServices
from katib.cluster.services.kinds import (
    DEPLOYMENT,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    SUGGESTION_PORT,
    VOLUME,
    VOLUME_CLAIM,
)
from katib.cluster.services.served import ClusterTiming
from katib.rpc._generated import api_pb2_grpc, health_pb2, health_pb2_grpc
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.stores.memory import MemoryStore
from tests.support.services import ScriptedEarlyStopping, ScriptedSuggestion
from tests.support.waiting import eventually

NAMESPACE = "team"
EXPERIMENT = Kind("kubeflow.org/v1beta1", "Experiment")
SUGGESTION = Kind("kubeflow.org/v1beta1", "Suggestion")
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


class World:
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
        self.store = store or MemoryStore(())
        self.config: KatibConfig = read_configuration(KatibConfig, config, "katib-config.yaml")
        self.told: list[tuple[str, str]] = []
        self.woken = threading.Event()
        self.services = ClusterServices(
            through(self.store),
            suggestion_of=self._suggestion,
            config=lambda: self.config,
            catalog=ClusterCatalog(lambda: self.config),
            db_manager_address=lambda: "katib-db-manager.kubeflow:6789",
            grpc_probes=False,
            timing=timing,
        )
        self.services.on_change(lambda *user: self.told.append(user))

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

    def suggestion(self, name: str = "demo") -> Suggestion:
        found = self._suggestion(Key(NAMESPACE, name))
        assert found is not None
        return found

    def _suggestion(self, key: Key) -> Suggestion | None:
        items = self.store.list(SUGGESTION, key.namespace).items
        return next((Suggestion.decode(obj) for obj in items if Key.of(obj) == key), None)

    # --- the cluster ------------------------------------------------------------------------------------------------

    def objects(self) -> set[str]:
        """Return kind and name of all that serves somebody."""
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


def an_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


class Health(health_pb2_grpc.HealthServicer):
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
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if suggestion is not None:
        api_pb2_grpc.add_SuggestionServicer_to_server(suggestion, server)
    if early_stopping is not None:
        api_pb2_grpc.add_EarlyStoppingServicer_to_server(early_stopping, server)
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
