"""The same requests to our Kubernetes API and to a real API server: same status codes, same shapes."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from tests.support.api_server import ApiServer
from tests.support.experiments import an_experiment
from tests.support.kube import config_map, kube_world

pytestmark = [pytest.mark.cluster]

NS = "side-by-side"
CORE, JOBS = f"/api/v1/namespaces/{NS}", f"/apis/batch/v1/namespaces/{NS}/jobs"
KATIB = f"/apis/kubeflow.org/v1beta1/namespaces/{NS}"
MAPS, EXPERIMENTS = f"{CORE}/configmaps", f"{KATIB}/experiments"
JSON, MERGE = "application/json", "application/merge-patch+json"
STRATEGIC, PATCH, APPLY = (
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

Json = dict[str, Any]


Answers = list[tuple[httpx.Response, httpx.Response]]
"""Ours and the real one, in the order of the requests."""


class Request(NamedTuple):
    """What is sent, one after the other."""

    method: str
    path: str
    body: Any = None
    type: str = JSON
    accept: str = JSON


DEMO = an_experiment(namespace=NS)
JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {
        "suspend": True,
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "command": ["true"]}]}
        },
    },
}
REQUESTS = (
    Request("POST", MAPS, config_map("one", a="b")),
    Request("POST", MAPS, config_map("one", a="b")),
    Request("POST", MAPS, config_map("A B")),
    Request("POST", MAPS, {**config_map("two"), "kind": "Secret"}),
    Request("POST", MAPS, {**config_map("two"), "metadata": {"name": "two", "namespace": "other"}}),
    Request("POST", MAPS, {"metadata": {"generateName": "some-"}}),
    Request("POST", MAPS, b"{", JSON),
    Request("POST", MAPS, b"x", "application/none"),
    Request("GET", f"{MAPS}/one"),
    Request("GET", f"{MAPS}/one", accept=TABLE),
    Request("GET", f"{MAPS}/none"),
    Request("GET", MAPS),
    Request("GET", MAPS, accept=TABLE),
    Request("GET", f"{MAPS}?limit=1"),
    Request("GET", f"{MAPS}?labelSelector=a%20b%20c"),
    Request("GET", f"{MAPS}?fieldSelector=metadata.name%3Done"),
    Request("GET", f"{MAPS}?fieldSelector=data.x%3Done"),
    Request("GET", f"{MAPS}?limit=1&continue=x"),
    *(
        Request("GET", f"{MAPS}?{query}")
        for query in (
            "resourceVersion=abc",
            "resourceVersion=99999999",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Foo",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "sendInitialEvents=true",
            "limit=abc",
            "timeoutSeconds=abc",
            "watch=1&sendInitialEvents=true",
            "watch=1&resourceVersionMatch=Exact",
            "watch=1&continue=x",
            "watch=1&timeoutSeconds=abc",
        )
    ),
    Request("GET", f"{MAPS}/one?resourceVersion=99999999"),
    Request("GET", f"{MAPS}/"),
    Request("PUT", f"{MAPS}/one", config_map("one", a="c")),
    Request("PUT", f"{MAPS}/one", {**config_map("one"), "metadata": {"name": "one", "resourceVersion": "1"}}),
    Request("PUT", f"{MAPS}/one", config_map("two")),
    Request("PUT", f"{MAPS}/one", {**config_map("one"), "metadata": {"name": "one", "uid": "other"}}),
    Request("PUT", f"{MAPS}/none", {**config_map("none"), "metadata": {"name": "none", "resourceVersion": "1"}}),
    Request("PATCH", f"{MAPS}/one", {"data": {"b": "c"}}, MERGE),
    Request("PATCH", f"{MAPS}/one", {"data": {"d": "e"}}, STRATEGIC),
    Request("PATCH", f"{MAPS}/one", [{"op": "add", "path": "/data/f", "value": "g"}], PATCH),
    Request("PATCH", f"{MAPS}/one", [{"op": "test", "path": "/data/f", "value": "h"}], PATCH),
    Request("PATCH", f"{MAPS}/one", [{"op": "remove", "path": "/none"}], PATCH),
    Request("PATCH", f"{MAPS}/one", {}, JSON),
    Request("PATCH", f"{MAPS}/none", {}, MERGE),
    Request("PATCH", f"{MAPS}/one?fieldManager=a", {**config_map("one"), "data": {"a": "z"}}, APPLY),
    Request("PATCH", f"{MAPS}/one?fieldManager=a&force=true", {**config_map("one"), "data": {"a": "z"}}, APPLY),
    Request("PATCH", f"{MAPS}/new?fieldManager=a", config_map("new", a="b"), APPLY),
    Request("PATCH", f"{MAPS}/new", config_map("new", a="b"), APPLY),
    Request("POST", f"{MAPS}?dryRun=All", config_map("dry")),
    Request("POST", f"{MAPS}?dryRun=Some", config_map("dry")),
    Request("GET", f"{MAPS}/dry"),
    Request("DELETE", f"{MAPS}/one", {"preconditions": {"uid": "other"}}),
    Request("DELETE", f"{MAPS}/one"),
    Request("DELETE", f"{MAPS}/one"),
    Request("DELETE", MAPS),
    Request("POST", EXPERIMENTS, DEMO),
    Request("GET", f"{EXPERIMENTS}/demo", accept=TABLE),
    Request("GET", f"{EXPERIMENTS}/demo/status"),
    Request("PATCH", f"{EXPERIMENTS}/demo", {"spec": {"maxTrialCount": 9}}, MERGE),
    Request("PATCH", f"{EXPERIMENTS}/demo", {}, STRATEGIC),
    Request("PATCH", f"{EXPERIMENTS}/demo/status", {"status": {"trials": 1}}, MERGE),
    Request("PUT", f"{EXPERIMENTS}/demo", DEMO),
    Request("GET", f"{KATIB}/trials"),
    Request("DELETE", f"{EXPERIMENTS}/demo"),
    Request("GET", f"{EXPERIMENTS}/demo"),
    Request("POST", JOBS, JOB),
    Request("GET", f"{JOBS}/j", accept=TABLE),
    Request("PATCH", f"{JOBS}/j", {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}, STRATEGIC),
    Request("DELETE", f"{JOBS}/j?propagationPolicy=Background"),
    Request("GET", f"{CORE}/pods"),
    Request("GET", f"{CORE}/pods/none/log"),
    Request("GET", "/api/v1/pods"),
    Request("GET", f"/api/v1/namespaces/{NS}"),
    Request("GET", "/version"),
    Request("GET", "/api"),
    Request("GET", "/apis"),
    Request("GET", "/api/v1"),
    Request("GET", "/apis/batch"),
    Request("GET", "/apis/batch/v1"),
    Request("GET", "/apis/batch/v1/"),
    Request("GET", "/api/v1/"),
    Request("GET", "/api/"),
    Request("GET", f"{CORE}/services"),
    Request("GET", f"/apis/apps/v1/namespaces/{NS}/deployments"),
    Request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": {"verb": "get"}}},
    ),
    Request("PUT", "/version"),
    Request("POST", "/api/v1/configmaps", config_map("one")),
)


def client_from(kubeconfig: Path) -> httpx.Client:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    data = cluster.get("certificate-authority-data")
    text = base64.b64decode(data).decode() if data else Path(cluster["certificate-authority"]).read_text()
    headers = {"authorization": f"Bearer {user['token']}"}
    return httpx.Client(
        base_url=cluster["server"], verify=ssl.create_default_context(cadata=text), headers=headers, timeout=30.0
    )


@pytest.fixture(scope="module")
def answers(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """The answers of both, ours first."""
    api_server.namespace(NS)
    with (
        kube_world(tmp_path_factory.mktemp("data"), starts=False) as world,
        client_from(world.server.kubeconfig) as ours,
        client_from(api_server.kubeconfig) as real,
    ):
        ours.post("/api/v1/namespaces", json={"metadata": {"name": NS}})
        found = [(send(ours, request), send(real, request)) for request in REQUESTS]
        yield found


def send(http: httpx.Client, request: Request) -> httpx.Response:
    content = request.body if isinstance(request.body, bytes) else json.dumps(request.body)
    headers = {"content-type": request.type, "accept": request.accept}
    return http.request(
        request.method, request.path, content=None if request.body is None else content, headers=headers
    )


def shape_of(response: httpx.Response, real: httpx.Response) -> tuple[Any, ...]:
    """Return what clients go by: the code, the kind, and of a refusal the reason and which object it is about.

    The real one says of some refusals only which object they are about, by its kind or by the plural.
    """
    body, names = response.json(), bool((real.json().get("details") or {}).get("name"))
    details = body.get("details") or {} if names else {}
    about = (details.get("name"), details.get("group"), str(details.get("kind")).lower().rstrip("s"))
    return response.status_code, body.get("kind"), body.get("apiVersion"), body.get("reason"), about


@pytest.mark.parametrize("number", range(len(REQUESTS)), ids=lambda n: f"{n}-{REQUESTS[n].method}-{REQUESTS[n].path}")
def test_both_answer_alike(answers: Answers, number: int) -> None:
    ours, real = answers[number]

    assert shape_of(ours, real) == shape_of(real, real), f"{ours.text[:400]}\n{real.text[:400]}"
    if ours.is_success and "fieldSelector" not in REQUESTS[number].path:
        assert set(ours.json()) <= set(real.json()) | {"spec", "status", "data"}
