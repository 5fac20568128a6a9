from __future__ import annotations

import json
import threading

import httpx
import pytest

from katib.api.metrics import MetricLog
from katib.errors import ERROR_CODES, KatibError, UnavailableError
from katib.rest.guard import MAX_BODY_BYTES
from tests.support.tuning import START, FakeTuningService, condition, document, make_experiment, make_trial

DEMO = "/api/v1/namespaces/default/experiments/demo"
YAML = {"content-type": "application/yaml"}


def test_an_experiment_is_created_at_its_place(http: httpx.Client) -> None:
    answer = http.post("/api/v1/namespaces/team/experiments", content=document("new"), headers=YAML)

    assert answer.status_code == 201
    assert answer.headers["location"] == "/api/v1/namespaces/team/experiments/new"
    assert answer.json()["outcome"] == "created"
    assert http.get(answer.headers["location"]).json()["metadata"]["name"] == "new"


def test_submitting_it_again_is_no_creation(http: httpx.Client) -> None:
    answer = http.post("/api/v1/experiments", content=document("demo"), headers=YAML)

    assert (answer.status_code, answer.json()["outcome"]) == (200, "unchanged")


def test_json_is_as_good_as_yaml(http: httpx.Client) -> None:
    assert http.post("/api/v1/experiments", json=json.loads(document("new"))).status_code == 201


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_web_page_may_send_unasked_is_refused(http: httpx.Client, media_type: str) -> None:
    answer = http.post("/api/v1/experiments", content=document("new"), headers={"content-type": media_type})

    assert answer.status_code == 415
    assert answer.json()["reason"] == "UnsupportedMediaType"


def test_a_document_of_another_namespace_than_the_path_is_refused(http: httpx.Client) -> None:
    text = document("new", namespace="one")
    answer = http.post("/api/v1/namespaces/two/experiments", content=text, headers=YAML)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["origin"] == "namespace-mismatch"
    assert http.get("/api/v1/namespaces/one/experiments").json()["items"] == []


def test_field_errors_travel_whole(http: httpx.Client) -> None:
    answer = http.post("/api/v1/validate", content="[]", headers=YAML)
    body = answer.json()

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert (body["type"], body["reason"], body["status"]) == ("urn:katib:problem:invalid", "Invalid", 422)
    assert set(body["errors"][0]) == {"path", "cause", "remedy", "origin"}
    assert body["errors"][0]["remedy"] in body["detail"]


def test_a_body_that_is_not_utf8_is_a_field_error(http: httpx.Client) -> None:
    answer = http.post("/api/v1/experiments", content=b"a: \xff", headers=YAML)

    assert answer.json()["errors"][0]["origin"] == "document-encoding"


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
def test_a_body_past_the_limit_is_refused(http: httpx.Client, chunked: bool) -> None:
    body = b"#" * (MAX_BODY_BYTES + 1)
    content = iter([body]) if chunked else body
    try:
        answer = http.post("/api/v1/experiments", content=content, headers=YAML)
    except httpx.WriteError:
        return  # the server hung up while we were still sending: refused as well

    assert answer.status_code == 413
    assert answer.json()["reason"] == "TooLarge"


def test_a_missing_object_is_a_problem(http: httpx.Client) -> None:
    answer = http.get("/api/v1/namespaces/default/trials/ghost")

    assert answer.status_code == 404
    assert answer.json()["reason"] == "NotFound"
    assert "ghost" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        pytest.param("GET", "/api/v2/experiments", 404, "NoSuchRoute", id="unknown-path"),
        pytest.param("PUT", DEMO, 405, "MethodNotAllowed", id="wrong-method"),
        pytest.param("GET", f"{DEMO}/trials?limit=0", 422, "Invalid", id="limit-zero"),
        pytest.param("GET", f"{DEMO}/trials?state=Happy", 422, "Invalid", id="unknown-state"),
        pytest.param("GET", f"{DEMO}/changes?timeoutSeconds=-1", 422, "Invalid", id="negative-timeout"),
    ],
)
def test_errors_of_the_framework_are_problems_too(
    http: httpx.Client, method: str, path: str, status: int, reason: str
) -> None:
    answer = http.request(method, path)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["reason"] == reason


def test_a_wrong_parameter_is_named(http: httpx.Client) -> None:
    (error,) = http.get(f"{DEMO}/trials?limit=0").json()["errors"]

    assert error["path"] == "query.limit"
    assert error["cause"].startswith("'0': ")


@pytest.mark.parametrize(
    "cls", [cls for cls in ERROR_CODES if cls.__name__ != "InvalidError"], ids=lambda cls: cls.__name__
)
def test_every_error_has_its_status_from_the_one_table(
    http: httpx.Client, service: FakeTuningService, monkeypatch: pytest.MonkeyPatch, cls: type[KatibError]
) -> None:
    def fail(*_args: object) -> None:
        raise cls("so it is")

    monkeypatch.setattr(service, "get", fail)
    answer = http.get(DEMO)

    assert answer.status_code == ERROR_CODES[cls].http_status
    assert answer.json()["reason"] == ERROR_CODES[cls].reason
    assert answer.json()["detail"] == "so it is"
    assert ("retry-after" in answer.headers) == (cls is UnavailableError)


def test_trials_are_paged_and_filtered(http: httpx.Client, service: FakeTuningService) -> None:
    service.put(make_trial("lost", condition("Failed"), index=9))
    first = http.get(f"{DEMO}/trials?state=Succeeded&limit=2").json()
    second = http.get(f"{DEMO}/trials?state=Succeeded&limit=2&cursor={first['cursor']}").json()
    both = http.get(f"{DEMO}/trials?state=Succeeded&state=Failed").json()

    assert (first["total"], len(first["items"]), len(second["items"]), second["cursor"]) == (3, 2, 1, "")
    assert both["total"] == 4


def test_the_best_trial_is_an_object_or_nothing(http: httpx.Client, service: FakeTuningService) -> None:
    service.put(make_experiment("empty"))

    assert http.get(f"{DEMO}/best").json()["metadata"]["name"] == "demo-0002"
    assert http.get("/api/v1/namespaces/default/experiments/empty/best").status_code == 204


def test_readings_keep_text_that_is_no_number(http: httpx.Client, service: FakeTuningService) -> None:
    service.report("default", "demo-0000", MetricLog(START, "loss", "nan"))
    items = http.get("/api/v1/namespaces/default/trials/demo-0000/metrics?metric=loss&limit=1").json()["items"]

    assert items == [{"time": "2030-01-01T12:00:00Z", "name": "loss", "value": "nan"}]


def test_logs_are_plain_text_that_no_browser_interprets(http: httpx.Client) -> None:
    answer = http.get("/api/v1/namespaces/default/trials/demo-0000/logs")

    assert answer.text == "loss=0.5\n"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_followed_logs_arrive_while_the_trial_runs(http: httpx.Client, service: FakeTuningService) -> None:
    service.put(make_trial("slow", condition("Running")))
    service.write_log("default", "slow", b"first\n")
    with http.stream("GET", "/api/v1/namespaces/default/trials/slow/logs?follow=true") as answer:
        chunks = answer.iter_bytes()
        assert next(chunks) == b"first\n"
        service.write_log("default", "slow", b"second\n")
        assert next(chunks) == b"second\n"
        service.put(make_trial("slow", condition("Succeeded"), loss="1"))
        assert list(chunks) == []


def test_forty_followers_leave_the_server_answering(http: httpx.Client, service: FakeTuningService) -> None:
    """Streams must not use up the threads that answer everything else; the framework has forty of them."""
    service.put(make_trial("slow", condition("Running")))
    service.write_log("default", "slow", b"first\n")
    ready, done = threading.Barrier(45), threading.Event()

    def follow() -> None:
        with http.stream("GET", "/api/v1/namespaces/default/trials/slow/logs?follow=true") as answer:
            next(answer.iter_bytes())
            ready.wait(20)
            done.wait(20)

    http_limits = httpx.Limits(max_connections=100)
    with httpx.Client(base_url=http.base_url, trust_env=False, limits=http_limits) as http:  # noqa: PLR1704 - closed over
        threads = [threading.Thread(target=follow) for _ in range(44)]
        for thread in threads:
            thread.start()
        ready.wait(20)
        answer = http.get(DEMO, timeout=5)
        done.set()
        for thread in threads:
            thread.join()

    assert answer.status_code == 200


def test_events_and_algorithms_are_listed(http: httpx.Client) -> None:
    events = http.get(f"{DEMO}/events").json()["items"]
    algorithms = http.get("/api/v1/algorithms").json()["items"]

    assert [event["reason"] for event in events] == ["JobSucceeded"] * 3
    assert [a["name"] for a in algorithms] == ["random", "house-special", "medianstop"]
    assert algorithms[1]["settings"] is None


def test_deleting_answers_with_nothing(http: httpx.Client) -> None:
    assert http.delete(DEMO).status_code == 204
    assert http.get(DEMO).status_code == 404


def test_the_docs_page_needs_nothing_from_elsewhere(http: httpx.Client) -> None:
    answer = http.get("/docs")

    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    for path in http.get("/openapi.json").json()["paths"]:
        assert path in answer.text


def test_the_root_leads_to_the_docs(http: httpx.Client) -> None:
    assert http.get("/").headers["location"] == "/docs"


def test_every_reference_of_the_description_resolves(http: httpx.Client) -> None:
    text = http.get("/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]

    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} <= set(schemas)
