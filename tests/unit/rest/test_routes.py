from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from katib.doors.cli.connection import DEFAULT_SERVER
from katib.doors.rest.guard import MAX_BODY_BYTES
from katib.doors.rest.server import Server
from katib.errors import ERROR_CODES, KatibError, NotFoundError, UnavailableError
from katib.model.metrics import MetricLog
from tests.support.golden import Golden
from tests.support.tuning import (
    START,
    MemoryTuningService,
    condition,
    document,
    make_experiment,
    make_pareto_experiment,
    make_trial,
)

DEMO = "/api/v1/namespaces/default/experiments/demo"
TRIAL = "/api/v1/namespaces/default/trials/demo-0000"
YAML = {"content-type": "application/yaml"}


def test_a_connection_that_is_used_again_is_answered_without_waiting_for_acknowledgements(http: httpx.Client) -> None:
    """These are delayed by 40 ms."""

    assert sorted(http.get("/healthz").elapsed.total_seconds() for _ in range(21))[10] < 0.03


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default/experiments", "/api/v1/experiments"])
def test_the_place_of_a_new_experiment_is_right_under_whatever_path_a_gateway_shows_the_server(
    http: httpx.Client, path: str
) -> None:
    answer = http.post(path, content=document("new"), headers=YAML)

    place = httpx.URL(f"https://gateway.example/katib{path}").join(answer.headers["location"])
    assert place == "https://gateway.example/katib/api/v1/namespaces/default/experiments/new"
    assert http.get(place.path.removeprefix("/katib")).json()["metadata"]["name"] == "new"


def test_submitting_it_again_is_no_creation(http: httpx.Client) -> None:
    answer = http.post("/api/v1/experiments", content=document("demo"), headers=YAML)

    assert (answer.status_code, answer.json()["outcome"]) == (200, "unchanged")


@pytest.mark.parametrize("path", ["/api/v1/namespaces/team/experiments", "/api/v1/experiments?namespace=team"])
def test_a_document_may_hold_several_experiments_and_their_namespace(http: httpx.Client, path: str) -> None:
    namespace = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}'
    text = "\n---\n".join((namespace, document("one"), document("two")))

    assert http.post("/api/v1/validate", content=text, headers=YAML).status_code == 200

    answer = http.post(path, content=text, headers=YAML)
    items = answer.json()["items"]

    assert answer.status_code == 201
    assert [(one["experiment"]["metadata"]["name"], one["outcome"]) for one in items] == [
        ("one", "created"),
        ("two", "created"),
    ]
    assert http.get("/api/v1/namespaces/team/experiments/two").status_code == 200
    assert http.post(path, content=text, headers=YAML).status_code == 200


def test_json_is_as_good_as_yaml(http: httpx.Client) -> None:
    assert http.post("/api/v1/experiments", json=json.loads(document("new"))).status_code == 201


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_web_page_may_send_unasked_is_refused(http: httpx.Client, media_type: str) -> None:
    answer = http.post("/api/v1/experiments", content=document("new"), headers={"content-type": media_type})

    assert answer.status_code == 415
    assert answer.json()["reason"] == "UnsupportedMediaType"
    assert "-H 'Content-Type: application/yaml'" in answer.json()["detail"]


def test_a_change_says_what_it_cannot_read(http: httpx.Client, golden: Golden) -> None:
    path = "/api/v1/namespaces/default/experiments/demo"
    form = {"content-type": "application/x-www-form-urlencoded"}
    not_json = http.patch(path, content=b'{"maxTrialCount": 40}', headers=form)
    unknown = http.patch(path, json={"maxTrials": 40})

    assert (not_json.status_code, unknown.status_code) == (422, 422)
    golden(not_json.json()["detail"])
    assert unknown.json()["errors"][0]["path"] == "body.maxTrials"


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
    body = b"#" * (3 * MAX_BODY_BYTES)
    content = iter([body]) if chunked else body
    answer = http.post("/api/v1/experiments", content=content, headers=YAML)

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
        pytest.param("GET", f"{DEMO[:-4]}%0A", 422, "Invalid", id="name-of-a-line-break"),
        pytest.param("GET", f"{DEMO[:-4]}{'n' * 254}", 422, "Invalid", id="name-overlong"),
        pytest.param("GET", "/api/v1/namespaces/%00/experiments", 422, "Invalid", id="namespace-of-a-null"),
        pytest.param("GET", "/api/v1/namespaces/a%2Fb/experiments", 404, "NoSuchRoute", id="namespace-with-a-slash"),
        pytest.param("POST", "/api/v1/validate?namespace=Bad_NS", 422, "Invalid", id="namespace-to-use"),
        pytest.param("GET", f"{TRIAL}/logs?tail=99999999999999999999", 422, "Invalid", id="tail-huge"),
    ],
)
def test_errors_of_the_framework_are_problems_too(
    http: httpx.Client, method: str, path: str, status: int, reason: str
) -> None:
    answer = http.request(method, path)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["reason"] == reason


def test_a_wrong_parameter_is_named_and_of_what_was_sent_the_beginning(http: httpx.Client) -> None:
    (error,) = http.get(f"{DEMO}/trials?limit=0").json()["errors"]

    assert error["path"] == "query.limit"
    assert error["cause"].startswith("'0': ")

    answer = http.get(f"{DEMO}/trials?limit={'9' * 5000}")

    assert answer.status_code == 422
    assert len(answer.content) < 1000
    assert answer.json()["detail"].isprintable()


@pytest.mark.parametrize(
    "cls", [cls for cls in ERROR_CODES if cls.__name__ != "InvalidError"], ids=lambda cls: cls.__name__
)
def test_every_error_has_its_status_from_the_one_table(
    http: httpx.Client, service: MemoryTuningService, monkeypatch: pytest.MonkeyPatch, cls: type[KatibError]
) -> None:
    def fail(*_args: object) -> None:
        raise cls("so it is")

    monkeypatch.setattr(service, "_on_get_object", fail)
    answer = http.get(DEMO)

    assert answer.status_code == ERROR_CODES[cls].http_status
    assert answer.json()["reason"] == ERROR_CODES[cls].reason
    assert answer.json()["detail"] == "so it is"
    assert ("retry-after" in answer.headers) == (cls is UnavailableError)


def test_trials_are_paged_and_filtered(http: httpx.Client, service: MemoryTuningService) -> None:
    service.put(make_trial("lost", condition("Failed"), index=9))
    first = http.get(f"{DEMO}/trials?state=Succeeded&limit=2").json()
    second = http.get(f"{DEMO}/trials?state=Succeeded&limit=2&cursor={first['cursor']}").json()
    both = http.get(f"{DEMO}/trials?state=Succeeded&state=Failed").json()

    assert (first["total"], len(first["items"]), len(second["items"]), second["cursor"]) == (3, 2, 1, "")
    assert both["total"] == 4


def test_the_best_trial_is_an_object_or_nothing(http: httpx.Client, service: MemoryTuningService) -> None:
    service.put(make_experiment("empty"))

    assert http.get(f"{DEMO}/best").json()["metadata"]["name"] == "demo-0002"
    assert http.get("/api/v1/namespaces/default/experiments/empty/best").status_code == 204


def test_the_pareto_set_is_that_of_the_status_or_nothing(http: httpx.Client, service: MemoryTuningService) -> None:
    several = make_pareto_experiment("several")
    service.put(several)

    assert (
        http.get("/api/v1/namespaces/default/experiments/several/pareto").json()
        == several.encode()["status"]["paretoSet"]
    )
    assert http.get(f"{DEMO}/pareto").status_code == 204
    assert http.get("/api/v1/namespaces/default/experiments/none/pareto").status_code == 404


def test_readings_keep_text_and_their_step(http: httpx.Client, service: MemoryTuningService) -> None:
    for value, step in (("nan", {}), ("0.1", {"step": 7})):
        service.store_readings("demo-0000", MetricLog(START, "loss", value, step.get("step")))
        items = http.get("/api/v1/namespaces/default/trials/demo-0000/metrics?metric=loss&limit=1").json()["items"]

        assert items == [{"time": "2030-01-01T12:00:00Z", "name": "loss", "value": value, **step}]


def test_a_curve_has_so_many_points_and_keeps_its_extremes(http: httpx.Client, service: MemoryTuningService) -> None:
    for step in range(1000):
        service.store_readings("demo-0000", MetricLog(START, "loss", "99" if step == 678 else str(step % 50), step))
    items = http.get("/api/v1/namespaces/default/trials/demo-0000/metrics?points=10").json()["items"]

    assert len(items) <= 10
    assert items[-1]["step"] == 999
    assert {"99", "0"} <= {item["value"] for item in items}


def test_logs_are_plain_text_that_no_browser_interprets(http: httpx.Client) -> None:
    answer = http.get("/api/v1/namespaces/default/trials/demo-0000/logs")

    assert answer.text == "loss=0.5\n"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_followed_logs_arrive_while_the_trial_runs(http: httpx.Client, service: MemoryTuningService) -> None:
    service.put(make_trial("slow", condition("Running")))
    service.write_log("default", "slow", b"first\n")
    with http.stream("GET", "/api/v1/namespaces/default/trials/slow/logs?follow=true") as answer:
        chunks = answer.iter_bytes()
        assert next(chunks) == b"first\n"
        service.write_log("default", "slow", b"second\n")
        assert next(chunks) == b"second\n"
        service.put(make_trial("slow", condition("Succeeded"), loss="1"))
        assert list(chunks) == []


def test_forty_followers_leave_the_server_answering(http: httpx.Client, service: MemoryTuningService) -> None:
    """Streams must not use up the threads that answer everything else; the framework has forty of them."""
    service.put(make_trial("slow", condition("Running")))
    service.write_log("default", "slow", b"first\n")
    ready, done = threading.Barrier(45), threading.Event()

    def follow() -> None:
        with http.stream("GET", "/api/v1/namespaces/default/trials/slow/logs?follow=true") as answer:
            next(answer.iter_bytes())
            ready.wait(60)
            done.wait(60)

    http_limits = httpx.Limits(max_connections=100)
    with httpx.Client(base_url=http.base_url, trust_env=False, limits=http_limits) as http:  # noqa: PLR1704 - closed over
        threads = [threading.Thread(target=follow) for _ in range(44)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        answer = http.get(DEMO, timeout=60)
        done.set()
        for thread in threads:
            thread.join()

    assert answer.status_code == 200


def test_deleting_answers_with_nothing_and_algorithms_are_listed(http: httpx.Client) -> None:
    events = http.get(f"{DEMO}/events").json()["items"]
    algorithms = http.get("/api/v1/algorithms").json()["items"]

    assert [event["reason"] for event in events] == ["JobSucceeded"] * 3
    assert [a["name"] for a in algorithms] == ["random", "house-special", "medianstop"]
    assert algorithms[1]["settings"] is None

    assert http.delete(DEMO).status_code == 204
    assert http.get(DEMO).status_code == 404


def test_the_docs_page_needs_nothing_from_elsewhere_and_the_root_leads_to_it(http: httpx.Client) -> None:
    answer = http.get("/docs")

    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    for path in http.get("/openapi.json").json()["paths"]:
        assert path in answer.text

    shown_under = httpx.URL("https://gateway.example/katib/")

    assert shown_under.join(http.get("/").headers["location"]) == "https://gateway.example/katib/docs"
    assert 'href="openapi.json"' in http.get("/docs").text


def test_a_slash_too_many_is_another_route_and_no_redirection(http: httpx.Client) -> None:
    """The server cannot know under which name and path it is reached."""
    answer = http.get("/api/v1/experiments/")

    assert (answer.status_code, answer.json()["reason"]) == (404, "NoSuchRoute")


@pytest.mark.parametrize("follow", [False, True])
def test_output_that_cannot_be_read_is_a_problem_and_no_broken_stream(
    http: httpx.Client, service: MemoryTuningService, monkeypatch: pytest.MonkeyPatch, follow: bool, golden: Golden
) -> None:
    def fail(*_args: object, **_options: object) -> Iterator[bytes]:
        raise NotFoundError("demo-0000 has no output yet")
        yield

    monkeypatch.setattr(service, "_on_logs", fail)
    answer = http.get(f"/api/v1/namespaces/default/trials/demo-0000/logs?follow={follow}")

    assert answer.status_code == 404
    golden(answer.json()["detail"])


def test_every_reference_of_the_description_resolves(http: httpx.Client) -> None:
    text = http.get("/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]

    assert {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]} <= set(schemas)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        pytest.param("/api/v1/namespaces/default/experiments", "GET, POST", id="two-routes"),
        pytest.param("/api/v1/namespaces/default/experiments/demo", "DELETE, GET, PATCH", id="deletion"),
        pytest.param("/healthz", "GET", id="one-route"),
    ],
)
def test_a_refused_method_is_answered_with_all_that_the_path_knows(http: httpx.Client, path: str, methods: str) -> None:
    answer = http.put(path)

    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_a_source_that_is_too_long_for_a_path_is_only_a_name(http: httpx.Client) -> None:
    answer = http.post(
        "/api/v1/validate",
        params={"source": "0" * 4096},
        content=document("other"),
        headers={"content-type": "application/json"},
    )

    assert answer.status_code == 200


def test_the_description_of_a_body_is_the_experiment_with_its_fields(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()
    body = described["paths"]["/api/v1/experiments"]["post"]["requestBody"]["content"]["application/yaml"]["schema"]

    assert body == {"$ref": "#/components/schemas/NewExperiment"}
    assert "trialTemplate" in described["components"]["schemas"]["ExperimentSpec"]["properties"]
    assert "x-kind" not in str(described)


def test_the_description_names_each_schema_once_and_says_how_to_sign_in(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()
    titles = Counter(schema["title"] for schema in described["components"]["schemas"].values())
    schemes = described["components"]["securitySchemes"]

    assert [title for title, count in titles.items() if count > 1] == []
    assert {(one["type"], one["scheme"]) for one in schemes.values()} == {("http", "bearer"), ("http", "basic")}
    assert described["security"] == [{name: []} for name in schemes]
    assert described["paths"]["/healthz"]["get"]["security"] == []
    assert described["servers"][0]["url"].format(host="127.0.0.1", port=8765) == DEFAULT_SERVER


def test_readiness_and_counts_are_those_of_the_pages_given(http: httpx.Client) -> None:
    pages = {
        "/readyz": lambda: (503, "application/json", b'{"database": false}'),
        "/metrics": lambda: (200, "text/plain", b"katib_trials_current 1"),
    }
    with Server(MemoryTuningService(), host="127.0.0.1", port=0, pages=pages) as server:
        ready, counts = (httpx.get(server.url + path, trust_env=False) for path in pages)

    assert (ready.status_code, ready.json()) == (503, {"database": False})
    assert counts.text == "katib_trials_current 1"

    assert http.get("/readyz").status_code == 200
    assert http.get("/metrics").json()["reason"] == "NotFound"
