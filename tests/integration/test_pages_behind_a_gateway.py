"""The page of two users with a namespace each: nobody sees or does what the API server would refuse.

Every route of the page is asked, those that are added later too.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT
from katib.engine.runtime.objects import Key
from tests.support.api_server import ApiServer
from tests.support.cluster import ClusterWorld, server_world
from tests.support.gateway import ALICE, BOB, RIVALS, TEAM, VIEW_RULES, Rest, allowed, ended_demo, two_users
from tests.support.page_routes import address, page_paths
from tests.support.tuning import document
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    # When the server goes away, the client library drops the socket instead of closing it.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"),
]

WATCHING = [{**VIEW_RULES[0], "verbs": ["get", "list", "watch"]}]
PERSON = {"accept": "text/html", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-site": "none"}
QUERIES = {"trial": "demo-0000", "experiment": "demo", "experimentName": "demo", "trialName": "demo-0000"}
FIGURE = f"/katib/data/experiments/{TEAM}/demo/figures/history"
LIVE = f"/katib/data/experiments/{TEAM}/demo/live"

_numbers = itertools.count()


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


@pytest.fixture
def carol() -> str:
    """Somebody without rights whom nobody has asked about yet, so that no answer is remembered."""
    return f"carol-of-the-page-{next(_numbers)}@example.com"


OF_PAGES = page_paths()
OF_AN_OBJECT = [path for path in OF_PAGES if "{namespace}" in path and not path.endswith("/file")]
OF_KATIB = sorted(
    path
    for path in OF_PAGES
    if re.search(r"/fetch_\w+/$", path) and path.split("/")[2] not in ("fetch_namespaces", "fetch_trial_templates")
)
FOR_EVERYBODY = {
    "/katib/open",
    "/katib/sign-in",
    "/katib/docs",
    "/katib/openapi.json",
    "/katib/api/v1/algorithms",
    "/katib/fetch_trial_templates",
    "/katib/fetch_trial_templates/",
}
OF_ALL = [path for path in OF_PAGES if "{namespace}" not in path and "fetch_" not in path]


def answer_of(rest: Rest, user: str, url: str, **request: Any) -> tuple[int, str]:
    """Return the status of an answer and the beginning of it; a stream has no end."""
    with rest.client(user) as client:
        client.timeout = httpx.Timeout(60, read=10)
        with client.stream("GET", url, **request) as answer:
            text = ""
            for chunk in answer.iter_text():
                text += chunk
                if answer.headers["content-type"].startswith("text/event-stream") and "event:" in text:
                    break
            return answer.status_code, text


def test_the_routes_of_the_page_are_known_to_these_tests() -> None:
    assert {"/katib/", "/katib/experiments/{namespace}/{name}", "/katib/data/experiments/{namespace}/{name}/live"} <= {
        *OF_AN_OBJECT,
        *OF_ALL,
    }
    assert len(OF_KATIB) == 8
    assert "/katib/api/v1/namespaces/{namespace}/experiments" in OF_AN_OBJECT


@pytest.mark.parametrize("path", OF_AN_OBJECT)
def test_who_lacks_the_right_is_refused_on_every_route(rest: Rest, demo: str, path: str) -> None:
    url = address(path, TEAM)
    allowed_answer, (status, text) = answer_of(rest, ALICE, url), answer_of(rest, BOB, url)

    assert allowed_answer[0] < 300, allowed_answer  # so that it is the right, and nothing else, that is missing
    assert status == 403
    assert re.search(rf"{BOB} may not \w+ it; add the rule .* in namespace {TEAM}", text)


@pytest.mark.parametrize("path", OF_AN_OBJECT)
def test_without_a_user_nothing_is_answered(rest: Rest, demo: str, path: str) -> None:
    answers = [httpx.get(rest.url + address(path, TEAM), headers=headers, trust_env=False) for headers in ({}, PERSON)]

    assert [answer.status_code for answer in answers] == [401, 401]
    assert not any("loss" in answer.text or "katib ui" in answer.text for answer in answers)


@pytest.mark.parametrize("path", OF_KATIB)
def test_katibs_own_paths_refuse_too(rest: Rest, demo: str, path: str) -> None:
    query = {"namespace": TEAM, **QUERIES, "suggestionName": "demo"}
    theirs, others = (rest.ask(user, "GET", path, params=query) for user in (ALICE, BOB))

    assert theirs.is_success, theirs.text
    assert others.status_code == 403
    assert f"{BOB} may not" in others.json()["detail"]


@pytest.mark.parametrize("path", sorted(set(OF_ALL) - FOR_EVERYBODY))
def test_what_is_about_all_namespaces_holds_those_of_the_user(
    rest: Rest, world: ClusterWorld, demo: str, path: str
) -> None:
    status, text = answer_of(rest, BOB, address(path, TEAM))

    assert status < 500, text
    assert TEAM not in text.replace("steam", "")
    assert "demo-0" not in text


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("compare", {"experiment": f"{TEAM}/demo", "trial": f"{TEAM}/demo-0000"}),
        ("data/compare/history", {"experiment": [f"{TEAM}/demo", f"{TEAM}/second-demo"]}),
        ("data/compare/curves", {"trial": f"{TEAM}/demo-0000", "metric": "loss"}),
        ("data/compare/found", {"text": "demo"}),
        ("new", {"from": f"{TEAM}/demo"}),
        ("data/list", {"namespace": TEAM}),
        ("health", {}),
    ],
)
def test_what_a_query_names_is_asked_about_too(
    rest: Rest, world: ClusterWorld, demo: str, path: str, query: dict[str, Any]
) -> None:
    """What Bob may not read is left out or refused, whether it is there or not."""
    if not any(experiment.name == "second-demo" for experiment in world.service.experiments(TEAM)):
        world.service.submit(document("second-demo", namespace=TEAM), source="second.yaml")
        world.stand_in.play(TEAM, "second-demo")
    ghost = json.loads(json.dumps(query).replace("demo", "ghost"))
    theirs, there, not_there = (
        rest.ask(user, "GET", f"/katib/{path}", params=asked)
        for user, asked in ((ALICE, query), (BOB, query), (BOB, ghost))
    )

    assert theirs.is_success, theirs.text
    assert there.status_code == not_there.status_code
    assert without_times(there.text.replace("demo", "ghost")) == without_times(not_there.text)


def without_times(page: str) -> str:
    """Return a page without the moment at which it was made."""
    return re.sub(r"<time[^>]*>[^<]*</time>", "", page)


def test_the_list_shows_everybody_their_own(rest: Rest, world: ClusterWorld, demo: str) -> None:
    world.service.submit(document("theirs", namespace=RIVALS), source="theirs.yaml")
    try:
        pages = {user: rest.ask(user, "GET", "/katib/", headers=PERSON).text for user in (ALICE, BOB)}
        lists = {user: rest.ask(user, "GET", "/katib/api/v1/experiments").text for user in (ALICE, BOB)}
    finally:
        world.service.delete(RIVALS, "theirs")

    for shown in (pages, lists):
        assert "demo" in shown[ALICE]
        assert "theirs" not in shown[ALICE]
        assert "theirs" in shown[BOB]
        assert "demo" not in shown[BOB]


def test_a_person_who_is_refused_reads_why_and_not_what(rest: Rest, demo: str) -> None:
    there, ghost = (
        rest.ask(BOB, "GET", f"/katib/experiments/{TEAM}/{name}", headers=PERSON) for name in ("demo", "ghost")
    )

    assert (there.status_code, there.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert f"{BOB} may not get it" in there.text.replace("&#64;", "@")
    assert ghost.text.replace("ghost", "demo") == there.text


# --- tables and streams -----------------------------------------------------------------------------------------------


def test_a_table_that_one_user_filled_is_not_shown_to_another(
    carol: str, api_server: ApiServer, rest: Rest, demo: str
) -> None:
    """Carol may read the experiment, but not its trials, which Alice has just looked at."""
    only_experiments = [
        {"apiGroups": ["kubeflow.org"], "resources": ["experiments"], "verbs": ["get", "list", "watch"]}
    ]
    filled = rest.ask(ALICE, "GET", FIGURE)
    with allowed(api_server, TEAM, carol, only_experiments):
        refused = rest.ask(carol, "GET", FIGURE)

    assert filled.is_success
    assert refused.status_code == 403
    assert 'resources: ["trials"]' in refused.json()["detail"]


def test_a_table_is_not_shown_any_more_when_the_right_to_it_is_gone(
    carol: str, api_server: ApiServer, rest: Rest, demo: str
) -> None:
    with allowed(api_server, TEAM, carol, WATCHING):
        before = rest.ask(carol, "GET", FIGURE)
    assert before.is_success
    eventually(lambda: rest.ask(carol, "GET", FIGURE).status_code == 403, "the refusal")


def test_an_open_page_ends_when_the_right_is_taken_away(
    carol: str, api_server: ApiServer, rest: Rest, demo: str
) -> None:
    with rest.client(carol) as client:
        with allowed(api_server, TEAM, carol, WATCHING):
            answer = client.send(client.build_request("GET", LIVE), stream=True)
            lines = answer.iter_lines()
            assert next(line for line in lines if line.startswith("event")) == "event: change"
        rest_of_it = [line for line in lines if line and not line.startswith(":")]
        answer.close()

    assert rest_of_it[-2] == "event: problem"
    told = json.loads(rest_of_it[-1].removeprefix("data: "))
    assert (told["status"], told["reason"]) == (403, "Forbidden")
    assert carol in told["detail"]


def test_the_open_page_of_a_trial_ends_when_the_right_is_taken_away(
    carol: str, api_server: ApiServer, rest: Rest, world: ClusterWorld, demo: str
) -> None:
    world.service.submit(document("running", namespace=TEAM), source="running.yaml")
    experiment = world.stand_in.store.get(EXPERIMENT, Key(TEAM, "running"))
    world.stand_in.start_trial(experiment, "running-0000")
    try:
        with rest.client(carol) as client:
            with allowed(api_server, TEAM, carol, WATCHING):
                request = client.build_request("GET", f"/katib/data/trials/{TEAM}/running-0000/live")
                answer = client.send(request, stream=True)
                lines = answer.iter_lines()
                assert next(line for line in lines if line.startswith("event")) == "event: trial"
            rest_of_it = [line for line in lines if line and not line.startswith(":")]
            answer.close()
    finally:
        world.service.delete(TEAM, "running")

    assert rest_of_it[-2] == "event: problem"
    assert json.loads(rest_of_it[-1].removeprefix("data: "))["status"] == 403


def test_the_open_list_loses_what_its_reader_may_not_list_any_more(
    carol: str, api_server: ApiServer, rest: Rest, demo: str
) -> None:
    with rest.client(carol) as client:
        with allowed(api_server, TEAM, carol, WATCHING):
            answer = client.send(client.build_request("GET", "/katib/data/list/live"), stream=True)
            lines = answer.iter_lines()
            hello = next(line for line in lines if line.startswith("data"))
        rows = json.loads(next(line for line in lines if line.startswith("data")).removeprefix("data: "))
        answer.close()

    assert json.loads(hello.removeprefix("data: "))["total"] >= 1
    assert f"{TEAM}/demo" in rows["gone"]
    assert (rows["total"], rows["rows"]) == (0, {})


def test_an_open_page_shows_its_own_namespace_only(rest: Rest, world: ClusterWorld, demo: str) -> None:
    """An experiment of the same name elsewhere is another one."""
    world.service.submit(document("demo", namespace=RIVALS, trials=7), source="demo.yaml")
    try:
        _, text = answer_of(rest, BOB, f"/katib/data/experiments/{RIVALS}/demo/live")
    finally:
        world.service.delete(RIVALS, "demo")
    head = json.loads(text.partition("data: ")[2].partition("\n")[0])["experiment"]

    assert (head["namespace"], head["limit"], head["done"]) == (RIVALS, 7, 0)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_katibs_own_paths_write_nothing_for_who_may_not(rest: Rest, world: ClusterWorld, demo: str) -> None:
    place = {"updatedConfigMapNamespace": TEAM, "updatedConfigMapName": "plans", "updatedConfigMapPath": "a"}
    labels = {"katib.kubeflow.org/component": "trial-templates"}
    offered = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "plans", "namespace": TEAM, "labels": labels},
    }
    world.stand_in.store.create({**offered, "data": {"a": "kind: Job"}})
    template = {**place, "updatedTemplateYaml": "kind: Forged"}
    try:
        answers = [
            rest.ask(
                BOB, "POST", "/katib/create_experiment/", json={"postData": json.loads(document("x", namespace=TEAM))}
            ),
            rest.ask(BOB, "DELETE", "/katib/delete_experiment/", params={"namespace": TEAM, "experimentName": "demo"}),
            rest.ask(BOB, "POST", "/katib/add_template/", json=template),
            rest.ask(BOB, "POST", "/katib/edit_template/", json={**template, "configMapPath": "a"}),
            rest.ask(BOB, "POST", "/katib/delete_template/", json=place),
        ]
        kept = world.stand_in.store.get(CONFIG_MAP, Key(TEAM, "plans"))["data"]
        seen = {user: rest.ask(user, "GET", "/katib/fetch_trial_templates/").text for user in (ALICE, BOB)}
    finally:
        world.stand_in.store.delete(CONFIG_MAP, Key(TEAM, "plans"))

    assert [answer.status_code for answer in answers] == [403] * 5
    assert kept == {"a": "kind: Job"}
    assert ["plans" in seen[user] for user in (ALICE, BOB)] == [True, False]
    assert rest.ask(ALICE, "GET", f"/katib/experiments/{TEAM}/demo").is_success


def test_a_template_is_not_written_where_the_server_itself_may_not(
    carol: str, api_server: ApiServer, rest: Rest
) -> None:
    """The manifests let the server read ConfigMaps alone: what a user may do with them, kubectl does."""
    body = {
        "updatedConfigMapNamespace": RIVALS,
        "updatedConfigMapName": "mine",
        "updatedConfigMapPath": "a",
        "updatedTemplateYaml": "kind: Job",
    }
    writing = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}]
    with allowed(api_server, RIVALS, carol, writing):
        answer = rest.ask(carol, "POST", "/katib/add_template/", json=body)

    assert answer.status_code == 403
    assert "katib-server" in answer.json()["detail"]


def test_namespaces_are_those_that_a_user_may_know_of(carol: str, api_server: ApiServer, rest: Rest, demo: str) -> None:
    listing = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}]
    seen = {user: rest.ask(user, "GET", "/katib/fetch_namespaces").json() for user in (ALICE, BOB)}
    with allowed(api_server, "", carol, listing):
        everything = rest.ask(carol, "GET", "/katib/fetch_namespaces").json()

    assert TEAM in seen[ALICE]
    assert TEAM not in seen[BOB]
    assert {TEAM, RIVALS, "kube-system"} <= set(everything)
