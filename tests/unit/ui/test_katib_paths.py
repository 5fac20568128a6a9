"""The paths of Katib's own page: dashboards and scripts that ask them continue working."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.engine.controllers.kinds import CONFIG_MAP
from katib.engine.runtime.objects import Key
from tests.support.golden import Golden
from tests.support.tuning import MemoryTuningService, document

Json = dict[str, Any]
OF_DEMO = {"namespace": "default", "experimentName": "demo"}
OF_TRIAL = {"namespace": "default", "trialName": "demo-0000"}


@pytest.fixture(scope="module")
def current() -> list[MemoryTuningService]:
    return []


@pytest.fixture(scope="module")
def shared_http(current: list[MemoryTuningService]) -> Iterator[httpx.Client]:
    class Current:
        def __getattr__(self, name: str) -> Any:
            return getattr(current[-1], name)

    with (
        Server(Current(), host="127.0.0.1", port=0, ui=ui_routes) as server,  # type: ignore[arg-type]  # stands for one
        httpx.Client(base_url=f"{server.url}/katib", trust_env=False) as client,
    ):
        yield client


@pytest.fixture
def service(current: list[MemoryTuningService]) -> MemoryTuningService:
    """The experiment `demo`, which ran three trials."""
    made = MemoryTuningService()
    made.submit(document("demo"), source="demo.yaml")
    made.play("default", "demo")
    current[:] = [made]
    return made


@pytest.fixture
def http(shared_http: httpx.Client, service: MemoryTuningService) -> httpx.Client:
    return shared_http


def offer(service: MemoryTuningService, name: str = "plans", **data: str) -> None:
    labels = {"katib.kubeflow.org/component": "trial-templates"}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    service.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


@pytest.mark.parametrize("slash", ["", "/"])
def test_experiments_are_listed_in_katibs_form(http: httpx.Client, slash: str) -> None:
    (row,) = http.get(f"/fetch_experiments{slash}", params={"namespace": "default"}).json()

    assert (row["name"], row["type"], row["status"], row["trialsSucceeded"]) == ("demo", "hp", "Succeeded", 3)
    assert http.get("/fetch_experiments/", params={"namespace": "other"}).json() == []


@pytest.mark.parametrize(
    ("path", "params", "kind"), [("fetch_experiment", OF_DEMO, "Experiment"), ("fetch_trial", OF_TRIAL, "Trial")]
)
def test_objects_are_answered_as_they_are(http: httpx.Client, path: str, params: Json, kind: str) -> None:
    answer = http.get(f"/{path}/", params=params).json()

    assert (answer["kind"], answer["metadata"]["namespace"]) == (kind, "default")


def test_tables_are_texts(http: httpx.Client) -> None:
    experiment = http.get("/fetch_hp_job_info/", params=OF_DEMO).json()
    trial = http.get("/fetch_hp_job_trial_info/", params=OF_TRIAL).json()

    assert experiment == (
        "Status,trialName,loss,x\nSucceeded,demo-0000,0.5,0.5\nSucceeded,demo-0001,0.4,0.4\nSucceeded,demo-0002,0.3,0.3"
    )
    assert trial == "metricName,time,value\nloss,2030-01-01T12:00:00,0.5\n"


def test_logs_and_architectures_are_answered(http: httpx.Client, service: MemoryTuningService) -> None:
    service.write_log("default", "demo-0000", b"\xff<b>\x1b[1m\n")

    assert http.get("/fetch_trial_logs/", params=OF_TRIAL).json() == "loss=0.5\n\ufffd<b>\x1b[1m\n"
    rows = http.get("/fetch_nas_job_info/", params=OF_DEMO).json()
    assert [row["Name"] for row in rows] == ["Generation 0", "Generation 1", "Generation 2"]


def test_an_experiment_is_created_and_deleted(http: httpx.Client, service: MemoryTuningService) -> None:
    made = http.post("/create_experiment/", json={"postData": json.loads(document("second"))})
    deleted = http.delete("/delete_experiment/", params={"namespace": "default", "experimentName": "second"})

    assert (made.status_code, made.content) == (200, b"")
    assert [row["name"] for row in deleted.json()] == ["demo"]


def test_a_wrong_experiment_is_refused_with_every_reason(http: httpx.Client) -> None:
    wrong = json.loads(document("wrong"))
    wrong["spec"]["maxTrialCount"] = 0
    answer = http.post("/create_experiment/", json={"postData": wrong})

    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert answer.json()["errors"][0]["origin"] == "max-trials-not-positive"


@pytest.mark.parametrize(
    ("method", "path", "missing"),
    [
        ("GET", "fetch_experiments", "namespace"),
        ("GET", "fetch_experiment", "namespace"),
        ("GET", "fetch_experiment?namespace=default", "experimentName"),
        ("GET", "fetch_trial?namespace=default", "trialName"),
        ("GET", "fetch_suggestion?namespace=default", "suggestionName"),
        ("GET", "fetch_hp_job_info?namespace=default", "experimentName"),
        ("GET", "fetch_hp_job_trial_info?namespace=default", "trialName"),
        ("GET", "fetch_nas_job_info?namespace=default", "experimentName"),
        ("GET", "fetch_trial_logs?namespace=default", "trialName"),
        ("DELETE", "delete_experiment?namespace=default", "experimentName"),
        ("POST", "create_experiment", "postData"),
        ("POST", "add_template", "updatedConfigMapNamespace"),
        ("POST", "delete_template", "updatedConfigMapNamespace"),
    ],
)
def test_what_is_missing_is_named(http: httpx.Client, method: str, path: str, missing: str, golden: Golden) -> None:
    answer = http.request(method, f"/{path}", json={} if method == "POST" else None)

    assert answer.status_code == 400
    golden(answer.json()["detail"])


@pytest.mark.parametrize("name", ["../secrets", "a/b", "A", "x" * 254, "a?b", " "])
def test_what_is_no_name_is_not_looked_for(http: httpx.Client, name: str) -> None:
    answer = http.get("/fetch_trial/", params={"namespace": "default", "trialName": name})

    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("trialName: ")


def test_what_is_not_there_is_404(http: httpx.Client) -> None:
    params = {"namespace": "default", "suggestionName": "demo"}

    assert http.get("/fetch_suggestion/", params=params).status_code == 404


def test_templates_are_those_of_config_maps_with_the_label(http: httpx.Client, service: MemoryTuningService) -> None:
    metadata = {"name": "private", "namespace": "default"}
    service.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "secret"}})

    assert http.get("/fetch_trial_templates/").json() == {"Data": []}
    offer(service, job="kind: Job")
    assert http.get("/fetch_trial_templates/").json()["Data"][0]["ConfigMaps"] == [
        {"ConfigMapName": "plans", "Templates": [{"Path": "job", "Yaml": "kind: Job"}]}
    ]


def test_templates_are_added_edited_and_deleted(http: httpx.Client, service: MemoryTuningService) -> None:
    offer(service, job="kind: Job")
    place = {"updatedConfigMapNamespace": "default", "updatedConfigMapName": "plans"}
    new = {**place, "updatedConfigMapPath": "new", "updatedTemplateYaml": "kind: New"}
    moved = {**place, "configMapPath": "new", "updatedConfigMapPath": "moved", "updatedTemplateYaml": "kind: Moved"}

    def paths(answer: httpx.Response) -> list[str]:
        (namespace,) = answer.json()["Data"]
        return [template["Path"] for template in namespace["ConfigMaps"][0]["Templates"]]

    assert paths(http.post("/add_template/", json=new)) == ["job", "new"]
    assert paths(http.post("/edit_template/", json=moved)) == ["job", "moved"]
    assert paths(http.post("/delete_template/", json={**place, "updatedConfigMapPath": "job"})) == ["moved"]
    assert service.store.get(CONFIG_MAP, Key("default", "plans"))["data"] == {"moved": "kind: Moved"}
    assert http.post("/delete_template/", json={**place, "updatedConfigMapPath": "job"}).status_code == 404


def test_a_config_map_that_is_not_there_or_offers_nothing_is_left_alone(
    http: httpx.Client, service: MemoryTuningService, golden: Golden
) -> None:
    metadata = {"name": "private", "namespace": "default"}
    service.store.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "secret"}})
    body = {"updatedConfigMapNamespace": "default", "updatedConfigMapPath": "a", "updatedTemplateYaml": "x"}
    answers = [
        http.post("/add_template/", json={**body, "updatedConfigMapName": name}).json()["errors"][0]
        for name in ("private", "ghost")
    ]

    assert [answer["origin"] for answer in answers] == ["template-config-map-other", "template-config-map-missing"]
    golden(answers[1]["remedy"])


def test_namespaces_are_those_with_experiments(http: httpx.Client, service: MemoryTuningService) -> None:
    service.submit(document("elsewhere", namespace="team"), source="x")

    assert http.get("/fetch_namespaces").json() == ["default", "team"]


@pytest.mark.parametrize("path", ["create_experiment/", "add_template/", "delete_template/"])
def test_a_form_of_another_site_changes_nothing(http: httpx.Client, path: str) -> None:
    """What a page may send without being asked: a form or text."""
    content = json.dumps({"postData": json.loads(document("forged"))})
    answers = [
        http.post(f"/{path}", content=content, headers={"content-type": "text/plain"}),
        http.post(f"/{path}", content=content, headers={"origin": "https://evil.example"}),
    ]

    assert [answer.status_code for answer in answers] == [422, 403]
