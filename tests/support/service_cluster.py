"""A namespace of a cluster with services in it, as one controller runs them.

The images come from `KATIB_TEST_SUGGESTION_IMAGE` and `KATIB_TEST_EARLY_STOPPING_IMAGE`, else they are the product's.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import yaml

from katib.api.configuration import read_configuration
from katib.api.types import Experiment, Suggestion
from katib.cluster.configuration.models import KatibConfig
from katib.cluster.services.catalog import ClusterCatalog
from katib.cluster.services.directory import ClusterServices
from katib.cluster.services.kinds import CONFIG_MAP, DEPLOYMENT, POD, ROLE, ROLE_BINDING, SERVICE, SERVICE_SELECTORS
from katib.cluster.services.served import ClusterTiming
from katib.cluster.store import KubernetesStore
from katib.errors import ConflictError, KatibError, NotFoundError, TerminalError
from katib.runtime.objects import Key, Kind
from tests.support.api_server import ApiServer
from tests.support.server_kinds import install_kind
from tests.support.waiting import eventually

SUGGESTION_IMAGE = os.environ.get("KATIB_TEST_SUGGESTION_IMAGE", "katib/suggestion:0.1.0")
EARLY_STOPPING_IMAGE = os.environ.get("KATIB_TEST_EARLY_STOPPING_IMAGE", "katib/early-stopping:0.1.0")
API = "kubeflow.org/v1beta1"
SUGGESTION, TRIAL = (Kind(API, kind) for kind in ("Suggestion", "Trial"))
EARLY = {"algorithmName": "medianstop"}
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


class ServiceCluster:
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
        self.config = read_configuration(KatibConfig, config_text(), "katib-config.yaml")
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

    def submit(
        self,
        algorithm: str = "random",
        name: str = "demo",
        *,
        settings: Sequence[Mapping[str, str]] = (),
        **fields: Any,
    ) -> Experiment:
        """Store a Suggestion. Its Experiment is a stand-in: where Katib is installed, nobody else is to serve it."""
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


def failure_of(services: ClusterServices, experiment: Experiment) -> str:
    """Return why the services of an experiment fail for good."""

    def ask() -> str:
        try:
            assert services.service_for(experiment) is None
        except TerminalError as error:
            return str(error)
        return ""

    return str(eventually(ask, "the failure", seconds=POD_SECONDS))


def waiting_for(services: ClusterServices, experiment: Experiment) -> str:
    """Return what of the cluster keeps the services of an experiment from being ready."""

    def ask() -> str:
        assert services.service_for(experiment) is None
        return services.waiting_for(experiment)

    return str(eventually(ask, "the cluster's trouble", seconds=POD_SECONDS))


def await_client(services: ClusterServices, experiment: Experiment) -> Any:
    return eventually(lambda: services.service_for(experiment), "the client", seconds=POD_SECONDS)
