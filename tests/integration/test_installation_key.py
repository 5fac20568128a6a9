"""The key of the installation on a real API server, fetched as the pod of the DB manager does."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from katib.engine.runtime.objects import Key
from katib.errors import ForbiddenError
from katib.places.cluster.environment import await_answer
from katib.places.cluster.installation_key import SECRET, SECRET_NAME, PodSecrets, ensure_keys, read_keys, write_keys
from katib.places.cluster.store import KubernetesStore
from katib.wire.rpc.pod_api import PodApi
from tests.support.api_server import ApiServer

pytestmark = pytest.mark.cluster

_NUMBERS = itertools.count()

ROOT = Path(__file__).resolve().parents[2]


def role() -> list[dict[str, object]]:
    """Return the rules of the role that the manifests give the DB manager."""
    documents = yaml.safe_load_all((ROOT / "manifests/components/db-manager/key.yaml").read_text())
    (found,) = [
        d["rules"] for d in documents if d["kind"] == "Role" and d["metadata"]["name"] == "katib-db-manager-key"
    ]
    return list(found)


@pytest.fixture
def namespace(api_server: ApiServer) -> Iterator[str]:
    name = api_server.namespace(f"katib-key-{next(_NUMBERS)}")
    yield name
    api_server.delete_namespace(name)


@pytest.fixture
def as_pod(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[PodSecrets]:
    """Return what the pod of the DB manager sees: its token in a file, and just its rights."""
    kubeconfig = yaml.safe_load(api_server.user("db-manager", role(), namespace).read_text())
    cluster = kubeconfig["clusters"][0]["cluster"]
    (tmp_path / "token").write_text(kubeconfig["users"][0]["user"]["token"])
    if "certificate-authority-data" in cluster:
        (tmp_path / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    elif "certificate-authority" in cluster:
        (tmp_path / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
    yield PodSecrets(PodApi(cluster["server"], tmp_path, timeout_seconds=10.0))
    api_server.forget_user("db-manager", namespace)


def test_pod_and_controller_agree_on_a_key_whoever_is_first(
    api_server: ApiServer, namespace: str, as_pod: PodSecrets, tmp_path: Path
) -> None:
    place = Key(namespace, SECRET_NAME)
    metadata = {"name": SECRET_NAME, "namespace": namespace}
    store = KubernetesStore(api_server.admin)
    store.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})  # as the manifests do

    write_keys(tmp_path / "keys", ensure_keys(as_pod, place))
    assert list(ensure_keys(store, place)) == read_keys(tmp_path / "keys")
    store.update({**store.get(SECRET, place), "data": {}})
    made = ensure_keys(store, place)
    assert list(ensure_keys(as_pod, place)) == list(made)


def test_a_pod_that_starts_before_the_api_server_waits_for_it(
    api_server: ApiServer, namespace: str, as_pod: PodSecrets
) -> None:
    place = Key(namespace, SECRET_NAME)
    metadata = {"name": SECRET_NAME, "namespace": namespace}
    KubernetesStore(api_server.admin).create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    pauses: list[float] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 3:
            api_server.start()
        return False

    api_server.stop()
    try:
        keys = await_answer(lambda: ensure_keys(as_pod, place), pause)
    finally:
        if len(pauses) < 3:
            api_server.start()

    assert keys == ensure_keys(as_pod, place)
    assert len(pauses) >= 3


def test_without_the_secret_the_missing_right_is_named(as_pod: PodSecrets, namespace: str) -> None:
    with pytest.raises(ForbiddenError, match="cannot create resource"):
        ensure_keys(as_pod, Key(namespace, SECRET_NAME))
