"""Whatever a client sends to the Kubernetes API, it gets an answer that says what is wrong, and never a bug."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from katib.doors.kube_api.app import create_app
from katib.doors.kube_api.patches import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from katib.doors.kube_api.protobuf import MEDIA_TYPE
from katib.doors.kube_api.resources import RESOURCES
from katib.doors.rest.server import Server
from katib.doors.rest.streams import Closing
from katib.places.machine import open_engine
from tests.support.experiments import an_experiment
from tests.support.kube import config_map
from tests.support.page_routes import rest_paths
from tests.support.tuning import MemoryTuningService, document

ROOTS = [
    *(
        f"{'/apis/' if resource.group else '/api/'}{resource.kind.api_version}"
        f"{'/namespaces/default' if resource.is_namespaced else ''}/{resource.plural}"
        for resource in RESOURCES
    ),
    *("/api", "/apis", "/apis/kubeflow.org", "/openapi/v3", "/version", "/api/v1/namespaces/default"),
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
]
TYPES = ["application/json", "application/yaml", JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH, MEDIA_TYPE, "x"]
NAMES = ["apiVersion", "kind", "metadata", "spec", "status", "name", "labels", "finalizers", "ownerReferences", "data"]
NAMES += ["containers", "$patch", "$retainKeys", "$setElementOrder/containers", "managedFields", "template", "env"]

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["one", "demo", "merge"])
)
values = st.recursive(
    scalars | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
operations = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"])},
        optional={
            "path": st.sampled_from(
                ["", "/", "/metadata", "/metadata/labels/a", "/data/a", "/spec/parameters/0", "/a/-"]
            ),
            "from": st.sampled_from(["/metadata/name", "/spec", ""]),
            "value": values,
        },
    ),
    max_size=3,
)
near = st.sampled_from([an_experiment(), config_map("one"), {"metadata": {"generateName": "x-"}}])
merged = st.builds(
    lambda base, changes: {**base, **changes}, near, st.dictionaries(st.sampled_from(NAMES), values, max_size=2)
)
bodies = st.one_of(
    (values | operations | merged | near).map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
    st.binary(max_size=40).map(lambda data: b"k8s\x00" + data),
)
queries = st.dictionaries(
    st.sampled_from(
        [
            *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "dryRun", "fieldManager"),
            *("force", "fieldValidation", "timestamps", "tailLines", "propagationPolicy", "sendInitialEvents"),
        ]
    ),
    st.sampled_from(
        ["", "1", "true", "All", "Strict", "a=b", "a in (b", "metadata.name=one", "x", "WzEsIDJd", "Orphan"]
    )
    | st.text(max_size=6),
    max_size=3,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with open_engine(data_dir=Path(tmp_path_factory.mktemp("data")), own_process=False) as engine:
        yield TestClient(create_app(engine.objects, Closing(), {}), base_url="http://localhost")


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    root=st.sampled_from(ROOTS),
    rest=st.sampled_from(["", "", "/one", "/demo", "/one/status", "/demo/status", "/one/log", "/", "/a/b/c"]),
    query=queries,
    watches=st.booleans(),
    body=bodies,
    content_type=st.sampled_from(TYPES),
    accept=st.sampled_from(
        ["", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=APIGroupDiscoveryList;v=v2"]
    ),
)
def test_every_request_gets_an_answer(
    client: TestClient,
    method: str,
    root: str,
    rest: str,
    query: dict[str, str],
    *,
    watches: bool,
    body: bytes,
    content_type: str,
    accept: str,
) -> None:
    parameters = {**query, "watch": "1", "timeoutSeconds": "0"} if watches else query
    headers = {"content-type": content_type, "accept": accept}
    answer = client.request(method, root + rest, params=parameters, content=body, headers=headers)

    assert answer.status_code < 500 or answer.status_code == 504, answer.text  # a revision of the future
    if answer.status_code >= 400:
        status = answer.json()
        assert (status["kind"], status["code"]) == ("Status", answer.status_code)
        assert status["message"]
        assert status["reason"]


# --- Parameters of routes in any digits that people write: refused as wrong, never a bug of the server ----------------


FREE_TEXT = {"namespace", "metric", "source", "last-event-id", "replica", "container", "command", "path"}
"""Any text is right there, or no number is meant."""


def parameters() -> list[tuple[str, str, str]]:
    """Return the method, path and name of each query parameter that is not just any text."""
    return [
        (method, path, parameter["name"])
        for path, methods in rest_paths().items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter["name"] not in FREE_TEXT
    ]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    with (
        Server(service, host="127.0.0.1", port=0) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        yield client


def test_there_are_parameters_to_try() -> None:
    names = {name for _, _, name in parameters()}

    assert names >= {"limit", "cursor", "tail", "follow", "state", "order", "timeoutSeconds"}


@pytest.mark.parametrize(("method", "path", "name"), parameters())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(digits=st.text(st.characters(categories=["Nd", "Nl", "No"], min_codepoint=0x80), min_size=1, max_size=20))
def test_odd_digits_are_refused(http: httpx.Client, method: str, path: str, name: str, digits: str) -> None:
    place: dict[str, Any] = {"namespace": "default", "name": "demo-0000" if "/trials/{name}" in path else "demo"}
    answer = http.request(method, path.format(**place), params={name: digits})

    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
