"""Users behind a gateway: what a test gives them on a real API server, and the server that they ask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION
from katib.engine.runtime.objects import Key
from katib.places.cluster.access.users import open_users
from katib.service.tuning.users import USER_HEADER, Gateway, UserHeaders
from katib.wire.rpc.db_manager import serve_db_manager
from tests.support.api_server import ApiServer
from tests.support.cluster import ClusterWorld
from tests.support.observations import MemoryObservationLog
from tests.support.tuning import document
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SERVER = "katib-server"
ALICE, BOB, ROOT_USER = "alice@example.com", "bob@example.com", "root@example.com"
TEAM, RIVALS = "team", "rivals"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
KEPT_SECONDS = 0.2
"""How long the servers of these tests remember an answer: tests would wait for the usual five seconds."""

Json = dict[str, Any]

VIEW_RULES = [
    {"apiGroups": ["kubeflow.org"], "resources": ["experiments", "trials", "suggestions"], "verbs": ["get", "list"]}
]
EDIT_RULES = [
    {"apiGroups": ["kubeflow.org"], "resources": ["experiments", "trials", "suggestions"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "pods/log", "events", "configmaps"], "verbs": ["get", "list", "watch"]},
]


def rules_of_the_server() -> list[Json]:
    """Return what the manifests allow the server behind a gateway."""
    components = ROOT / "manifests" / "components"
    files = [components / "server" / "server.yaml", components / "kubeflow" / "rbac.yaml"]
    documents = [obj for file in files for obj in yaml.safe_load_all(file.read_text())]
    return [rule for obj in documents if obj["kind"] == "ClusterRole" for rule in obj["rules"]]


@contextmanager
def allowed(server: ApiServer, namespace: str, user: str, rules: list[Json]) -> Iterator[None]:
    """Let a user do something in a namespace for a while; with no namespace, everywhere."""
    place = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    roles, bindings, kind = (
        ("roles", "rolebindings", "Role") if namespace else ("clusterroles", "clusterrolebindings", "ClusterRole")
    )
    name = re.sub("[^a-z0-9]", "-", user)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    server.create(f"{place}/{roles}", {"metadata": {"name": name}, "rules": rules})
    server.create(f"{place}/{bindings}", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    eventually(lambda: all(is_allowed(server, namespace, user, rule) for rule in rules), "the rights to be in force")
    try:
        yield
    finally:
        server.admin.request("DELETE", f"{place}/{bindings}/{name}")
        server.admin.request("DELETE", f"{place}/{roles}/{name}")


def is_allowed(server: ApiServer, namespace: str, user: str, rule: Json) -> bool:
    """Return whether the API server knows of a right already: it follows its roles with a short delay."""
    resource, _, subresource = rule["resources"][-1].partition("/")
    attributes = {"namespace": namespace, "verb": rule["verbs"][-1], "group": rule["apiGroups"][0]}
    asked = {"user": user, "resourceAttributes": {**attributes, "resource": resource, "subresource": subresource}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
    answer = server.admin.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review)
    return bool(answer["status"]["allowed"])


@dataclass(frozen=True)
class Rest:
    """The REST service as its gateway reaches it."""

    url: str

    def ask(self, user: str, method: str, path: str, **request: Any) -> httpx.Response:
        with self.client(user) as client:
            return client.request(method, path, **request)

    def client(self, user: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={USER_HEADER: user}, trust_env=False, timeout=60)


@contextmanager
def serving(kubeconfig: Path, db_manager: str) -> Iterator[Rest]:
    """Run a server for users with the rights of a kubeconfig."""
    with (
        open_users(kubeconfig, db_manager=db_manager, kept_seconds=KEPT_SECONDS) as users,
        Server(Gateway(UserHeaders(), users.service_of), host="127.0.0.1", port=0, ui=ui_routes) as server,
    ):
        yield Rest(server.url)


@contextmanager
def two_users(api_server: ApiServer) -> Iterator[Rest]:
    """Run a server, with an account that has the rights of the manifests, for two users with a namespace each."""
    with ExitStack() as stack:
        kubeconfig = api_server.user(SERVER, rules_of_the_server())
        stack.callback(api_server.forget_user, SERVER)
        stack.enter_context(allowed(api_server, TEAM, ALICE, EDIT_RULES))
        stack.enter_context(allowed(api_server, RIVALS, BOB, EDIT_RULES))
        log = MemoryObservationLog()
        manager = serve_db_manager(log, "127.0.0.1:0")
        stack.callback(lambda: manager.stop(0))
        yield stack.enter_context(serving(kubeconfig, manager.address))


def ended_demo(world: ClusterWorld) -> str:
    """Return the name of an experiment of Alice's team, which ran to its end."""
    store = world.stand_in.store
    if not any(Key.of(obj).name == "demo" for obj in store.list(EXPERIMENT, TEAM).items):
        world.service.submit(document("demo", namespace=TEAM), source="demo.yaml")
        world.stand_in.play(TEAM, "demo")
    if not store.list(SUGGESTION, TEAM).items:
        spec = {"algorithm": {"algorithmName": "random"}, "requests": 3}
        metadata = {"name": "demo", "namespace": TEAM}
        suggestion = {"apiVersion": SUGGESTION.api_version, "kind": "Suggestion", "metadata": metadata, "spec": spec}
        store.create(suggestion)
    return "demo"
