"""Pods that are refused or miss their collector, over a real API server and its Job controller. No pod of them runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from katib.engine.controllers.job_caches import JobCaches
from katib.engine.controllers.kinds import TRIAL
from katib.engine.controllers.trial.jobs import Jobs
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import AlreadyExistsError, NotFoundError
from katib.model.types import Trial
from katib.places.cluster.access.events import server_events
from katib.places.cluster.access.release import release
from katib.places.cluster.admission.certificate_sources import MUTATING
from katib.places.cluster.client import RequestInfo, open_connection
from katib.places.cluster.controller import WEBHOOK_CONFIGURATION
from katib.places.cluster.pods.missed import MISSED_SELECTOR, MissedPods
from katib.places.cluster.pods.owners import TrialFinder
from katib.places.cluster.pods.reading import POD, TrialPodCache
from katib.places.cluster.pods.refusals import Refusals
from katib.places.cluster.pods.repair import PodRepair
from katib.places.cluster.store import KubernetesStore
from tests.support.api_server import ApiServer
from tests.support.clock import VirtualClock
from tests.support.control_plane import EXPERIMENT, STATUS_PORT, ControllerProcess, ControlPlane
from tests.support.controllers import JOB, RecordedEvents
from tests.support.planning import holding, trial
from tests.support.registry import running_registry
from tests.support.stores import STAND_IN, WIDGET
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

QUOTA = Kind("v1", "ResourceQuota")
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def plane(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(api_server, tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    name = plane.namespace(f"pods-of-trials-{next(_NUMBERS)}")
    account = Key(name, "default")
    eventually(lambda: found(plane, Kind("v1", "ServiceAccount"), account))
    yield name
    with suppress(NotFoundError):
        plane.store.delete(EXPERIMENT, Key(name, "demo"))
    eventually(lambda: not list(release(plane.store)) and found(plane, EXPERIMENT, Key(name, "demo")) is None)
    plane.server.delete_namespace(name)


def found(plane: ControlPlane, kind: Kind, key: Key) -> Object | None:
    with suppress(NotFoundError):
        return plane.store.get(kind, key)
    return None


def controller(plane: ControlPlane, namespace: str, **init: Any) -> ControllerProcess:
    made = plane.controller(namespace, **init).start()
    eventually(made.works)
    return made


def submit(plane: ControlPlane, namespace: str, pod: dict[str, Any] | None = None, **job: Any) -> None:
    """Create an experiment of one trial, whose Job nobody runs."""
    container = {"name": "main", "image": "i", "command": ["train", "--lr=${trialParameters.lr}"]}
    spec = {"restartPolicy": "Never", "containers": [container], **(pod or {})}
    template = {
        "primaryContainerName": "main",
        "retain": True,
        "trialParameters": [{"name": "lr", "reference": "lr"}],
        "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": spec}, **job}},
    }
    plane.submit(
        "demo", namespace, maxTrialCount=1, parallelTrialCount=1, maxFailedTrialCount=1, trialTemplate=template
    )


def told(plane: ControlPlane, namespace: str, type_: str) -> dict[str, Any]:
    """Return a condition of the only trial, whether it holds or not; empty while there is none."""
    for one in plane.trials(namespace):
        found: dict[str, Any] = next(
            (c for c in (one.get("status") or {}).get("conditions", ()) if c["type"] == type_), {}
        )
        return dict(found)
    return {}


def intercept_pods(plane: ControlPlane, process: ControllerProcess, namespace: str) -> None:
    """Have the API server show the pods of a namespace to a controller, as the manifests do."""
    webhook = {
        "name": "mutator.pod.katib.kubeflow.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 10,
        "namespaceSelector": {"matchLabels": {"katib-test": namespace}},
        "clientConfig": {"url": f"https://127.0.0.1:{process.webhook_port}/mutate-pod"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    body = {"apiVersion": MUTATING.api_version, "kind": MUTATING.kind, "metadata": {"name": WEBHOOK_CONFIGURATION}}
    with suppress(NotFoundError):
        plane.store.delete(MUTATING, Key("", WEBHOOK_CONFIGURATION))
    plane.store.create({**body, "webhooks": [webhook]})
    stored = plane.store.get(Kind("v1", "Namespace"), Key("", namespace))
    labels = {**stored["metadata"]["labels"], "katib-test": namespace}
    plane.store.update({**stored, "metadata": {**stored["metadata"], "labels": labels}})

    def is_trusted() -> bool:
        configuration = plane.store.get(MUTATING, Key("", WEBHOOK_CONFIGURATION))
        return bool(configuration["webhooks"][0]["clientConfig"].get("caBundle"))

    eventually(is_trusted)


@pytest.fixture
def _no_webhook(plane: ControlPlane) -> Iterator[None]:
    yield
    with suppress(NotFoundError):
        plane.store.delete(MUTATING, Key("", WEBHOOK_CONFIGURATION))


def test_a_trial_whose_pods_a_quota_refuses_waits_for_the_patience_and_then_fails_with_the_refusal(
    plane: ControlPlane, namespace: str
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace}}
    plane.store.create({**quota, "spec": {"hard": {"pods": "0"}}})
    eventually(lambda: (plane.store.get(QUOTA, Key(namespace, "none")).get("status") or {}).get("hard"))
    process = controller(plane, namespace, refusedPodPatienceSeconds=1, passingRefusalPatienceSeconds=25)
    try:
        submit(plane, namespace)
        eventually(lambda: told(plane, namespace, "Running").get("reason") == "TrialWaiting")
        waiting = told(plane, namespace, "Running")["message"]
        plane.wait_for_end("demo", namespace, 120)
        failed = told(plane, namespace, "Failed")

        assert waiting.startswith("Trial waits: no pod of its job can be created: exceeded quota: none")
        assert failed["reason"] == "TrialPodsRefused"
        assert failed["message"].startswith("Trial has failed: no pod of its job can be created: exceeded quota: none")
        # Whatever the template says of jobs that have ended, this one must not run later.
        eventually(lambda: not plane.store.list(JOB, namespace).items)
    finally:
        process.stop()


def test_a_trial_whose_pods_are_refused_for_what_they_are_says_so_and_fails_after_the_shorter_patience(
    plane: ControlPlane, namespace: str
) -> None:
    """By a LimitRange here, which servers of all versions have; Pod Security is told by the same event."""
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small", "namespace": namespace}}
    plane.store.create({**limits, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}})
    process = controller(plane, namespace, refusedPodPatienceSeconds=15)
    words = "no pod of its job can be created: maximum cpu usage per Container is 1, but limit is 2"
    try:
        container = {"name": "main", "image": "i", "command": ["train", "--lr=${trialParameters.lr}"]}
        submit(plane, namespace, {"containers": [{**container, "resources": {"limits": {"cpu": "2"}}}]})
        eventually(lambda: told(plane, namespace, "Running").get("reason") == "TrialWaiting")
        waiting = told(plane, namespace, "Running")["message"]
        plane.wait_for_end("demo", namespace, 100)  # far less than the patience with what may pass
        failed = told(plane, namespace, "Failed")

        assert waiting == f"Trial waits: {words}"
        assert (failed["reason"], failed["message"]) == ("TrialPodsRefused", f"Trial has failed: {words}")
        eventually(lambda: {"JobWaiting", "JobFailed"} <= reasons(plane, namespace))
    finally:
        process.stop()


@pytest.mark.usefixtures("_no_webhook")
def test_a_trial_waits_with_the_reason_while_the_registry_of_its_image_is_away(
    plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    with running_registry(tmp_path) as registry:
        host = registry.host
        registry.push("train", "1", amd64=["/train"], arm64=["/train"])
    process = controller(plane, namespace)
    try:
        intercept_pods(plane, process, namespace)
        container = {"name": "main", "image": f"{host}/train:1", "args": ["--lr=${trialParameters.lr}"]}
        submit(plane, namespace, {"containers": [container]})
        eventually(lambda: told(plane, namespace, "Running").get("reason") == "TrialWaiting")
        waiting = told(plane, namespace, "Running")["message"]
        with running_registry(tmp_path, host):
            (pod,) = eventually(lambda: plane.store.list(POD, namespace).items)

        assert f"the entrypoint of {host}/train:1 is not known: {host} cannot be reached" in waiting
        (main,) = [one for one in pod["spec"]["containers"] if one["name"] == "main"]
        assert (main["args"][0], main["args"][1][:5]) == ("/train", "--lr=")
    finally:
        process.stop()


@pytest.mark.usefixtures("_no_webhook")
def test_a_pod_that_our_webhook_refuses_forever_fails_its_trial_at_once(plane: ControlPlane, namespace: str) -> None:
    process = controller(plane, namespace)
    try:
        intercept_pods(plane, process, namespace)
        submit(plane, namespace, {"os": {"name": "windows"}})
        plane.wait_for_end("demo", namespace, 100)  # far less than the patience of five minutes

        failed = told(plane, namespace, "Failed")
        assert failed["reason"] == "TrialPodsRefused"
        assert "spec.os.name: windows" in failed["message"]
        assert failed["message"].endswith("report metrics with the collector kind Push")
    finally:
        process.stop()


@pytest.mark.usefixtures("_no_webhook")
def test_a_pod_that_missed_its_collector_is_replaced_beside_the_others(plane: ControlPlane, namespace: str) -> None:
    process = controller(plane, namespace)

    def pods(*, collected: bool) -> list[Object]:
        present = (p for p in plane.store.list(POD, namespace).items if "deletionTimestamp" not in p["metadata"])
        return [p for p in present if (len(p["spec"]["containers"]) > 1) is collected]

    try:
        submit(plane, namespace, completions=2, parallelism=2)
        eventually(lambda: pods(collected=False))
        (job,) = plane.store.list(JOB, namespace).items
        intercept_pods(plane, process, namespace)
        eventually(lambda: len(pods(collected=True)) == 2 and not pods(collected=False), seconds=120)

        (same,) = plane.store.list(JOB, namespace).items
        assert same["metadata"]["uid"] == job["metadata"]["uid"]
        eventually(lambda: "PodWithoutCollector" in reasons(plane, namespace))
        for pod in pods(collected=True):
            check_where_the_status_goes(pod, plane.trials(namespace)[0]["metadata"]["name"])
    finally:
        process.stop()


def check_where_the_status_goes(pod: Object, trial_name: str) -> None:
    """The program of a pod, as the API server stored it, has the address and the file of its token."""
    program, volumes = pod["spec"]["containers"][0], {one["name"]: one for one in pod["spec"]["volumes"]}
    variables = {one["name"]: one.get("value", "") for one in program["env"]}
    address = f"http://127.0.0.1:{STATUS_PORT}/trials/{trial_name}/status?metric="
    (item,) = volumes["trainer-status"]["downwardAPI"]["items"]
    mount = next(one["mountPath"] for one in program["volumeMounts"] if one["name"] == "trainer-status")
    token = pod["metadata"]["annotations"]["katib.kubeflow.org/trainer-status-token"]

    assert variables["KUBEFLOW_TRAINER_SERVER_URL"].startswith(address)
    assert variables["KUBEFLOW_TRAINER_SERVER_TOKEN"] == f"{mount}/{item['path']}"
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['katib.kubeflow.org/trainer-status-token']"
    assert f":trial:{pod['metadata']['namespace']}:{trial_name}:" in token


def reasons(plane: ControlPlane, namespace: str) -> set[str]:
    return {event["reason"] for event in server_events(plane.connection)(namespace, {"involvedObject.kind": "Trial"})}


FOREIGN = 60


def test_a_trial_without_pods_costs_few_requests_beside_many_foreign_pods(
    plane: ControlPlane, api_server: ApiServer, namespace: str
) -> None:
    """Some of them belong to a kind that may not be read; the trial's own job is suspended."""
    allowed = [
        {"apiGroups": ["kubeflow.org"], "resources": ["trials"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [STAND_IN.api_version.split("/")[0]], "resources": ["standins"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list", "watch"]},
    ]
    add_foreign_pods(plane, namespace)
    made = add_suspended_trial(plane, namespace)
    requests: Counter[tuple[str, str]] = Counter()

    def count(info: RequestInfo, _status: int) -> None:
        requests[info.verb, info.resource] += 1

    clock = VirtualClock()
    with open_connection(api_server.user("looker", allowed, namespace)) as connection:
        connection.observe(count)
        store = KubernetesStore(connection, namespace=namespace)
        selecting = KubernetesStore(connection, namespace=namespace, selectors={POD: MISSED_SELECTOR})
        finder = TrialFinder(store, clock)

        def find(pod: Object, where: str) -> Any:
            return finder.trial_of(pod, where, patient=True)

        trials: Informer[Trial] = Informer(store, TRIAL, Trial.decode, namespace=namespace)
        pods, missed = TrialPodCache(store, clock), MissedPods(selecting, find, clock)
        repair = PodRepair(store=store, trials=trials, missed=missed, events=RecordedEvents(), clock=clock)
        refusals = Refusals(
            trials=trials,
            pods=pods,
            missed=missed,
            find_job=Jobs(store, JobCaches(store, [], clock)).find,
            find_trial=find,
            list_events=server_events(connection),
            clock=clock,
        )
        informers = (trials, pods.informer, missed.informer)
        for informer in informers:
            informer.start()
        for informer in informers:
            assert informer.wait_for_sync(60)
        requests.clear()
        for _ in range(120):
            clock.advance(5)
            repair.look()
            refusals.look()
        spent = dict(requests)
        for informer in informers:
            informer.stop()

    assert len(missed.informer.all()) == FOREIGN  # those of a ReplicaSet are not even sent
    assert made.name in {one.name for one in trials.all()}
    # In ten minutes: the owners' kind is refused now and then, the job is read with growing pauses, nothing is listed.
    assert sum(spent.values()) < 40, spent
    assert not [what for what in spent if what[0] == "list" and what[1] != "trials"], spent


def add_foreign_pods(plane: ControlPlane, namespace: str) -> None:
    metadata = {"name": "owner", "namespace": namespace}
    owner = plane.store.create({"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": metadata})
    references = [{**_kind(WIDGET), "name": "owner", "uid": owner["metadata"]["uid"], "controller": True}]
    for number in range(FOREIGN):
        add_pod(plane, namespace, f"foreign-{number}", ownerReferences=references)
        add_pod(plane, namespace, f"web-{number}", labels={"pod-template-hash": "x"})


def add_pod(plane: ControlPlane, namespace: str, name: str, **metadata: Any) -> None:
    spec = {"containers": [{"name": "main", "image": "i"}]}
    with suppress(AlreadyExistsError):
        plane.store.create({**_kind(POD), "metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec})


def add_suspended_trial(plane: ControlPlane, namespace: str) -> Trial:
    made = trial("demo-1", holding("Running"), run_spec=_kind(STAND_IN))
    stored = plane.store.create({**made.encode(), "metadata": {"name": "demo-1", "namespace": namespace}})
    status = made.status.encode() | {"startTime": "2023-12-31T00:00:00Z"}
    stored = plane.store.update_status({**stored, "status": status})
    references = [{**_kind(TRIAL), "name": "demo-1", "uid": stored["metadata"]["uid"]}]
    metadata = {"name": "demo-1", "namespace": namespace, "ownerReferences": references}
    job = plane.store.create({**_kind(STAND_IN), "metadata": metadata, "spec": {"suspend": True}})
    suspended = {"type": "Suspended", "status": "True"}
    plane.store.update_status({**job, "status": {"conditions": [suspended]}})
    return Trial.decode(stored)


def _kind(kind: Kind) -> dict[str, str]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}
