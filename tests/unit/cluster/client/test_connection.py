"""What a connection makes of an API server's moods: a real server that answers as it is told."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.config.config_exception import ConfigException

from katib.errors import (
    AlreadyExistsError,
    Backoff,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KatibError,
    KindNotInstalledError,
    UnavailableError,
)
from katib.places.cluster.client import ApiConnection, RequestInfo, open_connection, request_info
from katib.places.cluster.client import connection as connection_module
from katib.places.cluster.client.configuration import ClusterAccess, way_of
from katib.places.cluster.client.stream import socket_of
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.unit.cluster.client.scripted_server import HANG_UP, Answer, ScriptedServer

JOBS = "/apis/batch/v1/namespaces/team/jobs"


def status(code: int, reason: str, message: str = "", **details: Any) -> Answer:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message or reason, "details": details}
    return Answer(code, body)


# --- configuration ----------------------------------------------------------------------------------------------------


def test_the_context_says_who_we_are_and_where(connection: ApiConnection, server: ScriptedServer) -> None:
    connection.request("GET", JOBS, query={"labelSelector": "a in (b,c)"})

    assert connection.namespace == "team"
    assert connection.host == server.url
    (asked,) = server.asked
    assert asked.authorization == "Bearer secret"
    assert asked.path == f"{JOBS}?labelSelector=a+in+%28b%2Cc%29"


def test_an_unknown_context_is_named_with_the_known_ones(server: ScriptedServer, tmp_path: Path) -> None:
    with refused("kubeconfig-context"):
        open_connection(server.kubeconfig(tmp_path), "there")


def test_a_missing_or_broken_kubeconfig_is_named(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "config").write_text("contexts: 7")

    with golden.raises(UnavailableError):
        open_connection(tmp_path / "nowhere")
    with refused("kubeconfig"):
        open_connection(tmp_path / "config")


def test_a_plugin_gives_the_token(server: ScriptedServer, tmp_path: Path) -> None:
    script = (
        'import json; print(json.dumps({"apiVersion": "%s", "kind": "ExecCredential", "status": {"token": "made"}}))'
    )
    version = "client.authentication.k8s.io/v1beta1"
    plugin = {"apiVersion": version, "command": sys.executable, "args": ["-c", script % version]}
    with open_connection(server.kubeconfig(tmp_path, user={"exec": plugin})) as connection:
        connection.request("GET", JOBS)

    assert server.asked[0].authorization == "Bearer made"


def test_a_refused_login_reads_the_credentials_again(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "RELOAD_SECONDS", 0.0)
    token = tmp_path / "token"
    token.write_text("old")
    with open_connection(server.kubeconfig(tmp_path, user={"tokenFile": str(token)})) as connection:
        token.write_text("new")
        server.script(status(401, "Unauthorized"), Answer(200, {"fine": True}))

        assert connection.request("GET", JOBS) == {"fine": True}

    assert [asked.authorization for asked in server.asked] == ["Bearer old", "Bearer new"]


def test_credentials_that_cannot_be_read_for_a_moment_are_an_outage_and_no_surprise(
    server: ScriptedServer, golden: Golden
) -> None:
    token: list[str] = []

    def read_token(configuration: Any) -> None:
        if not token:
            raise ConfigException("Token file exists but empty.")
        configuration.api_key["BearerToken"] = token[0]

    def load() -> client.Configuration:
        configuration = client.Configuration(host=server.url, api_key={"BearerToken": "old"})
        configuration.refresh_api_key_hook = read_token
        return configuration

    with ApiConnection(ClusterAccess(lambda: way_of(load()), load, "team")) as connection:
        with golden.raises(UnavailableError):
            connection.request("GET", JOBS)
        token.append("Bearer renewed")
        connection.request("GET", JOBS)

    assert [asked.authorization for asked in server.asked] == ["Bearer renewed"]


def test_a_controller_in_its_pod_does_without_the_package() -> None:
    code = "import sys, katib.places.cluster.controller; sys.exit('kubernetes' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_login_that_stays_refused_says_what_to_do(
    connection: ApiConnection, server: ScriptedServer, golden: Golden
) -> None:
    server.script(status(401, "Unauthorized"))

    with golden.raises(ForbiddenError):
        connection.request("GET", JOBS)


@pytest.mark.parametrize(
    ("code", "message"),
    [(500, "etcdserver: request is too large"), (413, "Request entity too large: limit is 3145728")],
    ids=["etcd", "api-server"],
)
def test_an_object_that_is_too_large_is_not_sent_again(
    connection: ApiConnection, server: ScriptedServer, code: int, message: str
) -> None:
    """However the server says it: no outage passes, and a user who waits for one would wait forever."""
    server.script(status(code, "InternalError", message))

    with refused("object-too-large"):
        connection.request("POST", JOBS, body={"much": "text"})

    assert len(server.asked) == 1


# --- trying again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504, HANG_UP], ids=str)
def test_a_request_is_sent_again_after_a_hiccup(connection: ApiConnection, server: ScriptedServer, code: int) -> None:
    server.script(Answer(code), Answer(200, {"fine": True}))

    assert connection.request("POST", JOBS, body={"a": 1}) == {"fine": True}
    assert [asked.body for asked in server.asked] == [{"a": 1}, {"a": 1}]


def test_creations_that_count_against_one_quota_give_way_to_each_other(
    connection: ApiConnection, server: ScriptedServer
) -> None:
    server.script(status(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "q"'), Answer(201))

    assert connection.request("POST", JOBS, body={}) == {}
    assert len(server.asked) == 2


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422], ids=str)
def test_a_refusal_is_not_asked_again(connection: ApiConnection, server: ScriptedServer, code: int) -> None:
    server.script(Answer(code))

    with pytest.raises(KatibError, match="jobs"):
        connection.request("PUT", f"{JOBS}/a", body={})
    assert len(server.asked) == 1


@pytest.mark.parametrize(("code", "doubtful"), [(429, 0), (500, 1), (504, 1), (HANG_UP, 1)], ids=str)
def test_doubt_is_reported_when_the_first_sending_may_have_taken_effect(
    connection: ApiConnection, server: ScriptedServer, code: int, doubtful: int
) -> None:
    server.script(Answer(code), Answer())
    doubts: list[None] = []

    connection.request("POST", JOBS, body={}, on_doubt=lambda: doubts.append(None))

    assert len(doubts) == doubtful


def test_the_server_is_believed_about_when_to_come_back(connection: ApiConnection, server: ScriptedServer) -> None:
    server.script(Answer(429, {}, {"Retry-After": "1"}), Answer())
    started = time.monotonic()
    connection.request("GET", JOBS)

    assert time.monotonic() - started >= 1


def test_a_long_wait_is_the_callers_to_make(connection: ApiConnection, server: ScriptedServer, golden: Golden) -> None:
    server.script(Answer(429, {}, {"Retry-After": "60"}))

    with golden.raises(UnavailableError):
        connection.request("GET", JOBS)
    assert len(server.asked) == 1


def test_an_overload_that_lasts_is_given_up(
    connection: ApiConnection, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr(connection_module, "BACKOFF", Backoff(0.01, 0.01))
    server.script(status(503, "ServiceUnavailable", "apiserver is\nshutting down"))

    with golden.raises(UnavailableError):
        connection.request("GET", JOBS)
    assert len(server.asked) == 5


def test_an_answer_that_is_no_json_blames_what_stands_between(
    connection: ApiConnection, server: ScriptedServer, golden: Golden
) -> None:
    server.script(Answer(200, b"<html>log in</html>"))

    with golden.raises(UnavailableError):
        connection.request("GET", JOBS)


def test_closing_ends_the_wait_for_another_attempt(connection: ApiConnection, server: ScriptedServer) -> None:
    server.script(Answer(503))
    connection.close()

    with pytest.raises(UnavailableError):
        connection.request("GET", JOBS)
    assert len(server.asked) == 1


def test_every_sending_is_reported_with_its_outcome(connection: ApiConnection, server: ScriptedServer) -> None:
    told: list[tuple[str, str, int]] = []
    connection.observe(lambda info, code: told.append((info.verb, info.resource, code)))
    connection.observe(lambda _info, _code: 1 / 0)  # a broken counter breaks nothing
    server.script(Answer(HANG_UP), Answer(503), Answer(200))
    connection.request("PUT", f"{JOBS}/a/status", body={})

    assert told == [("update", "jobs", 0), ("update", "jobs", 503), ("update", "jobs", 200)]


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_closed_before_it_is_read_keeps_no_socket(
    connection: ApiConnection, server: ScriptedServer
) -> None:
    server.script(Answer(200, {"watched": True}))
    stream = connection.stream(JOBS)
    held = socket_of(stream._response)
    assert held is not None

    stream.close()

    assert held.fileno() == -1
    assert list(stream.lines()) == []


def test_a_stream_is_read_by_lines(connection: ApiConnection, server: ScriptedServer) -> None:
    server.script(Answer(200, b"one\n\ntwo\nthree"))

    assert list(connection.stream("/log").lines()) == [b"one", b"", b"two", b"three"]


# --- meanings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        pytest.param(status(409, "AlreadyExists"), AlreadyExistsError, "exists; delete it", id="exists"),
        pytest.param(status(409, "Conflict"), ConflictError, "read it again", id="conflict"),
        pytest.param(status(410, "Expired", "too old"), ExpiredError, "too old; list again", id="expired"),
        pytest.param(Answer(404, b"404 page not found\n"), KindNotInstalledError, "install the kind", id="no path"),
        pytest.param(
            status(403, "Forbidden", 'jobs.batch is forbidden: User "eva" cannot create resource "jobs"'),
            ForbiddenError,
            r'eva may not create it; add the rule \{apiGroups: \["batch"\], resources: \["jobs"\], '
            r'verbs: \["create"\]\} in namespace team',
            id="rbac",
        ),
        pytest.param(
            status(403, "Forbidden", 'pods "a" is forbidden: exceeded quota: small, requested: cpu=2'),
            ForbiddenError,
            "exceeded quota: small",
            id="quota",
        ),
        pytest.param(
            Answer(400, {"kind": "Status", "message": 'admission webhook "v.k" denied the request: a: bad;\n fix it'}),
            InvalidError,
            'admission webhook "v.k" denied the request: a: bad; fix it',
            id="webhook",
        ),
    ],
)
def test_a_refusal_has_its_meaning(
    connection: ApiConnection, server: ScriptedServer, answer: Answer, error: type[Exception], words: str
) -> None:
    server.script(answer)

    with pytest.raises(error, match=words):
        connection.request("POST" if error is not ConflictError else "PUT", JOBS, body={})


def test_all_mistakes_are_reported_each_once_with_its_field(connection: ApiConnection, server: ScriptedServer) -> None:
    mistake = {"field": "spec.x", "message": "Required value", "reason": "FieldValueRequired"}
    causes = [mistake, mistake, {"field": "spec.y", "message": "Invalid value", "reason": "FieldValueInvalid"}]
    server.script(status(422, "Invalid", causes=causes))
    with pytest.raises(InvalidError) as caught:
        connection.request("POST", JOBS, body={})

    told = [(error.path, error.origin) for error in caught.value.errors]
    assert told == [("spec.x", "field-value-required"), ("spec.y", "field-value-invalid")]


def test_a_remedy_that_a_webhook_gives_is_the_only_one(connection: ApiConnection, server: ScriptedServer) -> None:
    cause = {"field": "metadata.namespace", "message": "it has no label; run: label it", "reason": "label-missing"}
    denial = 'admission webhook "v.k" denied the request: metadata.namespace: it has no label; run: label it'
    server.script(status(422, "Invalid", denial, causes=[cause]))
    with pytest.raises(InvalidError) as caught:
        connection.request("POST", JOBS, body={})

    (error,) = caught.value.errors
    assert (error.cause, error.remedy) == ("it has no label", "run: label it")


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/pods", {"watch": "true"}, ("watch", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/n/pods/p/log", {}, ("get", "", "v1", "pods", "log", "n", "p")),
        ("GET", "/api/v1/namespaces/n", {}, ("get", "", "v1", "namespaces", "", "", "n")),
        ("PUT", "/api/v1/namespaces/n/status", {}, ("update", "", "v1", "namespaces", "status", "", "n")),
        ("DELETE", f"{JOBS}", {}, ("deletecollection", "batch", "batch/v1", "jobs", "", "team", "")),
        ("PATCH", f"{JOBS}/a%2Fb", {}, ("patch", "batch", "batch/v1", "jobs", "", "team", "a/b")),
        ("GET", "/apis/batch/v1", {}, ("get", "", "", "", "", "", "")),
        ("GET", "/readyz", {}, ("get", "", "", "", "", "", "")),
    ],
)
def test_a_request_is_read_as_authorization_reads_it(
    method: str, path: str, query: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert request_info(method, path, query) == RequestInfo(*expected, path=path)
