"""The Kubernetes API of one machine, request by request. The engine is open, and its controllers rest."""

from __future__ import annotations

import json
import re
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from katib.doors.kube_api.kubeconfig import line_to_copy
from katib.doors.kube_api.server import KubernetesServer
from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import Kind
from katib.engine.stores.event_queue import EventSubject
from katib.engine.stores.sql import SqlStore
from katib.model.names import EXPERIMENT_INTERRUPTED
from katib.service.tuning.object_home import ObjectHome
from tests.support.experiments import an_experiment
from tests.support.kube import (
    CONFIG_MAPS,
    EXPERIMENTS,
    TOKEN,
    TRIALS,
    World,
    authority_of,
    client_of,
    config_map,
    kube_world,
    lines_of,
)
from tests.support.object_stores import AnyObject
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
MERGE = {"content-type": "application/merge-patch+json"}
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}
GONE = "9999999"
"""A revision of the future."""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kube_world(tmp_path_factory.mktemp("data"), starts=False) as made:
        yield made


@pytest.fixture
def http(world: World) -> Iterator[httpx.Client]:
    yield world.http
    for path in (EXPERIMENTS, CONFIG_MAPS):
        world.http.delete(path)


def demo(name: str = "demo", namespace: str = "default", **spec: Any) -> Json:
    return an_experiment(name=name, namespace=namespace, **spec)


def created(http: httpx.Client, path: str, obj: Json, **parameters: str) -> Json:
    answer = http.post(path, json=obj, params=parameters)
    assert answer.status_code == 201, answer.text
    found: Json = answer.json()
    return found


def trial_of(world: World, name: str, **labels: str) -> Json:
    """Store a trial as the controllers do."""
    owner = world.http.get(f"{EXPERIMENTS}/demo").json()
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": "Experiment",
        "name": "demo",
        "uid": owner["metadata"]["uid"],
    }
    metadata = {"name": name, "namespace": "default", "labels": labels, "ownerReferences": [reference]}
    trial = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "metadata": metadata, "spec": {}}
    return dict(world.engine.objects.objects.create(trial))


def test_the_kubeconfig_leads_to_the_server_and_is_for_its_owner_alone(world: World) -> None:
    path = world.server.kubeconfig

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert line_to_copy(path.parent) == f"export KUBECONFIG={path}"
    assert f"server: {world.server.url}" in path.read_text()
    assert f"token: {TOKEN}" in path.read_text()


def test_a_restart_keeps_port_and_certificate_so_that_copies_stay_good(world: World, tmp_path: Path) -> None:
    starts = []
    for _ in range(2):
        with KubernetesServer(world.engine.objects, tmp_path, host="127.0.0.1", token=TOKEN) as server:
            starts.append((server.url, server.kubeconfig.read_text()))

    assert starts[0] == starts[1]


@pytest.mark.parametrize("token", ["none", "wrong"])
def test_without_the_token_nothing_is_answered_but_probes(world: World, token: str) -> None:
    with client_of(world.server, token) as stranger:
        refused = stranger.get("/api")

        assert refused.status_code == 401
        assert (refused.json()["kind"], refused.json()["reason"]) == ("Status", "Unauthorized")
        assert stranger.get("/healthz").text == "ok"


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_probes_answer_ok(http: httpx.Client, path: str) -> None:
    assert http.get(path).text == "ok"


def test_discovery_says_the_same_in_both_forms(http: httpx.Client) -> None:
    aggregated = {
        (group["metadata"]["name"], version["version"], resource["resource"])
        for path in ("/api", "/apis")
        for group in http.get(
            path, headers={"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
        ).json()["items"]
        for version in group["versions"]
        for resource in version["resources"]
    }
    groups = {group["name"]: [v["version"] for v in group["versions"]] for group in http.get("/apis").json()["groups"]}
    listed = {
        (group, version, resource["name"])
        for group, versions in {"": ["v1"], **groups}.items()
        for version in versions
        for resource in http.get(f"/apis/{group}/{version}" if group else "/api/v1").json()["resources"]
        if "/" not in resource["name"]
    }

    assert aggregated == listed
    assert ("kubeflow.org", "v1beta1", "experiments") in listed
    assert groups["kubeflow.org"][0] == "v1beta1"


def test_an_experiment_is_admitted_by_the_gate_with_defaults_and_all_errors(http: httpx.Client) -> None:
    stored = created(http, EXPERIMENTS, demo(parallelTrialCount=None))
    wrong = demo("wrong")
    wrong["spec"]["objective"]["type"] = "best"
    wrong["spec"]["maxTrialCount"] = -1
    refused = http.post(EXPERIMENTS, json=wrong).json()
    again = http.post(EXPERIMENTS, json=demo())

    assert stored["spec"]["parallelTrialCount"] == 3
    assert (refused["code"], refused["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in refused["details"]["causes"]} >= {"spec.objective.type", "spec.maxTrialCount"}
    assert refused["details"]["kind"] == "Experiment"
    assert (again.status_code, again.json()["reason"]) == (409, "AlreadyExists")
    assert again.json()["message"] == 'experiments.kubeflow.org "demo" already exists'


@pytest.mark.parametrize(
    ("validation", "code", "warned"),
    [("Strict", 400, False), ("Warn", 201, True), ("Ignore", 201, False), ("", 201, True)],
)
def test_unknown_fields_are_refused_named_or_dropped(
    http: httpx.Client, validation: str, code: int, *, warned: bool
) -> None:
    obj = demo()
    obj["spec"]["paralelTrialCount"] = 2
    answer = http.post(EXPERIMENTS, json=obj, params={"fieldValidation": validation})

    assert answer.status_code == code
    assert ('unknown field \\"spec.paralelTrialCount\\"' in answer.headers.get("warning", "")) is warned
    assert code == 400 or "paralelTrialCount" not in answer.json()["spec"]


def test_a_generated_name_is_unlike_others(http: httpx.Client) -> None:
    obj = config_map("")
    obj["metadata"] = {"generateName": "many-"}
    names = {created(http, CONFIG_MAPS, obj)["metadata"]["name"] for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("many-") for name in names)


def test_a_dry_run_answers_and_stores_nothing(http: httpx.Client) -> None:
    assert created(http, EXPERIMENTS, demo(), dryRun="All")["metadata"]["uid"]
    assert http.get(f"{EXPERIMENTS}/demo").status_code == 404
    created(http, EXPERIMENTS, demo())
    http.patch(f"{EXPERIMENTS}/demo", json={"spec": {"maxTrialCount": 77}}, headers=MERGE, params={"dryRun": "All"})
    http.delete(f"{EXPERIMENTS}/demo", params={"dryRun": "All"})
    assert http.get(f"{EXPERIMENTS}/demo").json()["spec"].get("maxTrialCount") != 77


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("application/merge-patch+json", {"spec": {"maxTrialCount": 40}}),
        ("application/json-patch+json", [{"op": "add", "path": "/spec/maxTrialCount", "value": 40}]),
    ],
)
def test_a_patch_changes_a_budget(http: httpx.Client, kind: str, patch: Any) -> None:
    created(http, EXPERIMENTS, demo())
    answer = http.patch(f"{EXPERIMENTS}/demo", content=json.dumps(patch), headers={"content-type": kind})

    assert answer.json()["spec"]["maxTrialCount"] == 40
    assert answer.json()["metadata"]["generation"] == 2


def test_a_strategic_patch_is_for_built_in_kinds(http: httpx.Client) -> None:
    created(http, CONFIG_MAPS, config_map("one", a="1"))
    created(http, EXPERIMENTS, demo())

    assert http.patch(f"{CONFIG_MAPS}/one", json={"data": {"b": "2"}}, headers=STRATEGIC).json()["data"] == {
        "a": "1",
        "b": "2",
    }
    refused = http.patch(f"{EXPERIMENTS}/demo", json={}, headers=STRATEGIC).json()
    assert (refused["code"], "merge-patch" in refused["message"]) == (415, True)


def test_an_edit_of_the_search_space_is_refused_by_field(http: httpx.Client) -> None:
    created(http, EXPERIMENTS, demo())
    answer = http.patch(f"{EXPERIMENTS}/demo", json={"spec": {"objective": {"goal": 7}}}, headers=MERGE).json()

    assert [cause["field"] for cause in answer["details"]["causes"]] == ["spec.objective.goal"]


def test_an_update_needs_the_latest_revision(http: httpx.Client) -> None:
    read = created(http, EXPERIMENTS, demo())
    read["metadata"]["labels"] = {"team": "a"}
    first = http.put(f"{EXPERIMENTS}/demo", json=read)
    second = http.put(f"{EXPERIMENTS}/demo", json=read)
    del read["metadata"]["resourceVersion"]
    third = http.put(f"{EXPERIMENTS}/demo", json=read)

    assert first.json()["metadata"]["labels"] == {"team": "a"}
    assert (second.status_code, second.json()["reason"]) == (409, "Conflict")
    assert (third.status_code, third.json()["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


def test_a_status_is_written_apart(http: httpx.Client) -> None:
    created(http, EXPERIMENTS, demo())
    changes = {"status": {"trials": 3}, "spec": {"maxTrialCount": 9}}
    by_status = http.patch(f"{EXPERIMENTS}/demo/status", json=changes, headers=MERGE).json()
    by_object = http.patch(f"{EXPERIMENTS}/demo", json={"status": {"trials": 8}}, headers=MERGE).json()

    assert (by_status["status"]["trials"], by_status["spec"]["maxTrialCount"]) == (3, 3)
    assert by_object["status"]["trials"] == 3


def test_a_trial_is_labelled_and_not_created(http: httpx.Client, world: World) -> None:
    created(http, EXPERIMENTS, demo())
    trial_of(world, "demo-1")
    labelled = http.patch(f"{TRIALS}/demo-1", json={"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    refused = http.post(TRIALS, json={"metadata": {"name": "mine"}, "spec": {}}).json()

    assert labelled.json()["metadata"]["labels"] == {"a": "b"}
    assert refused["message"].endswith("; create the Experiment, or use katib trial")


def test_selectors_and_pages_find_what_they_name(http: httpx.Client, world: World) -> None:
    created(http, EXPERIMENTS, demo())
    for number in range(7):
        trial_of(world, f"demo-{number}", size="big" if number % 2 else "small", number=str(number))

    def names(**parameters: str) -> list[str]:
        return [item["metadata"]["name"] for item in http.get(TRIALS, params=parameters).json()["items"]]

    assert names(labelSelector="size=big") == ["demo-1", "demo-3", "demo-5"]
    assert names(labelSelector="size!=big,number in (0,2,3),!other") == ["demo-0", "demo-2"]
    assert names(fieldSelector="metadata.name=demo-4") == ["demo-4"]
    assert http.get(TRIALS, params={"fieldSelector": "spec.x=1"}).status_code == 400
    first = http.get(TRIALS, params={"limit": "3"}).json()
    token = first["metadata"]["continue"]
    trial_of(world, "demo-7")
    second = http.get(TRIALS, params={"limit": "3", "continue": token}).json()
    assert [item["metadata"]["name"] for item in (*first["items"], *second["items"])] == [f"demo-{n}" for n in range(6)]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert http.get(TRIALS, params={"limit": "3", "continue": "none"}).status_code == 400
    assert len(names(limit="2", labelSelector="size!=small")) == 2


def test_a_table_has_the_columns_of_katib(http: httpx.Client) -> None:
    created(http, EXPERIMENTS, demo())
    status = {
        "conditions": [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}],
        "trials": 2,
        "trialsCompleted": 1,
        "currentOptimalTrial": {
            "bestTrialName": "demo-1",
            "observation": {"metrics": [{"name": "loss", "latest": "0.5", "min": "0.5", "max": "1"}]},
        },
    }
    http.patch(f"{EXPERIMENTS}/demo/status", json={"status": status}, headers=MERGE)
    table = http.get(EXPERIMENTS, headers=TABLE).json()

    shown = [[column["name"] for column in table["columnDefinitions"] if column["priority"] == n] for n in (0, 1)]
    default = ["Name", "Type", "Status", "Reason", "Done", "Best", "Age"]
    assert shown == [default, ["Trials", "Succeeded", "Best Trial"]]
    cells = table["rows"][0]["cells"]
    assert (cells[:6], cells[7:]) == (["demo", "Running", "True", None, 1, "0.5"], [2, None, "demo-1"])
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"

    interrupted = {"type": "Running", "status": "False", "reason": EXPERIMENT_INTERRUPTED}
    status["conditions"] = [{"type": "Created", "status": "True"}, interrupted]
    http.patch(f"{EXPERIMENTS}/demo/status", json={"status": status}, headers=MERGE)
    cells = http.get(EXPERIMENTS, headers=TABLE).json()["rows"][0]["cells"]
    assert cells[:4] == ["demo", "Interrupted", "True", EXPERIMENT_INTERRUPTED]


def test_what_is_empty_in_the_metadata_is_not_kept(http: httpx.Client) -> None:
    created(http, EXPERIMENTS, demo())
    patch = {"metadata": {"annotations": {}, "labels": {"a": None}}}
    metadata = http.patch(f"{EXPERIMENTS}/demo", json=patch, headers=MERGE).json()["metadata"]

    assert not {"annotations", "labels"} & set(metadata)


def test_a_watch_goes_on_where_a_list_ended(http: httpx.Client) -> None:
    created(http, CONFIG_MAPS, config_map("one"))
    since = http.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"]
    with http.stream("GET", CONFIG_MAPS, params={"watch": "1", "resourceVersion": since}) as stream:
        created(http, CONFIG_MAPS, config_map("two"))
        http.patch(f"{CONFIG_MAPS}/one", json={"data": {"a": "b"}}, headers=MERGE)
        http.delete(f"{CONFIG_MAPS}/two")
        events = lines_of(stream, 3)

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "two"),
        ("MODIFIED", "one"),
        ("DELETED", "two"),
    ]


def test_a_watch_by_label_sees_objects_come_to_fit_and_cease_to(http: httpx.Client) -> None:
    created(http, CONFIG_MAPS, config_map("one"))
    initial = {"sendInitialEvents": "1", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "1"}
    with http.stream("GET", CONFIG_MAPS, params={"watch": "1", "labelSelector": "a=b", **initial}) as stream:
        lines = stream.iter_lines()
        mark = json.loads(next(lines))
        for labels in ({"a": "b"}, {"c": "d"}, {"a": None}):
            http.patch(f"{CONFIG_MAPS}/one", json={"metadata": {"labels": labels}}, headers=MERGE)
        events = [json.loads(next(lines)) for _ in range(3)]

    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_from_a_revision_that_is_not_kept_gets_410(http: httpx.Client) -> None:
    with http.stream("GET", CONFIG_MAPS, params={"watch": "1", "resourceVersion": GONE}) as stream:
        event = lines_of(stream, 1)[0]

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_watch_ends_in_time_and_one_whose_client_vanished_is_forgotten(http: httpx.Client, world: World) -> None:
    history: Any = world.engine.objects.objects
    watches = history._history._watches.setdefault(Kind("v1", "ConfigMap"), [])
    before = len(watches)
    http.get(CONFIG_MAPS, params={"watch": "1", "timeoutSeconds": "1"})
    assert len(watches) == before
    with client_of(world.server) as other, other.stream("GET", CONFIG_MAPS, params={"watch": "1"}):
        eventually(lambda: len(watches) == before + 1)

    eventually(lambda: len(watches) == before)


def test_many_watches_see_a_change(http: httpx.Client, world: World) -> None:
    threads = threading.active_count()

    def watched(_number: int) -> str:
        with client_of(world.server) as client, client.stream("GET", CONFIG_MAPS, params={"watch": "1"}) as stream:
            ready.release()
            return str(lines_of(stream, 1)[0]["object"]["metadata"]["name"])

    ready = threading.Semaphore(0)
    with ThreadPoolExecutor(30) as pool:
        seen = pool.map(watched, range(30))
        for _ in range(30):
            ready.acquire()
        assert (
            threading.active_count() <= threads + 30 + 40
        )  # the readers here, and the framework's few for all requests
        created(http, CONFIG_MAPS, config_map("one"))
        assert list(seen) == ["one"] * 30


def test_deleting_an_experiment_takes_its_trials_along(http: httpx.Client, world: World) -> None:
    uid = created(http, EXPERIMENTS, demo())["metadata"]["uid"]
    trial_of(world, "demo-1", **{"katib.kubeflow.org/experiment": "demo"})
    mine = {"preconditions": {"uid": "another"}}
    refused = http.request("DELETE", f"{EXPERIMENTS}/demo", json=mine)
    orphaning = http.delete(f"{EXPERIMENTS}/demo", params={"propagationPolicy": "Orphan"})
    answer = http.delete(f"{EXPERIMENTS}/demo")

    assert (refused.status_code, orphaning.status_code) == (409, 422)
    assert (answer.json()["status"], answer.json()["details"]["uid"]) == ("Success", uid)
    assert http.get(f"{TRIALS}/demo-1").status_code == 404
    missing = http.delete(f"{EXPERIMENTS}/demo").json()
    assert (missing["code"], missing["message"]) == (404, 'experiments.kubeflow.org "demo" not found')


def test_an_object_with_finalizers_goes_with_the_last(http: httpx.Client) -> None:
    obj = config_map("kept")
    obj["metadata"]["finalizers"] = ["example.org/keep"]
    created(http, CONFIG_MAPS, obj)

    assert http.delete(f"{CONFIG_MAPS}/kept").json()["metadata"]["deletionTimestamp"]
    http.patch(f"{CONFIG_MAPS}/kept", json={"metadata": {"finalizers": None}}, headers=MERGE)
    assert http.get(f"{CONFIG_MAPS}/kept").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "code"),
    [
        ("POST", CONFIG_MAPS, b"{", "application/json", 400),
        ("POST", CONFIG_MAPS, b"[" * 100_000, "application/json", 400),
        ("POST", CONFIG_MAPS, b"a: [", "application/yaml", 400),
        ("POST", CONFIG_MAPS, b"x", "application/cbor", 415),
        ("POST", CONFIG_MAPS, b" " * 3_200_000, "application/json", 413),
        ("POST", CONFIG_MAPS, b" " * 4_300_000, "application/json", 413),
        ("POST", CONFIG_MAPS, b"[]", "application/json", 400),
        ("POST", CONFIG_MAPS, b'{"metadata": 1}', "application/json", 400),
        ("POST", CONFIG_MAPS, b'{"metadata": {"name": "A B"}}', "application/json", 422),
        ("POST", CONFIG_MAPS, b'{"metadata": {"name": "a", "namespace": "other"}}', "application/json", 400),
        ("POST", CONFIG_MAPS, b'{"kind": "Secret", "metadata": {"name": "a"}}', "application/json", 400),
        ("POST", CONFIG_MAPS, b'{"metadata": {"name": "a"}, "data": {"a": 1}}', "application/json", 422),
        ("POST", "/api/v1/configmaps", b"{}", "application/json", 405),
        ("GET", "/api/v1/bindings", b"", "", 404),
        ("GET", f"{CONFIG_MAPS}/none/scale", b"", "", 404),
        ("GET", f"{CONFIG_MAPS}?labelSelector=a%20b", b"", "", 400),
        ("GET", f"{CONFIG_MAPS}?limit=-1", b"", "", 400),
        ("POST", "/api/v1/namespaces/default/pods", b"{}", "application/json", 405),
        ("PATCH", f"{CONFIG_MAPS}/none", b"{}", "application/json", 415),
        ("GET", "/nothing", b"", "", 404),
        ("PUT", "/version", b"", "", 405),
    ],
)
def test_what_cannot_be_answered_gets_a_status_with_the_reason(
    http: httpx.Client, method: str, path: str, body: bytes, content_type: str, code: int
) -> None:
    answer = http.request(method, path, content=body, headers={"content-type": content_type})

    assert answer.status_code == code, answer.text
    status = answer.json()
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
    assert status["message"]
    assert status["reason"]


def test_a_body_may_be_yaml_and_texts_of_a_secret_are_kept_encoded(http: httpx.Client) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n"
    answer = http.post(CONFIG_MAPS, content=text, headers={"content-type": "application/yaml"})

    assert answer.json()["data"] == {"a": "b"}

    path = "/api/v1/namespaces/default/secrets"
    assert created(http, path, {"metadata": {"name": "mine"}, "stringData": {"a": "b"}})["data"] == {"a": "Yg=="}
    http.delete(path)


def test_namespaces_are_those_that_are_used_or_were_created(http: httpx.Client) -> None:
    created(http, "/api/v1/namespaces", {"metadata": {"name": "mine"}})
    created(http, EXPERIMENTS.replace("default", "used"), demo(namespace="used"))
    names = [item["metadata"]["name"] for item in http.get("/api/v1/namespaces").json()["items"]]
    http.delete(EXPERIMENTS.replace("default", "used"))

    assert names == ["default", "mine", "used"]
    assert http.get("/api/v1/namespaces/mine").json()["status"] == {"phase": "Active"}


def test_a_client_may_ask_what_it_may(http: httpx.Client) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    assert http.post(path, json={"kind": "SelfSubjectAccessReview", "spec": {}}).json()["status"]["allowed"] is True


def test_the_api_is_described_by_openapi_3(http: httpx.Client) -> None:
    index = http.get("/openapi/v3").json()["paths"]
    described = {root: http.get(entry["serverRelativeURL"]).json() for root, entry in index.items()}

    assert {"api/v1", "apis/batch/v1", "apis/kubeflow.org/v1beta1"} <= set(described)
    for found in described.values():
        references = re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', json.dumps(found, separators=(",", ":")))
        assert set(references) <= set(found["components"]["schemas"])
    experiment = described["apis/kubeflow.org/v1beta1"]["components"]["schemas"]["org.kubeflow.v1beta1.Experiment"]
    assert experiment["properties"]["spec"]["properties"]["algorithm"]["description"]
    assert list(experiment["properties"]["metadata"]) == ["description", "allOf"]
    assert http.get("/openapi/v3/apis/none/v1").status_code == 404


def test_a_reader_that_is_too_slow_gets_410_and_others_are_not_kept_waiting(tmp_path: Path) -> None:
    nothing: Any = None
    with open_database(tmp_path / "objects.db") as database:
        store = SqlStore(database, (), longest_backlog=20)
        home = ObjectHome(store, store, AnyObject(), frozenset(), nothing, nothing, lambda _namespace, _since: ())
        with (
            KubernetesServer(home, tmp_path, host="127.0.0.1", token=TOKEN) as server,
            client_of(server) as slow,
            slow.stream("GET", CONFIG_MAPS, params={"watch": "1"}) as stream,
        ):
            changed = store.create({**config_map("big"), "metadata": {"name": "big", "namespace": "default"}})
            for number in range(300):  # more than the buffers of a connection take
                changed = store.update({**changed, "data": {"text": f"{number}" + "x" * 100_000}})
                with client_of(server) if number == 150 else nullcontext() as other:
                    assert other is None or other.get(CONFIG_MAPS).status_code == 200
            last = [json.loads(line) for line in stream.iter_lines()][-1]

    assert (last["type"], last["object"]["code"]) == ("ERROR", 410)


@pytest.mark.slow
def test_what_was_written_is_there_after_a_kill_with_the_same_revisions(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.support.kube import kube_world\n"
        "with kube_world(Path(sys.argv[1]), starts=False) as world:\n"
        "    print(world.server.kubeconfig, flush=True); sys.stdin.read()\n"
    )
    directory = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        kubeconfig = yaml.safe_load(Path(process.stdout.readline().strip()).read_text())
        url = kubeconfig["clusters"][0]["cluster"]["server"]
        trusted = ssl.create_default_context(cadata=authority_of(directory / "kubeconfig"))
        with httpx.Client(base_url=url, verify=trusted, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            versions = {
                name: created(client, CONFIG_MAPS, config_map(name))["metadata"]["resourceVersion"] for name in "abc"
            }
            process.kill()
    with kube_world(directory, starts=False) as world:
        items = world.http.get(CONFIG_MAPS).json()["items"]

    assert {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items} == versions


def test_events_are_objects_that_are_selected_and_watched(http: httpx.Client, world: World) -> None:
    uid = created(http, EXPERIMENTS, demo())["metadata"]["uid"]
    path = "/api/v1/namespaces/default/events"
    log: Any = world.engine
    subject = EventSubject("Experiment", "default", "demo", "demo")

    def record(reason: str) -> None:
        log._parts.data.events.record(subject, warning=True, reason=reason, message="a sentence")

    record("First")
    about = {"fieldSelector": f"involvedObject.name=demo,involvedObject.uid={uid}"}
    listed = http.get(path, params=about).json()
    since = listed["metadata"]["resourceVersion"]
    with http.stream("GET", path, params={"watch": "1", "resourceVersion": since}) as stream:
        record("Second")
        lines = stream.iter_lines()
        second = json.loads(next(lines))
        record("Second")
        again = json.loads(next(lines))

    assert [(item["reason"], item["type"], item["count"]) for item in listed["items"]] == [("First", "Warning", 1)]
    assert (second["type"], second["object"]["reason"]) == ("ADDED", "Second")
    assert (again["type"], again["object"]["count"]) == ("MODIFIED", 2)
    assert http.get(f"{path}/{second['object']['metadata']['name']}").json()["count"] == 2


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ("resourceVersion=abc", 400, ""),
        ("resourceVersion=-1", 400, ""),
        ("resourceVersion=" + "9" * 5_000, 400, ""),
        ("limit=abc", 400, ""),
        ("timeoutSeconds=abc", 400, ""),
        (f"resourceVersion={GONE}", 504, ""),
        (f"resourceVersion={GONE}&resourceVersionMatch=NotOlderThan", 504, ""),
        ("resourceVersion=1&resourceVersionMatch=Exact", 410, ""),
        ("resourceVersionMatch=Exact", 422, "resourceVersionMatch"),
        ("resourceVersion=1&resourceVersionMatch=Foo", 422, "resourceVersionMatch"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, "resourceVersionMatch"),
        ("resourceVersion=1&resourceVersionMatch=Exact&continue=x", 422, "resourceVersionMatch"),
        ("sendInitialEvents=true", 422, "sendInitialEvents"),
        ("watch=1&resourceVersion=abc", 400, ""),
        ("watch=1&timeoutSeconds=abc", 400, ""),
        ("watch=1&sendInitialEvents=true", 422, "resourceVersionMatch"),
        ("watch=1&sendInitialEvents=false", 422, "resourceVersionMatch"),
        ("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1", 422, "resourceVersionMatch"),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", 422, "resourceVersionMatch"),
        ("watch=1&continue=x", 422, "continue"),
        (f"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={GONE}", 504, ""),
    ],
)
def test_parameters_that_cannot_be_met_are_refused(http: httpx.Client, query: str, code: int, field: str) -> None:
    for name in ("one", "two"):
        created(http, CONFIG_MAPS, config_map(name))
    answer = http.get(f"{CONFIG_MAPS}?{query}")
    status = answer.json()

    assert (answer.status_code, status["code"]) == (code, code)
    assert field in {cause.get("field", "") for cause in status.get("details", {}).get("causes", ())} or not field
    assert (code == 504) is ("retry-after" in answer.headers)


@pytest.mark.parametrize("match", ["", "&resourceVersionMatch=Exact", "&resourceVersionMatch=NotOlderThan"])
def test_a_list_at_the_newest_revision_is_answered(http: httpx.Client, match: str) -> None:
    created(http, CONFIG_MAPS, config_map("one"))
    now = http.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"]

    assert len(http.get(f"{CONFIG_MAPS}?resourceVersion={now}{match}").json()["items"]) == 1
    assert http.get(f"{CONFIG_MAPS}/one?resourceVersion={now}").status_code == 200
    assert http.get(f"{CONFIG_MAPS}/one?resourceVersion={GONE}").status_code == 504


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/apis", "/apis/kubeflow.org", "/apis/batch/v1", "/version", CONFIG_MAPS]
)
def test_a_slash_at_the_end_of_a_path_changes_nothing(http: httpx.Client, path: str) -> None:
    answer = http.get(f"{path}/")

    assert answer.status_code == 200
    assert answer.json() == http.get(path).json()


def test_the_root_lists_the_paths(http: httpx.Client) -> None:
    paths = http.get("/").json()["paths"]

    assert {"/api/v1", "/apis", "/apis/batch/v1", "/apis/kubeflow.org"} <= set(paths)
    assert {path: http.get(path).status_code for path in paths} == dict.fromkeys(paths, 200)


@pytest.mark.parametrize("plural", ["api/v1/services", "api/v1/nodes", "apis/apps/v1/deployments"])
def test_of_kinds_that_one_machine_does_not_have_there_are_no_objects(http: httpx.Client, plural: str) -> None:
    assert (http.get(f"/{plural}").json()["items"], http.post(f"/{plural}", json={}).status_code) == ([], 405)


def test_the_version_of_the_trainer_is_found_where_its_sdk_looks(http: httpx.Client) -> None:
    path = "/api/v1/namespaces/kubeflow-system/configmaps"

    assert http.get(f"{path}/kubeflow-trainer-public").json()["data"]["kubeflow_trainer_version"]
    assert http.get(f"{path}/other").status_code == 404


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"conditions": [{"type": "Ready"}]}, "status.conditions[0].status"),
        ({"conditions": ["Ready"]}, "status.conditions[0].type"),
        ({"conditions": {"type": "Ready"}}, "status.conditions"),
        ("done", "status"),
    ],
)
def test_a_status_that_no_controller_can_read_is_refused(http: httpx.Client, status: Any, field: str) -> None:
    created(http, EXPERIMENTS, demo())
    answer = http.patch(f"{EXPERIMENTS}/demo/status", json={"status": status}, headers=MERGE)

    assert [cause["field"] for cause in answer.json()["details"]["causes"]] == [field]


def test_whole_numbers_of_custom_kinds_may_be_written_as_floats(http: httpx.Client) -> None:
    def send(method: str, path: str, obj: Any, content_type: str = "application/json") -> httpx.Response:
        content = json.dumps(obj)
        for whole, as_float in (("3", "3.0"), ("40", "4e1"), ("null", "1.5")):
            content = content.replace(f'Count": {whole}', f'Count": {as_float}')  # an uid may have the digits, too
        return http.request(method, path, content=content, headers={"content-type": content_type})

    made = send("POST", EXPERIMENTS, demo(parallelTrialCount=3, maxTrialCount=3))
    read = made.json()
    replaced = send("PUT", f"{EXPERIMENTS}/demo", read)
    patched = send("PATCH", f"{EXPERIMENTS}/demo", {"spec": {"maxTrialCount": 40}}, MERGE["content-type"])
    broken = send("PATCH", f"{EXPERIMENTS}/demo", {"spec": {"maxTrialCount": None}}, MERGE["content-type"])
    too_large = http.post(EXPERIMENTS, content=b'{"spec": {"maxTrialCount": 1e999}}')

    assert (made.status_code, replaced.status_code, patched.status_code) == (201, 200, 200)
    assert replaced.json() == read
    assert repr(patched.json()["spec"]["maxTrialCount"]) == "40"
    assert (broken.status_code, too_large.status_code) == (422, 400)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/default/events"


def test_a_lease_has_one_holder(http: httpx.Client) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"}
    lease = created(http, LEASES, {"metadata": {"name": "manager"}, "spec": spec})
    renewed = http.put(f"{LEASES}/manager", json={**lease, "spec": {**spec, "leaseTransitions": 1}})
    late = http.put(f"{LEASES}/manager", json={**lease, "spec": {**spec, "holderIdentity": "b"}})
    refused = http.post(LEASES, json={"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}}).json()

    assert (renewed.status_code, late.status_code) == (200, 409)
    assert http.get(f"{LEASES}/manager").json()["spec"] == {**spec, "leaseTransitions": 1}
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["spec.leaseDurationSeconds"]
    assert http.get(LEASES, headers=TABLE).json()["rows"][0]["cells"][:2] == ["manager", "a"]
    assert http.delete(f"{LEASES}/manager").status_code == 200


def test_events_of_clients_are_objects_beside_those_of_the_log(http: httpx.Client, world: World) -> None:
    subject = {"kind": "Widget", "name": "w", "namespace": "default"}
    event = {"metadata": {"name": "w.1"}, "involvedObject": subject, "reason": "Made", "message": "m", "count": 1}
    log: Any = world.engine
    log._parts.data.events.record(
        EventSubject("Experiment", "default", "e", "e"), warning=False, reason="Known", message="m"
    )
    since = http.get(EVENTS).json()["metadata"]["resourceVersion"]
    with http.stream("GET", EVENTS, params={"watch": "1", "resourceVersion": since}) as stream:
        lines = stream.iter_lines()
        made = created(http, EVENTS, event)
        seen = [json.loads(next(lines))]
        again = http.patch(f"{EVENTS}/w.1", json={"count": 2}, headers=STRATEGIC)
        seen.append(json.loads(next(lines)))
    late = http.put(f"{EVENTS}/w.1", json=made)
    foreign = {**event, "metadata": {"name": "w.2"}, "involvedObject": {**subject, "namespace": "other"}}
    elsewhere = http.post(EVENTS, json=foreign)
    about = http.get(EVENTS, params={"fieldSelector": "involvedObject.name=w"}).json()["items"]
    reasons = {item["reason"] for item in http.get(EVENTS).json()["items"]}

    assert [(change["type"], change["object"]["count"]) for change in seen] == [("ADDED", 1), ("MODIFIED", 2)]
    assert [change["object"] for change in seen] == [made, again.json()]
    assert about == [http.get(f"{EVENTS}/w.1").json()] == [again.json()]
    assert "annotations" not in again.json()["metadata"]
    assert (late.status_code, elsewhere.status_code) == (409, 422)
    assert {"Known", "Made"} <= reasons
    assert http.delete(f"{EVENTS}/w.1").status_code == 200
    assert http.get(f"{EVENTS}/w.1").status_code == 404
