"""Two users and two namespaces behind a gateway, and an API server that says what each of them may do.

The server works with just the rights that the manifests give it.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT
from katib.engine.runtime.objects import Key, Kind
from katib.service.tuning.users import USER_HEADER
from tests.support.api_server import ApiServer
from tests.support.cluster import ClusterWorld, server_world
from tests.support.gateway import (
    ALICE,
    BOB,
    RBAC,
    RIVALS,
    ROOT_USER,
    SERVER,
    TEAM,
    VIEW_RULES,
    Json,
    Rest,
    allowed,
    ended_demo,
    rules_of_the_server,
    serving,
    two_users,
)
from tests.support.networks import LossyProxy
from tests.support.page_routes import rest_paths
from tests.support.tuning import document
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    # When the server goes away, the client library drops the socket instead of closing it.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def world(api_server: ApiServer) -> Iterator[ClusterWorld]:
    with server_world(api_server) as made:
        api_server.namespace(RIVALS)
        yield made


@pytest.fixture(scope="module")
def rest(api_server: ApiServer, world: ClusterWorld) -> Iterator[Rest]:
    """The server with its two users."""
    del world
    with two_users(api_server) as served:
        yield served


@pytest.fixture
def demo(world: ClusterWorld) -> str:
    """The experiment `demo` of Alice's team, which ran to its end."""
    return ended_demo(world)


YAML = {"content-type": "application/yaml"}

# --- every route ------------------------------------------------------------------------------------------------------

ROUTES = sorted((method.upper(), path) for path, methods in rest_paths().items() for method in methods)
ADDING = ("POST", "/api/v1/namespaces/{namespace}/experiments/{name}/trials")
EDITING = ("PATCH", "/api/v1/namespaces/{namespace}/experiments/{name}")
SUSPENDING = ("PATCH", "/api/v1/namespaces/{namespace}/trials/{name}")
PAUSING = ("POST", "/api/v1/namespaces/{namespace}/experiments/{name}/pause")
CONFIRMING = ("POST", "/api/v1/namespaces/{namespace}/experiments/{name}/confirmation")
"""These are what an experiment that ran to its end refuses to everybody."""
OF_CALLERS: dict[tuple[str, str], Json] = {
    ("POST", "/api/v1/namespaces/{namespace}/experiments/{name}/ask"): {"requestId": "ask-1"},
    ("POST", "/api/v1/namespaces/{namespace}/experiments/{name}/ended-trials"): {"trials": []},
    ("POST", "/api/v1/namespaces/{namespace}/trials/{name}/report"): {"values": {"loss": 1}},
    ("POST", "/api/v1/namespaces/{namespace}/trials/{name}/tell"): {"values": {"loss": 1}},
    ("POST", "/api/v1/namespaces/{namespace}/trials/{name}/renew"): {},
}
JOB_ORIGINS = ("ask-template", "trial-of-a-job")
"""With these an experiment whose trials run as jobs refuses them to everybody."""
OF_OTHER_KINDS = ("POST", "/api/v1/runtimes")
"""This cluster does not serve them, and says so to everybody."""
FOR_EVERYBODY = {("GET", "/healthz"), ("GET", "/readyz")}
OF_NOTHING = {("GET", "/metrics")}
"""The controller counts, not this server; but that is nobody's business without a user either."""
FOR_EVERY_USER = {("GET", "/api/v1/algorithms"), ("GET", "/api/v1/experiments"), ("POST", "/api/v1/preview")}
"""The second one is filtered, and the third one says nothing but what is in the document, unless that refers to a
ConfigMap; both have tests of their own."""
OF_AN_OBJECT = [
    route for route in ROUTES if route not in FOR_EVERYBODY | FOR_EVERY_USER | OF_NOTHING | {OF_OTHER_KINDS}
]


def request_of(method: str, path: str, *, namespace: str = TEAM, name: str = "demo") -> tuple[str, Json]:
    """Return the path of a route's request and what goes with it."""
    target = f"{name}-0000" if "/trials/{name}" in path else name
    query: Json = {"timeoutSeconds": "0.3"} if path.endswith("/changes") else {}
    if path.endswith("/file"):
        query = {"path": "roc.png"}
    content: Json = {}
    if (method, path) == ADDING:
        content = {"json": {"parameterAssignments": [{"name": "x", "value": "0.5"}]}}
    elif (method, path) == EDITING:
        content = {"json": {"maxTrialCount": 12}}
    elif (method, path) == SUSPENDING:
        content = {"json": {"suspended": True}}
    elif (method, path) == PAUSING:
        content = {"json": {"paused": True}}
    elif (method, path) == CONFIRMING:
        content = {"json": {"top": 1}}
    elif (method, path) in OF_CALLERS:
        content = {"json": OF_CALLERS[method, path]}
    elif method == "POST":
        content = {"content": document("new", namespace=namespace), "headers": YAML}
    return path.format(namespace=namespace, name=target), {"params": query, **content}


@pytest.mark.parametrize(("method", "path"), OF_AN_OBJECT, ids=str)
def test_who_lacks_the_right_is_refused_on_every_route(rest: Rest, demo: str, method: str, path: str) -> None:
    url, request = request_of(method, path)
    answer = rest.ask(BOB, method, url, **request)
    body = answer.json()

    assert (answer.status_code, body["reason"]) == (403, "Forbidden")
    assert answer.headers["content-type"] == "application/problem+json"
    assert re.search(
        rf"{BOB} may not \w+ it; add the rule .* in namespace {TEAM} to a role of that user", body["detail"]
    )


@pytest.mark.parametrize(("method", "path"), OF_AN_OBJECT, ids=str)
def test_a_refusal_does_not_tell_whether_the_object_is_there(rest: Rest, demo: str, method: str, path: str) -> None:
    url, request = request_of(method, path)
    ghost_url, _ = request_of(method, path, name="ghost")
    there, ghost = rest.ask(BOB, method, url, **request).json(), rest.ask(BOB, method, ghost_url, **request).json()

    assert {**ghost, "detail": ghost["detail"].replace("ghost", "demo")} == there


@pytest.mark.parametrize(("method", "path"), OF_AN_OBJECT, ids=str)
def test_who_has_the_right_is_answered_on_every_route(
    rest: Rest, world: ClusterWorld, demo: str, method: str, path: str
) -> None:
    if method == "DELETE":
        world.service.submit(document("doomed", namespace=TEAM), source="doomed.yaml")
    url, request = request_of(method, path, name="doomed" if method == "DELETE" else demo)
    answer = rest.ask(ALICE, method, url, **request)

    has_ended = (method, path) in (ADDING, EDITING, SUSPENDING, PAUSING) and "has ended" in answer.text
    runs_as_job = (method, path) in OF_CALLERS and answer.json()["errors"][0]["origin"] in JOB_ORIGINS
    has_no_files = path.endswith("/file") and "has no file" in answer.text  # here they go with the pod
    assert answer.is_success or has_ended or runs_as_job or has_no_files, answer.text


def test_who_may_edit_an_experiment_changes_and_stops_it_with_the_rights_of_the_manifests(
    rest: Rest, world: ClusterWorld
) -> None:
    world.service.submit(document("edited", namespace=TEAM), source="edited.yaml")
    path = f"/api/v1/namespaces/{TEAM}/experiments/edited"
    try:
        answers = [rest.ask(ALICE, "PATCH", path, json=edit) for edit in ({"maxTrialCount": 12}, {"stopped": True})]
        refused = rest.ask(BOB, "PATCH", path, json={"stopped": False})
        stored = rest.ask(ALICE, "GET", path).json()
    finally:
        world.service.delete(TEAM, "edited")

    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    assert refused.status_code == 403
    assert stored["spec"]["maxTrialCount"] == 12
    assert stored["metadata"]["annotations"]["katib.kubeflow.org/stopped"] == "true"


def test_a_user_who_may_patch_jobs_and_trials_suspends_a_trial_with_the_rights_of_the_manifests(
    carol: str, api_server: ApiServer, rest: Rest, world: ClusterWorld
) -> None:
    world.service.submit(document("held", namespace=TEAM), source="held.yaml")
    trial = world.stand_in.start_trial(world.stand_in.store.get(EXPERIMENT, Key(TEAM, "held")), "held-0000")
    owner = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Trial",
        "name": "held-0000",
        "uid": trial["metadata"]["uid"],
    }
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    metadata = {"name": "held-0000", "namespace": TEAM, "ownerReferences": [owner]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}
    world.stand_in.store.create(job)
    path = f"/api/v1/namespaces/{TEAM}/trials/held-0000"
    rights = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["get", "patch"]}
        for group, resource in (("batch", "jobs"), ("kubeflow.org", "trials"))
    ]
    try:
        refused = rest.ask(ALICE, "PATCH", path, json={"suspended": True})
        with allowed(api_server, TEAM, carol, [*VIEW_RULES, *rights]):
            answer = rest.ask(carol, "PATCH", path, json={"suspended": True})
        stored = world.stand_in.store.get(Kind("batch/v1", "Job"), Key(TEAM, "held-0000"))
    finally:
        world.service.delete(TEAM, "held")

    assert refused.status_code == 403
    assert rule("batch", "jobs", "get") in refused.json()["detail"]
    assert answer.is_success, answer.text
    assert stored["spec"]["suspend"] is True


@pytest.mark.parametrize(("method", "path"), [r for r in ROUTES if r not in FOR_EVERYBODY], ids=str)
def test_without_a_user_nothing_is_answered(rest: Rest, method: str, path: str) -> None:
    url, request = request_of(method, path)
    answer = httpx.request(method, rest.url + url, trust_env=False, **request)

    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")


# --- what a right is about --------------------------------------------------------------------------------------------

_numbers = itertools.count()


@pytest.fixture
def carol() -> str:
    """Somebody without rights whom nobody has asked about yet, so that no answer is remembered."""
    return f"carol-{next(_numbers)}@example.com"


LOGS = f"/api/v1/namespaces/{TEAM}/trials/demo-0000/logs"
EVENTS = f"/api/v1/namespaces/{TEAM}/experiments/demo/events"
WHY = f"/api/v1/namespaces/{TEAM}/why/demo"


def rule(group: str, resource: str, verb: str) -> str:
    return f'{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}} in namespace {TEAM}'


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        pytest.param(LOGS, rule("", "pods", "list"), id="logs"),
        pytest.param(f"{LOGS}?follow=true", rule("", "pods", "list"), id="followed-logs"),
        pytest.param(EVENTS, rule("", "events", "list"), id="events"),
        pytest.param(f"/api/v1/namespaces/{TEAM}/trials/demo-0000/events", rule("", "events", "list"), id="of-trial"),
    ],
)
def test_who_may_see_experiments_does_not_see_pods_and_events_with_them(
    carol: str, api_server: ApiServer, rest: Rest, demo: str, path: str, missing: str
) -> None:
    with allowed(api_server, TEAM, carol, VIEW_RULES):
        answer = rest.ask(carol, "GET", path)

    assert answer.status_code == 403
    assert missing in answer.json()["detail"]


def test_the_log_of_a_pod_is_a_right_of_its_own(carol: str, api_server: ApiServer, rest: Rest, demo: str) -> None:
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    with allowed(api_server, TEAM, carol, [*VIEW_RULES, pods]):
        answer = rest.ask(carol, "GET", LOGS)

    assert answer.status_code == 403
    assert rule("", "pods/log", "get") in answer.json()["detail"]


def test_an_explanation_leaves_out_what_its_reader_may_not_see(
    carol: str, api_server: ApiServer, rest: Rest, world: ClusterWorld
) -> None:
    world.service.submit(document("stuck", namespace=TEAM), source="stuck.yaml")
    experiment = world.stand_in.store.get(EXPERIMENT, Key(TEAM, "stuck"))
    trial = world.stand_in.start_trial(experiment, "stuck-0000")
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    world.stand_in.add_pod(trial, phase="Pending", containerStatuses=[_waiting(waiting)])
    with allowed(api_server, TEAM, carol, VIEW_RULES):
        told = [rest.ask(user, "GET", WHY.replace("demo", "stuck")).text for user in (ALICE, carol)]

    assert ["cannot be pulled" in text for text in told] == [True, False]


def _waiting(reason: Json) -> Json:
    state = {"waiting": reason}
    return {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def test_who_may_only_read_can_neither_submit_nor_delete(
    carol: str, api_server: ApiServer, rest: Rest, demo: str
) -> None:
    path = f"/api/v1/namespaces/{TEAM}/experiments"
    with allowed(api_server, TEAM, carol, [{**VIEW_RULES[0], "verbs": ["get", "list", "watch"]}]):
        answers = [
            rest.ask(carol, "POST", path, content=document("carols", namespace=TEAM), headers=YAML),
            rest.ask(carol, "DELETE", f"{path}/demo"),
        ]
        still_there = rest.ask(carol, "GET", f"{path}/demo")

    assert [answer.status_code for answer in answers] == [403, 403]
    assert "may not create it" in answers[0].json()["detail"]
    assert "may not delete it" in answers[1].json()["detail"]
    assert still_there.is_success


@pytest.mark.parametrize("route", ["validate", "preview"])
def test_a_template_in_a_config_map_of_others_is_not_read(rest: Rest, world: ClusterWorld, route: str) -> None:
    secret = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plans", "namespace": TEAM}}
    world.stand_in.store.create({**secret, "data": {"takeover.yaml": "kind: Job"}})
    experiment = json.loads(document("spy", namespace=RIVALS))
    template = experiment["spec"]["trialTemplate"]
    del template["trialSpec"]
    template["configMap"] = {"configMapName": "plans", "configMapNamespace": TEAM, "templatePath": "x"}
    try:
        answer = rest.ask(BOB, "POST", f"/api/v1/{route}", content=json.dumps(experiment), headers=YAML)
    finally:
        world.stand_in.store.delete(CONFIG_MAP, Key(TEAM, "plans"))

    assert answer.status_code == 403
    assert "takeover" not in answer.text


def test_a_right_by_a_group_of_the_header_counts_only_where_the_header_is_configured(
    api_server: ApiServer, rest: Rest, demo: str
) -> None:
    path = f"/api/v1/namespaces/{TEAM}/experiments/demo"
    with httpx.Client(base_url=rest.url, trust_env=False) as client:
        answer = client.get(path, headers={USER_HEADER: BOB, "kubeflow-groups": "system:masters"})

    assert answer.status_code == 403


def test_a_user_is_in_the_groups_that_kubernetes_gives(api_server: ApiServer, rest: Rest, demo: str) -> None:
    account = "system:serviceaccount:rivals:robot"
    place = f"{RBAC}/namespaces/{TEAM}"
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts:rivals"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robots"}
    api_server.create(f"{place}/roles", {"metadata": {"name": "robots"}, "rules": VIEW_RULES})
    body = {"metadata": {"name": "robots"}, "roleRef": reference, "subjects": [group]}
    api_server.create(f"{place}/rolebindings", body)
    try:
        eventually(lambda: rest.ask(account, "GET", f"/api/v1/namespaces/{TEAM}/experiments/demo").is_success)
    finally:
        api_server.admin.request("DELETE", f"{place}/rolebindings/robots")
        api_server.admin.request("DELETE", f"{place}/roles/robots")


# --- lists ------------------------------------------------------------------------------------------------------------


def names_for(rest: Rest, user: str) -> list[str]:
    return [obj["metadata"]["name"] for obj in rest.ask(user, "GET", "/api/v1/experiments").json()["items"]]


def test_a_list_of_all_namespaces_holds_those_that_the_user_may_list(
    carol: str, api_server: ApiServer, rest: Rest, world: ClusterWorld, demo: str
) -> None:
    world.service.submit(document("rival", namespace=RIVALS), source="rival.yaml")
    with allowed(api_server, "", ROOT_USER, VIEW_RULES):
        seen = {user: names_for(rest, user) for user in (ALICE, BOB, carol, ROOT_USER)}

    assert "demo" in seen[ALICE]
    assert "rival" not in seen[ALICE]
    assert seen[BOB] == ["rival"]
    assert seen[carol] == []
    assert {"demo", "rival"} <= set(seen[ROOT_USER])


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_ends_when_the_right_is_taken_away(carol: str, api_server: ApiServer, rest: Rest, demo: str) -> None:
    path = f"/api/v1/namespaces/{TEAM}/experiments/demo/changes"
    watching = [{**VIEW_RULES[0], "verbs": ["get", "list", "watch"]}]
    with rest.client(carol) as client:
        with allowed(api_server, TEAM, carol, watching):
            answer = client.send(client.build_request("GET", path), stream=True)
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith("event")) == "event: ADDED"
        rest_of_it = [line for line in lines if line]
        answer.close()

    assert rest_of_it[-2] == "event: problem"
    told = json.loads(rest_of_it[-1].removeprefix("data: "))
    assert (told["status"], told["reason"]) == (403, "Forbidden")
    assert carol in told["detail"]


def test_a_stream_is_about_its_own_namespace_only(rest: Rest, world: ClusterWorld, demo: str) -> None:
    """Everything that happens goes through one API server, also what happens to an experiment of the same name."""
    path = f"/api/v1/namespaces/{RIVALS}/experiments/demo/changes?timeoutSeconds=1"
    world.service.submit(document("demo", namespace=RIVALS), source="demo.yaml")
    try:
        with rest.client(BOB) as client, client.stream("GET", path) as answer:
            lines = answer.iter_lines()
            data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]
    finally:
        world.service.delete(RIVALS, "demo")

    assert {change["object"]["metadata"]["namespace"] for change in data} == {RIVALS}


# --- outages and mistakes ---------------------------------------------------------------------------------------------


def test_an_api_server_that_cannot_be_asked_refuses(
    api_server: ApiServer, rest: Rest, demo: str, tmp_path: Path
) -> None:
    """Also what was permitted a moment ago."""
    del rest  # its rights
    path = f"/api/v1/namespaces/{TEAM}/experiments/demo"
    text = api_server.user(SERVER, rules_of_the_server()).read_text()
    proxy = LossyProxy(urlsplit(api_server.admin.host).port or 443)
    (tmp_path / "config").write_text(text.replace(api_server.admin.host, f"https://127.0.0.1:{proxy.port}"))
    try:
        with serving(tmp_path / "config", "127.0.0.1:1") as cut_off:
            assert cut_off.ask(ALICE, "GET", path).is_success
            proxy.hang_up()
            eventually(lambda: cut_off.ask(ALICE, "GET", path).status_code == 503, "the refusal")
            answer = cut_off.ask(ALICE, "GET", path)
    finally:
        proxy.close()

    assert (answer.status_code, answer.json()["reason"]) == (503, "Unavailable")
    assert answer.headers["retry-after"]
    assert "subjectaccessreviews" in answer.json()["detail"]


def test_a_server_that_may_not_ask_refuses_and_names_the_right(api_server: ApiServer, rest: Rest, demo: str) -> None:
    name = "katib-server-unasked"
    kubeconfig = api_server.user(name, rules_of_the_server()[:-1])
    try:
        with serving(kubeconfig, "127.0.0.1:1") as unasked:
            answer = unasked.ask(ALICE, "GET", f"/api/v1/namespaces/{TEAM}/experiments/demo")
    finally:
        api_server.forget_user(name)

    assert answer.status_code == 503
    assert 'resources: ["subjectaccessreviews"], verbs: ["create"]' in answer.json()["detail"]


def test_every_write_is_logged_with_its_user(rest: Rest, world: ClusterWorld, caplog: pytest.LogCaptureFixture) -> None:
    path = f"/api/v1/namespaces/{TEAM}/experiments"
    with caplog.at_level(logging.INFO, logger="katib.audit"):
        rest.ask(ALICE, "POST", "/api/v1/validate", content=document("noted", namespace=TEAM), headers=YAML)
        rest.ask(ALICE, "POST", path, content=document("noted"), headers=YAML)
        rest.ask(ALICE, "PATCH", f"{path}/noted", json={"maxTrialCount": 12})
        rest.ask(ALICE, "DELETE", f"{path}/noted")
    noted = [(r.msg, r.user, r.verb, r.object) for r in caplog.records if r.name == "katib.audit"]  # type: ignore[attr-defined]

    assert noted == [
        ("Wrote for a user", ALICE, "create", f"Experiment {TEAM}/noted"),
        ("Wrote for a user", ALICE, "patch", f"Experiment {TEAM}/noted"),
        ("Wrote for a user", ALICE, "delete", f"Experiment {TEAM}/noted"),
    ]


def test_a_write_that_is_refused_is_logged_too(
    carol: str, api_server: ApiServer, rest: Rest, world: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"/api/v1/namespaces/{TEAM}/experiments"
    with allowed(api_server, TEAM, carol, VIEW_RULES), caplog.at_level(logging.INFO, logger="katib.audit"):
        rest.ask(carol, "POST", path, content=document("forged"), headers=YAML)

    ((message, user, verb),) = [(r.msg, r.user, r.verb) for r in caplog.records if r.name == "katib.audit"]  # type: ignore[attr-defined]
    assert (message, user, verb) == ("Refused to write for a user", carol, "create")


# --- the command ------------------------------------------------------------------------------------------------------


RUN_KATIB = "from katib.doors.cli import main; raise SystemExit(main())"


def test_the_command_waits_for_an_api_server_that_is_away(api_server: ApiServer, rest: Rest, tmp_path: Path) -> None:
    del rest  # its rights
    kubeconfig = api_server.user(SERVER, rules_of_the_server())
    command = [sys.executable, "-c", RUN_KATIB, "serve", "--cluster", "--gateway", "--port", "0"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
    api_server.stop()
    processes = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    stopped, process = processes
    try:
        said = [line.stderr.readline() for line in processes if line.stderr]
        stopped.terminate()
        stopped.communicate(timeout=60)
    finally:
        api_server.start()
    banner = process.stdout.readline() if process.stdout else ""
    process.terminate()
    _, errors = process.communicate(timeout=180)

    assert stopped.returncode == 0
    assert all("Waiting for the API server" in line for line in said)
    assert "katib listens on" in banner, errors


def test_the_command_serves_users_and_tells_who_wrote_what(
    api_server: ApiServer, rest: Rest, demo: str, tmp_path: Path
) -> None:
    """As the manifests start it, in a process of its own."""
    del rest  # its rights
    kubeconfig = api_server.user(SERVER, rules_of_the_server())
    command = [sys.executable, "-c", RUN_KATIB, "serve", "--cluster", "--gateway", "--port", "0"]
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "USERID_HEADER": "x-user",
        "USERID_PREFIX": "dex:",
        "PYTHONUNBUFFERED": "1",
    }
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            banner = process.stdout.readline()
            found = re.search(r"http://[^ ]+", banner)
            assert found is not None, banner
            path = f"{found[0]}/api/v1/namespaces/{TEAM}/experiments"
            answers = [
                httpx.get(f"{path}/demo", headers={"x-user": f"dex:{user}"}, trust_env=False, timeout=60).status_code
                for user in (ALICE, BOB)
            ]
            headers = {**YAML, "x-user": f"dex:{ALICE}"}
            content = document("by-command")
            created = httpx.post(path, content=content, headers=headers, trust_env=False, timeout=60).status_code
        finally:
            process.terminate()
            _, err = process.communicate(timeout=180)

    assert "for the users that x-user names" in banner
    assert (answers, created) == ([200, 403], 201)
    assert re.search(
        rf"katib.audit: Wrote for a user user={ALICE} verb=create object=Experiment {TEAM}/by-command", err
    )
    assert "Traceback" not in err
