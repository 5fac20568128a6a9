"""The controller as a process over a real API server: what it survives, and that every trial runs exactly once.

Jobs are StandIn objects that end at once (tests/support/control_plane.py); pods are for tests/cluster.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import KatibError
from katib.model.features.budgets.annotations import LIMITS, PRICES
from katib.places.cluster.configuration.models import ControllerConfig
from katib.places.cluster.leader.lease import LEASE
from tests.support.api_server import ApiServer
from tests.support.control_plane import (
    EXPERIMENT,
    STAND_IN,
    SUGGESTION,
    TRIAL,
    ControllerProcess,
    ControlPlane,
    an_experiment_of_stand_ins,
    ended,
    rules_of_the_controller,
)
from tests.support.experiments import a_double
from tests.support.ports import free_port
from tests.support.server_kinds import exists, install_kind, remove_kind
from tests.support.waiting import eventually, never

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

_NUMBERS = itertools.count()
OBJECTIVE = {"type": "minimize", "objectiveMetricName": "loss"}
MAX_TRIALS_REACHED = "ExperimentMaxTrialsReached"


@pytest.fixture(scope="module")
def plane(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(api_server, tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = plane.namespace(f"{words}-{next(_NUMBERS)}")
    plane.stand_ins.outcome = lambda _job: "0.5"
    yield name
    plane.server.delete_namespace(name)


@pytest.fixture
def controller(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[ControllerProcess]:
    made = plane.controller(request.node.name[:40]).start()
    made.await_work()
    yield made
    made.stop()


def names(trials: tuple[Object, ...]) -> list[str]:
    return sorted(trial["metadata"]["name"] for trial in trials)


def assert_ran_once(plane: ControlPlane, namespace: str, name: str, count: int) -> None:
    """Assert that an experiment ran exactly its budget, each trial once, and that nothing is left over."""
    experiment = plane.wait_for_end(name, namespace, 200)
    assert ended(experiment) == MAX_TRIALS_REACHED
    trials = plane.trials(namespace)
    assert len(trials) == count
    assert {name: plane.stand_ins.runs.get(name) for name in names(trials)} == dict.fromkeys(names(trials), 1)
    eventually(lambda: status_of(plane, name, namespace).get("trialsSucceeded") == count)
    eventually(lambda: not plane.store.list(STAND_IN, namespace).items)


def status_of(plane: ControlPlane, name: str, namespace: str) -> dict[str, Any]:
    with suppress(KatibError):
        return dict(plane.experiment(name, namespace).get("status") or {})
    return {}


WRITES = ("create", "update", "patch", "delete")


def requests_of(controller: ControllerProcess, *verbs: str) -> list[str]:
    """Return the labels of each request that a controller has made, by what it tells Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{controller.metrics_port}/metrics") as answer:
        text = answer.read().decode()
    pattern = re.compile(r'katib_api_requests_total\{([^}]*verb="(\w+)")\} ([\d.e+]+)')
    return [labels for labels, verb, count in pattern.findall(text) if verb in verbs for _ in range(int(float(count)))]


def test_an_experiment_runs_its_budget_and_is_judged(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    plane.submit("demo", namespace, maxTrialCount=12, parallelTrialCount=4)

    assert_ran_once(plane, namespace, "demo", 12)
    assert status_of(plane, "demo", namespace)["currentOptimalTrial"]["observation"]["metrics"][0]["latest"] == "0.5"
    assert controller.stop() == 0


@pytest.fixture
def late_kind(plane: ControlPlane) -> Iterator[Kind]:
    """A kind that is not installed yet, nor is any other of its group."""
    kind = Kind("late.katib-test.example.com/v1", "Gizmo")
    yield kind
    if exists(plane.server, f"/apis/{kind.api_version}/gizmos"):
        remove_kind(plane.server, *kind)


def test_a_trial_that_has_ended_takes_no_more_readings(
    plane: ControlPlane, controller: ControllerProcess, namespace: str
) -> None:
    plane.submit("demo", namespace, maxTrialCount=2)
    plane.wait_for_end("demo", namespace)
    names = [trial["metadata"]["name"] for trial in plane.trials(namespace)]

    def are_closed() -> bool:
        found = [plane.log_guard.access.find(name) for name in names]
        return all(access is not None and access.has_ended for access in found)

    eventually(are_closed)
    assert len(names) == 2
    assert controller.is_alive


def test_a_kind_that_is_installed_after_its_experiment_is_picked_up_without_a_restart(
    plane: ControlPlane, namespace: str, controller: ControllerProcess, late_kind: Kind
) -> None:
    template = an_experiment_of_stand_ins("late", namespace)["spec"]["trialTemplate"]
    template["trialSpec"] |= {"apiVersion": late_kind.api_version, "kind": late_kind.kind}
    plane.submit("late", namespace, maxTrialCount=5, parallelTrialCount=2, trialTemplate=template)

    def is_held_up(trial: Object) -> bool:
        conditions = (trial.get("status") or {}).get("conditions") or ()
        return any(condition["reason"] == "JobKindNotInstalled" for condition in conditions)

    eventually(lambda: len(held := plane.trials(namespace)) == 2 and all(map(is_held_up, held)))
    assert not exists(plane.server, f"/apis/{late_kind.api_version}/gizmos")
    install_kind(plane.server, *late_kind)

    def end_all() -> str:
        for job in plane.store.list(late_kind, namespace).items:
            if not job.get("status") and "deletionTimestamp" not in job["metadata"]:
                plane.stand_ins.end(job, "0.5")
        return ended(plane.experiment("late", namespace))

    eventually(lambda: end_all() == MAX_TRIALS_REACHED, seconds=120)
    eventually(lambda: status_of(plane, "late", namespace).get("trialsSucceeded") == 5)
    assert controller.is_alive


def test_a_controller_killed_at_twenty_moments_runs_every_trial_once(plane: ControlPlane, namespace: str) -> None:
    moments = random.Random(7)
    plane.stand_ins.outcome = lambda _job: str(time.sleep(0.05) or 0.5)
    plane.submit("demo", namespace, maxTrialCount=80, parallelTrialCount=6)
    for number in range(20):
        controller = plane.controller(f"killed-{number}").start()
        with suppress(AssertionError):
            controller.await_work(seconds=20)
        time.sleep(moments.uniform(0.0, 0.5))
        controller.kill()
        if ended(plane.experiment("demo", namespace)):
            break
    last = plane.controller("survivor").start()
    try:
        assert_ran_once(plane, namespace, "demo", 80)
        assert number >= 5
    finally:
        last.stop()


def test_a_frozen_leader_is_replaced_and_does_no_harm_when_it_thaws(plane: ControlPlane, namespace: str) -> None:
    plane.stand_ins.outcome = lambda _job: str(time.sleep(0.2) or 0.5)
    first = plane.controller("first", election=True).start()
    first.await_work()
    second = plane.controller("second", election=True).start()
    try:
        plane.submit("demo", namespace, maxTrialCount=60, parallelTrialCount=4)
        eventually(lambda: len(plane.trials(namespace)) > 5)
        assert not second.works()
        first.freeze()
        second.await_work()
        first.thaw()

        eventually(lambda: not first.is_alive)
        assert first.stop() == 1
        assert_ran_once(plane, namespace, "demo", 60)
    finally:
        first.kill()
        second.stop()


def leader(plane: ControlPlane) -> str:
    """Return who holds the Lease; empty when nobody does."""
    lease = plane.store.get(LEASE, Key(plane.core_namespace, ControllerConfig().leader_election_id))
    return str(lease["spec"].get("holderIdentity") or "")


def test_a_leader_that_is_stopped_hands_over_at_once(plane: ControlPlane, namespace: str) -> None:
    first = plane.controller("leaving", election=True).start()
    first.await_work()
    second = plane.controller("waiting", election=True).start()
    try:
        plane.submit("demo", namespace, maxTrialCount=10, parallelTrialCount=2)
        eventually(lambda: b"webhooks" in second.log.read_bytes())
        before = leader(plane)
        assert first.stop() == 0
        assert leader(plane) != before  # else it takes a lease of 15 s until somebody else leads
        second.await_work()
        assert_ran_once(plane, namespace, "demo", 10)
    finally:
        second.stop()


def readiness(controller: ControllerProcess) -> int:
    """Return the status of the page that probes read; 0 when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{controller.health_port}/readyz") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def page(port: int, path: str) -> str:
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return str(answer.read().decode())
    return ""


def test_a_controller_that_is_started_without_an_api_server_waits_for_it(plane: ControlPlane, namespace: str) -> None:
    plane.server.stop()
    controller, other = (plane.controller(name, election=True).start() for name in ("early", "stopped"))
    try:
        eventually(lambda: b"Waiting for the API server" in controller.log.read_bytes())
        healthy, ready = page(controller.health_port, "/healthz"), readiness(controller)
        metrics = page(controller.metrics_port, "/metrics").splitlines()
        eventually(lambda: b"Waiting for the API server" in other.log.read_bytes())
        ended = other.stop()
    finally:
        plane.server.start()
    controller.await_work()
    eventually(lambda: readiness(controller) == 200)

    assert (healthy, ready, ended) == ("{}", 503, 0)
    assert {'katib_ready{check="api-server"} 0.0', "katib_api_server_answers 0.0"} <= set(metrics)
    assert {'katib_ready{check="api-server"} 1.0', "katib_api_server_answers 1.0"} <= set(
        page(controller.metrics_port, "/metrics").splitlines()
    )
    plane.submit("demo", namespace, maxTrialCount=4)
    assert_ran_once(plane, namespace, "demo", 4)
    assert controller.stop() == 0


def answers_webhooks(controller: ControllerProcess) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", controller.webhook_port), 5) as plain:
            context.wrap_socket(plain).close()
    except OSError:
        return False
    return True


def test_a_replica_that_goes_hands_over_and_answers_webhooks_for_a_while(plane: ControlPlane) -> None:
    """Anyone who has not learned yet that it goes still calls it."""
    first = plane.controller("going", election=True)
    first.shutdown_delay = 20.0
    first.start()
    first.await_work()
    eventually(lambda: readiness(first) == 200)
    second = plane.controller("coming", election=True).start()
    try:
        before = leader(plane)
        os.kill(first.pid, signal.SIGTERM)
        eventually(lambda: readiness(first) == 503)
        eventually(lambda: leader(plane) != before)

        assert first.is_alive
        assert answers_webhooks(first)
        second.await_work()
        eventually(lambda: not first.is_alive)
        assert first.stop() == 0
    finally:
        first.kill()
        second.stop()


def test_an_api_server_that_is_away_for_a_while_is_no_loss(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    plane.stand_ins.outcome = lambda _job: str(time.sleep(0.1) or 0.5)
    plane.submit("demo", namespace, maxTrialCount=40, parallelTrialCount=4)
    eventually(lambda: len(plane.trials(namespace)) > 5)
    logged = len(controller.log.read_bytes())
    plane.server.stop()
    eventually(lambda: b"Reconcile postponed" in controller.log.read_bytes()[logged:], "the controller to notice")
    plane.server.start()

    assert_ran_once(plane, namespace, "demo", 40)
    assert controller.is_alive


def test_revisions_that_etcd_forgot_are_listed_anew(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    plane.stand_ins.outcome = lambda _job: str(time.sleep(0.1) or 0.5)
    plane.submit("demo", namespace, maxTrialCount=30, parallelTrialCount=4)
    eventually(lambda: len(plane.trials(namespace)) > 5)
    plane.server.expire()

    assert_ran_once(plane, namespace, "demo", 30)
    assert controller.is_alive


def test_a_second_writer_who_edits_everything_all_the_time_is_no_harm(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    stopping = threading.Event()
    kinds = (EXPERIMENT, SUGGESTION, TRIAL)
    edits: Counter[Kind] = Counter()

    def storm() -> None:
        while not stopping.is_set():
            for kind in kinds:
                for obj in plane.store.list(kind, namespace).items[-5:]:
                    with suppress(KatibError):
                        labels = {**obj["metadata"].get("labels", {}), "storm": str(edits.total())}
                        edited = plane.store.update({**obj, "metadata": {**obj["metadata"], "labels": labels}})
                        status = {**(edited.get("status") or {}), "lastReconcileTime": "2024-01-01T00:00:00Z"}
                        plane.store.update_status({**edited, "status": status})
                        edits[kind] += 1

    def end_after_edits(_job: Object) -> str:
        before = edits.copy()
        eventually(lambda: stopping.is_set() or all(edits[one] > before[one] for one in kinds))
        return "0.5"

    plane.stand_ins.outcome = end_after_edits
    writer = threading.Thread(target=storm)
    writer.start()
    try:
        plane.submit("demo", namespace, maxTrialCount=20, parallelTrialCount=4)
        assert_ran_once(plane, namespace, "demo", 20)
    finally:
        stopping.set()
        writer.join()
    assert min(edits[one] for one in kinds) >= 20
    assert controller.is_alive


def test_a_database_that_is_away_holds_trials_up_and_loses_none(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    plane.submit("demo", namespace, maxTrialCount=30, parallelTrialCount=4)
    eventually(lambda: len(plane.trials(namespace)) > 5)
    plane.stop_db_manager()
    before = len(plane.trials(namespace))
    eventually(lambda: all(len(job.get("status") or ()) for job in plane.store.list(STAND_IN, namespace).items))
    never(lambda: len(plane.trials(namespace)) > before + 4, seconds=1)  # those whose readings were being read may end
    assert before + 4 < 30
    plane.start_db_manager()

    assert_ran_once(plane, namespace, "demo", 30)
    assert controller.is_alive


def test_deletion_leaves_nothing_also_while_the_database_is_away(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    plane.submit("demo", namespace, maxTrialCount=6, parallelTrialCount=3)
    plane.wait_for_end("demo", namespace)
    plane.stop_db_manager()
    try:
        plane.store.delete(EXPERIMENT, Key(namespace, "demo"))

        def nothing_left() -> bool:
            return not any(
                plane.store.list(kind, namespace).items for kind in (EXPERIMENT, SUGGESTION, TRIAL, STAND_IN)
            )

        eventually(nothing_left)
    finally:
        plane.start_db_manager()
    assert controller.is_alive


def test_a_namespace_may_go_under_a_running_experiment(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    plane.stand_ins.outcome = lambda _job: None
    plane.submit("demo", namespace, maxTrialCount=6, parallelTrialCount=3)
    eventually(lambda: len(plane.store.list(STAND_IN, namespace).items) == 3)
    plane.store.delete(Kind("v1", "Namespace"), Key("", namespace))

    def is_gone() -> bool:
        return namespace not in {obj["metadata"]["name"] for obj in plane.store.list(Kind("v1", "Namespace")).items}

    eventually(is_gone, seconds=180)
    assert controller.is_alive
    plane.namespace(namespace)
    plane.stand_ins.outcome = lambda _job: "0.5"
    plane.submit("demo", namespace, maxTrialCount=3, parallelTrialCount=3)
    assert ended(plane.wait_for_end("demo", namespace)) == MAX_TRIALS_REACHED


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("no objective", {"objective": None}, "spec.objective"),
    ("unknown algorithm", {"algorithm": {"algorithmName": "nonesuch"}}, "nonesuch"),
    (
        "bounds",
        {"parameters": [{"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "2", "max": "1"}}]},
        "min",
    ),
]


@pytest.mark.parametrize(("changes", "told"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_an_experiment_that_no_webhook_saw_and_that_is_wrong_fails_and_says_why(
    plane: ControlPlane, namespace: str, controller: ControllerProcess, changes: dict[str, Any], told: str
) -> None:
    plane.submit("demo", namespace, **changes)
    experiment = plane.wait_for_end("demo", namespace)

    assert ended(experiment) == "ExperimentFailed"
    message = experiment["status"]["conditions"][-1]["message"]
    assert message.startswith("Experiment is invalid: ")
    assert told in message
    assert not plane.trials(namespace)
    assert controller.is_alive


def test_an_algorithm_that_was_offered_a_moment_ago_is_known_to_a_controller_that_has_just_looked(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    """The webhook of another replica may know it already, and takes the experiment."""
    plane.submit("before", namespace, algorithm={"algorithmName": "nonesuch"})
    assert ended(plane.wait_for_end("before", namespace)) == "ExperimentFailed"
    plane.add_service("late", f"127.0.0.1:{free_port()}")
    plane.submit("demo", namespace, algorithm={"algorithmName": "late"})

    eventually(lambda: plane.store.list(SUGGESTION, namespace).items)
    assert not ended(plane.experiment("demo", namespace))
    assert controller.is_alive


def test_budget_and_parallelism_may_be_edited_while_it_runs(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    held: list[str] = []

    def outcome(job: Object) -> str | None:
        held.append(job["metadata"]["name"])
        return None

    plane.stand_ins.outcome = outcome
    plane.submit("demo", namespace, maxTrialCount=20, parallelTrialCount=2)
    eventually(lambda: len(plane.store.list(STAND_IN, namespace).items) == 2)
    edit(plane, "demo", namespace, parallelTrialCount=5)
    eventually(lambda: len(plane.store.list(STAND_IN, namespace).items) == 5)
    edit(plane, "demo", namespace, parallelTrialCount=2, maxTrialCount=8)
    plane.stand_ins.outcome = lambda _job: "0.5"
    for job in plane.store.list(STAND_IN, namespace).items:
        plane.stand_ins.end(job, "0.5")

    assert_ran_once(plane, namespace, "demo", 8)
    assert controller.is_alive


@pytest.mark.parametrize(
    ("budget", "unit", "more"),
    [("2s", "hours", "1h"), ("0.002 gpu-hours", "gpu", "9 gpu-hours"), ("$0.02", "$", "$99")],
)
def test_a_budget_that_is_spent_ends_jobs_and_a_larger_one_lets_the_experiment_go_on(
    plane: ControlPlane, namespace: str, controller: ControllerProcess, budget: str, unit: str, more: str
) -> None:
    """Each trial has two cards at $9 an hour; the first one ends by itself, others run when the budget ends."""
    made = an_experiment_of_stand_ins("demo", namespace, maxTrialCount=6, resumePolicy="LongRunning")
    job = made["spec"]["trialTemplate"]["trialSpec"]
    job["spec"]["resources"] = {"limits": {"nvidia.com/gpu": 2}}
    made["metadata"]["annotations"] = {LIMITS.name: budget, PRICES.name: "gpu=9"}
    began: list[str] = []

    def outcome(job: Object) -> str | None:
        began.append(job["metadata"]["name"])
        return "0.5" if began[0] == began[-1] else None

    plane.stand_ins.outcome = outcome
    plane.store.create(made)

    assert ended(plane.wait_for_end("demo", namespace)) == "ExperimentBudgetSpent"
    eventually(lambda: not plane.store.list(STAND_IN, namespace).items)
    (usage,) = eventually(lambda: status_of(plane, "demo", namespace).get("budgetUsage"))
    assert usage["unit"] == unit
    assert float(usage["used"]) >= float(usage["limit"]) * (1 - 1e-6)
    killed = len(plane.trials(namespace)) - 1
    eventually(
        lambda: status_of(plane, "demo", namespace).get("trialsKilled") == killed >= 1,
        picture=lambda: str(plane.trials(namespace)),
    )
    assert plane.experiment("demo", namespace)["status"]["conditions"][-1]["type"] == "Succeeded"

    plane.stand_ins.outcome = lambda _job: "0.5"
    stored = plane.experiment("demo", namespace)
    plane.store.patch(stored, {"metadata": {"annotations": {LIMITS.name: more}}})
    eventually(lambda: status_of(plane, "demo", namespace).get("trialsSucceeded", 0) + killed == 6)
    assert controller.is_alive


def edit(plane: ControlPlane, name: str, namespace: str, **spec: Any) -> None:
    def change() -> bool:
        with suppress(KatibError):
            experiment = plane.experiment(name, namespace)
            plane.store.update({**experiment, "spec": {**experiment["spec"], **spec}})
            return True
        return False

    eventually(change)


ODD_FORMS: list[tuple[str, dict[str, Any]]] = [
    ("the official SDK's empty list", {"objective": {**OBJECTIVE, "additionalMetricNames": []}}),
    ("nulls", {"maxFailedTrialCount": None, "parallelTrialCount": None, "objective": {**OBJECTIVE, "goal": None}}),
    (
        "bare numbers and an empty list",
        {
            "parameters": [
                {
                    "name": "lr",
                    "parameterType": "double",
                    "feasibleSpace": {"min": 0.01, "max": 1, "step": None, "list": []},
                }
            ]
        },
    ),
]


@pytest.mark.parametrize("spec", [case[1] for case in ODD_FORMS], ids=[case[0] for case in ODD_FORMS])
def test_what_a_user_stored_stays_byte_for_byte_to_the_end(
    plane: ControlPlane, namespace: str, controller: ControllerProcess, spec: dict[str, Any]
) -> None:
    """From the first finalizer over a larger budget to the deletion."""
    base = an_experiment_of_stand_ins("demo", namespace, maxTrialCount=2)
    stored = plane.store.create({**base, "spec": {**base["spec"], **spec}})["spec"]
    plane.wait_for_end("demo", namespace)
    edit(plane, "demo", namespace, maxTrialCount=3)
    ended_with = plane.experiment("demo", namespace)["spec"]
    plane.store.delete(EXPERIMENT, Key(namespace, "demo"))
    eventually(lambda: not plane.store.list(EXPERIMENT, namespace).items)

    assert ended_with == {**stored, "maxTrialCount": 3}
    assert plane.guard.seen > 0
    assert plane.guard.broken == []
    assert controller.is_alive


def test_the_rights_of_the_manifests_are_enough_from_the_first_finalizer_to_the_deletion(
    plane: ControlPlane, namespace: str
) -> None:
    controller = plane.controller("just-its-rights")
    controller.kubeconfig = plane.server.user("controller-rights", rules_of_the_controller())
    controller.start()
    try:
        controller.await_work()
        plane.submit("demo", namespace, maxTrialCount=2, resumePolicy="LongRunning")
        plane.wait_for_end("demo", namespace)
        edit(plane, "demo", namespace, maxTrialCount=3)
        eventually(lambda: status_of(plane, "demo", namespace).get("trialsSucceeded") == 3)
        plane.store.delete(EXPERIMENT, Key(namespace, "demo"))
        eventually(lambda: not plane.store.list(EXPERIMENT, namespace).items)

        assert b"cannot" not in controller.log.read_bytes()
        assert b" may not " not in controller.log.read_bytes()
    finally:
        controller.stop()
        plane.server.forget_user("controller-rights")


def test_a_hundred_parameters_and_a_template_of_a_megabyte_run(
    plane: ControlPlane, namespace: str, controller: ControllerProcess
) -> None:
    parameters = [a_double(f"p{i}") for i in range(100)]
    plane.submit("demo", namespace, maxTrialCount=2, parallelTrialCount=2)
    base = plane.experiment("demo", namespace)["spec"]["trialTemplate"]
    template = {
        **base,
        "trialParameters": [{"name": f"p{i}", "reference": f"p{i}"} for i in range(100)],
        "trialSpec": {
            **base["trialSpec"],
            "spec": {**{f"p{i}": f"${{trialParameters.p{i}}}" for i in range(100)}, "ballast": "x" * 1_000_000},
        },
    }
    plane.submit(
        "wide", namespace, maxTrialCount=2, parallelTrialCount=2, parameters=parameters, trialTemplate=template
    )

    assert ended(plane.wait_for_end("wide", namespace)) == MAX_TRIALS_REACHED
    assert ended(plane.wait_for_end("demo", namespace)) == MAX_TRIALS_REACHED
    assert controller.is_alive


def test_a_restart_writes_nothing_when_nothing_changed(plane: ControlPlane, namespace: str) -> None:
    first = plane.controller("before").start()
    plane.submit("demo", namespace, maxTrialCount=20, parallelTrialCount=10)
    assert_ran_once(plane, namespace, "demo", 20)
    await_quiet(first)  # other tests' experiments are still being deleted, which takes writes
    first.stop()
    versions = revisions(plane, namespace)
    second = plane.controller("after").start()
    try:
        second.await_work()
        never(lambda: revisions(plane, namespace) != versions, seconds=3)

        of_others = ('resource="secrets"', 'resource="events",status="404"')
        writes = [line for line in requests_of(second, *WRITES) if not any(words in line for words in of_others)]
        assert writes == []  # but the webhooks' certificate, and events of namespaces that earlier tests removed
    finally:
        second.stop()


def await_quiet(controller: ControllerProcess, *, seconds: float = 3) -> None:
    """Wait until a controller has written nothing for some seconds."""
    seen, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        if (count := len(requests_of(controller, *WRITES))) != seen:
            seen, since = count, time.monotonic()
        return time.monotonic() - since > seconds

    eventually(is_quiet, "the controller to write no more", every=0.1)


def revisions(plane: ControlPlane, namespace: str) -> dict[str, str]:
    kinds = (EXPERIMENT, SUGGESTION, TRIAL)
    found = [obj for kind in kinds for obj in plane.store.list(kind, namespace).items]
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"] for obj in found}


def test_jobs_of_an_earlier_version_without_label_are_judged_by_the_next_controller(
    plane: ControlPlane, namespace: str
) -> None:
    plane.stand_ins.outcome = lambda _job: None
    before = plane.controller("earlier").start()
    plane.submit("demo", namespace, maxTrialCount=3, parallelTrialCount=3)
    eventually(lambda: status_of(plane, "demo", namespace).get("trialsRunning") == 3)
    before.kill()
    for job in plane.store.list(STAND_IN, namespace).items:
        metadata = {name: value for name, value in job["metadata"].items() if name != "labels"}
        plane.store.update({**job, "metadata": metadata})
    ended_meanwhile, *others = plane.store.list(STAND_IN, namespace).items
    plane.stand_ins.end(ended_meanwhile, "0.5")
    after = plane.controller("later").start()
    try:
        eventually(
            lambda: status_of(plane, "demo", namespace).get("trialsSucceeded") == 1,
            picture=lambda: plane.picture(plane.experiment("demo", namespace)),
        )
        for job in others:
            plane.stand_ins.end(job, "0.5")

        assert_ran_once(plane, namespace, "demo", 3)
    finally:
        after.stop()
