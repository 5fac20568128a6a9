"""ConfigMaps with trial templates, against a real API server: what is asked of it, and with which rights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from katib.engine.controllers.experiment.config_maps import TemplateConfigMaps
from katib.engine.controllers.job_caches import identity
from katib.engine.controllers.kinds import CONFIG_MAP
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key
from katib.model.templates.source import OFFERED, OFFERED_LABEL
from katib.places.cluster.client import ApiConnection, RequestInfo
from katib.places.cluster.store import KubernetesStore
from tests.support.api_server import ApiServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

CORE, TEAM = "templates-core", "templates-team"
USER = "template-reader"
OF_ALL = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
OF_CORE = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{CORE}"


@pytest.fixture
def connection(api_server: ApiServer) -> Iterator[ApiConnection]:
    """Connect with the rights of the manifests: to get any ConfigMap, to watch those of the installation."""
    for namespace in (CORE, TEAM):
        api_server.namespace(namespace)
        api_server.admin.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps")
    kubeconfig = api_server.user(USER, OF_ALL)
    metadata = {"name": USER}
    subject = {"kind": "ServiceAccount", "name": USER, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER}
    api_server.create(f"{ROLES}/roles", {"metadata": metadata, "rules": OF_CORE})
    api_server.create(f"{ROLES}/rolebindings", {"metadata": metadata, "subjects": [subject], "roleRef": reference})
    api_server.await_rights(USER, OF_CORE, within=CORE)
    try:
        with api_server.connect(kubeconfig) as connection:
            yield connection
    finally:
        api_server.forget_user(USER)


def put(server: ApiServer, namespace: str, name: str, text: str, *, offered: bool = False) -> None:
    labels = {OFFERED_LABEL: OFFERED} if offered else {}
    metadata = {"name": name, "labels": labels}
    server.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": metadata, "data": {"job.yaml": text}})


def text_of(found: Any) -> str | None:
    return None if found is None else found["data"]["job.yaml"]


def test_an_offered_template_costs_no_request_a_look_and_another_one_a_request_a_minute(
    api_server: ApiServer, connection: ApiConnection
) -> None:
    reads: Counter[int] = Counter()

    def note(request: RequestInfo, status: int) -> None:
        reads[status] += (request.verb, request.resource) == ("get", "configmaps")

    put(api_server, CORE, "offered", "first", offered=True)
    put(api_server, CORE, "internal", "secret")
    put(api_server, TEAM, "own", "ours")
    store = KubernetesStore(connection)
    offering = KubernetesStore(connection, selectors={CONFIG_MAP: f"{OFFERED_LABEL}={OFFERED}"}, namespace=CORE)
    watched: Informer[Any] = Informer(offering, CONFIG_MAP, identity)
    config_maps = TemplateConfigMaps(store, watched, SystemClock())
    watched.add_handler(lambda event: config_maps.forget(event.key))
    watched.start()
    try:
        eventually(watched.has_synced)
        connection.observe(note)
        for _ in range(50):
            assert text_of(config_maps.find(Key(CORE, "offered"))) == "first"
            assert text_of(config_maps.find(Key(TEAM, "own"))) == "ours"
            assert config_maps.find(Key(TEAM, "absent")) is None
        assert +reads == {200: 1, 404: 1}
        assert [key.name for key in (Key.of(obj) for obj in watched.all())] == ["offered"]

        api_server.admin.request("DELETE", f"/api/v1/namespaces/{CORE}/configmaps/offered")
        eventually(lambda: config_maps.find(Key(CORE, "offered")) is None)
        put(api_server, CORE, "offered", "second", offered=True)
        eventually(lambda: text_of(config_maps.find(Key(CORE, "offered"))) == "second")
    finally:
        watched.stop()


def test_without_the_right_to_watch_the_offered_ones_are_read(api_server: ApiServer, connection: ApiConnection) -> None:
    """As after an upgrade of the image alone: the controller starts, and finds them all the same."""
    api_server.admin.request("DELETE", f"{ROLES}/rolebindings/{USER}")
    put(api_server, CORE, "offered", "first", offered=True)
    offering = KubernetesStore(connection, namespace=CORE)
    watched: Informer[Any] = Informer(offering, CONFIG_MAP, identity)
    config_maps = TemplateConfigMaps(KubernetesStore(connection), watched, SystemClock())
    watched.start()
    try:
        eventually(lambda: text_of(config_maps.find(Key(CORE, "offered"))) == "first")
    finally:
        watched.stop()
