"""What a pod's status says about its trial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from katib.engine.controllers.ports import NO_UPDATE, PodUpdate
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.informer import InformerEvent
from katib.engine.runtime.objects import EventType, Key
from katib.model.failure_text import failure_cause
from katib.model.job_kinds import is_suspended, retry_words
from katib.model.types import CollectorSpec, MetricsCollectorSpec, Trial
from katib.places.cluster.leader.leading import judged_part
from katib.places.cluster.pods.reading import POD, PodFacts, TrialPodCache, facts_of
from katib.places.cluster.pods.workloads import WORKLOADS, WorkloadFacts, Workloads, workload_facts
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.planning import holding, trial
from tests.support.waiting import eventually

PUSH = MetricsCollectorSpec(collector=CollectorSpec(kind="Push"))
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def pod(name: str = "demo-1-x", *, trial_name: str = "demo-1", **status: Any) -> dict[str, Any]:
    labels = {"katib.kubeflow.org/trial": trial_name}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


def container(name: str = "main", last: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    return {"name": name, "image": "img:1", "state": state, "lastState": last or {}}


def waits(reason: str, last: dict[str, Any] | None = None, **fields: str) -> dict[str, Any]:
    return {"containerStatuses": [container(last=last, waiting={"reason": reason, **fields})]}


def terminated(code: int, reason: str = "Error", at: str = "2024-05-01T12:00:00Z", **fields: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at, **fields}}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(frozenset())


@pytest.fixture
def pods(store: MemoryStore) -> Iterator[TrialPodCache]:
    """The pods of trials, not followed before the test starts the informer."""
    pods = TrialPodCache(store, SystemClock())
    yield pods
    pods.informer.stop()


DEMO = Key("default", "demo-1")


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        ({"phase": "Pending", **waits("ContainerCreating")}, ""),
        ({"phase": "Running", "containerStatuses": [container(running={})]}, ""),
        (waits("ErrImagePull"), 'image "img:1" of container main in pod {} cannot be pulled'),
        (waits("ImagePullBackOff"), 'image "img:1" of container main in pod {} cannot be pulled'),
        (
            {"initContainerStatuses": [container("init", waiting={"reason": "InvalidImageName"})]},
            'image "img:1" of container init in pod {} cannot be pulled',
        ),
        (
            waits("CreateContainerConfigError", message="no secret"),
            "container main in pod {} cannot be started: no secret",
        ),
        (
            waits("CrashLoopBackOff", terminated(3)),
            "container main in pod {} ended with exit code 3 and is restarted with growing pauses",
        ),
        ({"conditions": [{**UNSCHEDULED, "message": "no cpu"}]}, "pod {} cannot be scheduled: no cpu"),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], waiting: str) -> None:
    assert facts_of(pod(**status)).waiting == waiting.format("demo-1-x")


@pytest.mark.parametrize("gates", [["kueue.x-k8s.io/admission"], ["example.com/a", "example.com/b"]])
def test_what_a_gated_pod_waits_for(gates: list[str], golden: Golden) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "non-empty gates"}
    gated = pod(conditions=[condition], phase="Pending")
    gated["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq"

    golden(facts_of({**gated, "spec": {"schedulingGates": [{"name": name} for name in gates]}}).waiting)


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [container(**terminated(0, "Completed"))]},
        {"containerStatuses": [container(**terminated(2))]},
        {"containerStatuses": [container(**terminated(137, "OOMKilled"))]},
        {"containerStatuses": [container("metrics-logger-and-collector", **terminated(1))]},
        {"phase": "Failed", "reason": "Evicted", "message": "disk"},
    ],
)
def test_how_a_pod_failed(status: dict[str, Any], golden: Golden) -> None:
    golden(facts_of(pod(**status)).failure)


COLLECTOR = "metrics-logger-and-collector"


@pytest.mark.parametrize(
    ("ended", "report"),
    [
        (terminated(0, "Completed"), ""),
        (terminated(0, "Completed", message="all readings are stored"), ""),
        (terminated(137, message="all readings are stored\nnone matched"), "none matched"),
        (terminated(0, "Completed", message="3 lines, none matched"), "3 lines, none matched"),
        (
            terminated(0, "Completed", message="not all readings are stored: 2 were refused\nlast output: x"),
            "last output: x",
        ),
        (terminated(137, "OOMKilled"), ""),
        (terminated(137), ""),
        (terminated(2, message="-t: missing"), "-t: missing"),
    ],
    ids=["katib's", "stored", "stored-and-killed", "told", "not-stored", "memory", "killed", "refused"],
)
@pytest.mark.parametrize("where", ["initContainerStatuses", "containerStatuses"], ids=["native", "ordinary"])
def test_a_collector_that_has_not_stored_everything_says_so_or_was_killed(
    where: str, ended: dict[str, Any], golden: Golden, report: str
) -> None:
    facts = facts_of(pod(phase="Succeeded", **{where: [container(COLLECTOR, **ended)]}))

    golden(facts.incomplete)
    assert facts.report == report
    assert facts.collecting == ""


def test_a_collector_is_at_work_until_it_or_its_pod_has_ended(golden: Golden) -> None:
    runs = {"initContainerStatuses": [container(COLLECTOR, last=terminated(137, "OOMKilled"), running={})]}
    deleted = pod(phase="Running", **runs)
    deleted["metadata"]["deletionTimestamp"] = "2024-05-01T12:00:00Z"

    golden(facts_of(pod(phase="Running", **runs)).collecting)
    assert facts_of(pod(phase="Running", **runs)).incomplete == ""
    assert facts_of(pod(phase="Succeeded", **runs)).collecting == ""
    assert facts_of(deleted).collecting == ""


@pytest.mark.parametrize(
    ("where", "own", "policy", "code", "collecting"),
    [
        ("initContainers", {"restartPolicy": "Always"}, "Never", 137, True),
        ("initContainers", {"restartPolicy": "Always"}, "Never", 0, True),
        ("containers", {}, "OnFailure", 137, True),
        ("containers", {}, "OnFailure", 0, False),
        ("containers", {}, "Always", 0, True),
        ("containers", {}, "Never", 137, False),
    ],
)
def test_a_collector_that_will_be_started_again_has_not_ended(
    where: str, own: dict[str, str], policy: str, code: int, *, collecting: bool
) -> None:
    between = pod(phase="Running", **{f"{where[:-1]}Statuses": [container(COLLECTOR, **terminated(code))]})
    between["spec"] = {"restartPolicy": policy, where: [{"name": COLLECTOR, **own}]}
    final = {**between, "status": {**between["status"], "phase": "Succeeded"}}

    facts = facts_of(between)

    assert bool(facts.collecting) is collecting
    assert bool(facts.incomplete) is (code != 0 and not collecting)
    assert bool(facts_of(final).incomplete) is (code != 0)


def test_what_a_pod_says_last_of_its_readings_counts(store: MemoryStore, pods: TrialPodCache) -> None:
    pods.informer.start()
    one = pod(phase="Running", initContainerStatuses=[container(COLLECTOR, **terminated(137))])
    store.create(one)  # without a spec it cannot be seen that the collector will be started again
    eventually(lambda: pods.update_of(trial("demo-1")).incomplete)
    stored = container(COLLECTOR, last=terminated(137), **terminated(0, "Completed", message="all readings are stored"))
    found = store.get(POD, Key("default", "demo-1-x"))
    store.update({**found, "status": {"phase": "Succeeded", "initContainerStatuses": [stored]}})
    eventually(lambda: not pods.update_of(trial("demo-1")).incomplete)
    store.delete(POD, Key("default", "demo-1-x"))
    eventually(lambda: not pods.informer.count(DEMO))

    assert pods.update_of(trial("demo-1")) == NO_UPDATE


STORED = {"message": "all readings are stored"}


@pytest.mark.parametrize(
    ("last", "state", "started", "incomplete"),
    [
        (terminated(137), {"waiting": {"reason": "CrashLoopBackOff"}}, "11:59", "ended with exit code 137"),
        (terminated(0, **STORED), {"waiting": {"reason": "CrashLoopBackOff"}}, "11:59", ""),
        (terminated(0, **STORED), terminated(143, at="2024-05-01T12:01:00Z"), "11:59", ""),
        (terminated(0, **STORED), terminated(143, at="2024-05-01T12:01:00Z"), "12:00:30", "was started again"),
        (terminated(137), terminated(143, at="2024-05-01T12:01:00Z"), "11:59", "ended with exit code 143"),
    ],
    ids=["killed-before-it-stored", "stored", "killed-after-it-stored", "program-again", "killed-twice"],
)
def test_what_the_last_collector_with_something_to_store_said_counts(
    last: dict[str, Any], state: dict[str, Any], started: str, incomplete: str
) -> None:
    main = container(**terminated(0, "Completed", startedAt=f"2024-05-01T{started}Z"))
    over = pod(phase="Succeeded", initContainerStatuses=[container(COLLECTOR, last, **state)], containerStatuses=[main])
    over["spec"] = {
        "restartPolicy": "Never",
        "initContainers": [{"name": COLLECTOR, "restartPolicy": "Always"}],
        "containers": [PROGRAM],
    }

    found = facts_of(over).incomplete

    assert incomplete in found
    assert bool(found) is bool(incomplete)


PROGRAM = {"name": "main", "command": ["sh", "-c", "echo completed > /var/log/katib/$$$$.pid"]}


@pytest.mark.parametrize(
    ("containers", "late", "why"),
    [
        ([PROGRAM], "main", "container main in pod demo-1-x was started again after container {} had ended"),
        ([PROGRAM, {"name": "proxy"}], "proxy", ""),
        ([{"name": "main"}], "main", "container main in pod demo-1-x was started again after container {} had ended"),
        ([PROGRAM], "", ""),
    ],
    ids=["program", "another", "not-wrapped", "in-time"],
)
def test_a_program_that_was_started_after_its_collector_had_ended_makes_no_value(
    containers: list[dict[str, Any]], late: str, why: str
) -> None:
    """As where a rule of another container starts all containers of the pod again."""
    ends = {
        name: terminated(
            0, "Completed", "2024-05-01T12:09:00Z", startedAt=f"2024-05-01T12:00:0{7 if name == late else 5}Z"
        )
        for name in (c["name"] for c in containers)
    }
    said = terminated(0, "Completed", "2024-05-01T12:00:05Z", message="all readings are stored")
    statuses = [container(COLLECTOR, **said), *(container(name, **end) for name, end in ends.items())]
    one = pod(phase="Succeeded", containerStatuses=statuses)
    one["spec"] = {"restartPolicy": "Never", "containers": [*containers, {"name": COLLECTOR}]}

    assert facts_of(one).incomplete == why.format(COLLECTOR)


def test_a_pod_without_status_says_nothing() -> None:
    bare = pod()
    del bare["status"]

    labels = frozenset({("katib.kubeflow.org/trial", "demo-1")})
    assert facts_of(bare) == PodFacts(DEMO, labels=labels)


def test_news_follow_the_pods_and_a_failure_outlives_its_pod(store: MemoryStore, pods: TrialPodCache) -> None:
    woken: list[Key] = []
    pods.on_change(woken.append)
    pods.informer.start()
    store.create(pod(containerStatuses=[container(**terminated(2))]))
    eventually(lambda: pods.update_of(trial("demo-1")).last_failure)
    store.delete(POD, Key("default", "demo-1-x"))
    eventually(lambda: not pods.informer.count(DEMO))
    remembered = pods.update_of(trial("demo-1"))
    pods.follow(InformerEvent(EventType.DELETED, DEMO, None, None))

    assert remembered == PodUpdate(last_failure="Container main in pod demo-1-x ended with exit code 2")
    assert pods.update_of(trial("demo-1")) == NO_UPDATE
    assert set(woken) == {DEMO}


def test_readings_that_are_missing_are_remembered_beyond_the_pod_but_not_those_of_a_failed_try(
    store: MemoryStore, pods: TrialPodCache, golden: Golden
) -> None:
    before = pods.update_of(trial("demo-1"))
    killed = container(COLLECTOR, **terminated(137))
    pods.informer.start()
    store.create(pod("lost", phase="Succeeded", initContainerStatuses=[killed]))
    store.create(pod("tried", trial_name="demo-2", phase="Failed", containerStatuses=[killed]))
    eventually(lambda: pods.update_of(trial("demo-1")).incomplete)
    eventually(lambda: pods.update_of(trial("demo-2")).lost)
    store.delete(POD, Key("default", "lost"))
    eventually(lambda: not pods.informer.count(DEMO))

    golden(before.collecting)
    assert "pod lost" in pods.update_of(trial("demo-1")).incomplete
    assert pods.update_of(trial("demo-1")).collecting == ""
    assert pods.update_of(trial("demo-2")).incomplete == ""
    assert pods.update_of(trial("demo-1", metrics_collector=PUSH)) == NO_UPDATE


def test_what_ends_because_its_job_is_suspended_counts_for_nothing(store: MemoryStore, pods: TrialPodCache) -> None:
    """Neither what its pods said before the suspension was seen, nor what they say as they go."""
    suspended = trial("demo-1", holding("Running", "TrialSuspended", status="False"))
    killed = [container(**terminated(143)), container(COLLECTOR, **terminated(137))]
    pods.informer.start()
    store.create(pod("early", phase="Running", containerStatuses=killed))
    eventually(lambda: pods.update_of(suspended).incomplete)
    pods.follow(InformerEvent(EventType.MODIFIED, DEMO, None, suspended))
    store.create(pod("late", phase="Running", containerStatuses=killed))
    eventually(lambda: pods.informer.count(DEMO) == 2)
    pods.follow(InformerEvent(EventType.MODIFIED, DEMO, None, trial("demo-1", holding("Running"))))
    update = pods.update_of(suspended)
    store.create(pod("new", phase="Running", containerStatuses=killed[:1]))
    eventually(lambda: pods.update_of(suspended).last_failure)

    assert (update.incomplete, update.last_failure) == ("", "")
    assert "pod new" in pods.update_of(suspended).last_failure


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "kept"),
    [
        ("batch/v1", "Job", {"suspend": True, "template": {}}, {"suspend": True}),
        ("kubeflow.org/v1", "TFJob", {"runPolicy": {"suspend": True}}, {"runPolicy": {"suspend": True}}),
        ("ray.io/v1", "RayJob", {"suspend": True, "entrypoint": "x"}, {"suspend": True}),
        ("batch/v1", "Job", {"suspend": False}, None),
    ],
)
def test_what_is_kept_of_a_job_says_that_it_is_suspended(
    api_version: str, kind: str, spec: dict[str, Any], kept: dict[str, Any] | None
) -> None:
    metadata = {"name": "demo-1", "ownerReferences": [{"kind": "Trial"}]}
    part = judged_part({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})

    assert part.get("spec") == kept
    assert is_suspended(part) is (kept is not None)


ROOM = {"type": "QuotaReserved", "status": "False", "message": "2 more  needed."}
EVICTED = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": ""}
RESERVED = {"type": "QuotaReserved", "status": "True", "message": "Quota reserved in ClusterQueue team"}
CHECK = {"name": "provisioning", "state": "Pending", "message": ""}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({}, ""),
        ({"conditions": [ROOM]}, "2 more needed"),
        ({"conditions": [EVICTED, ROOM]}, "Preempted; 2 more needed"),
        ({"conditions": [ROOM | {"type": "Evicted", "status": "True"}, ROOM]}, "2 more needed"),
        ({"conditions": [RESERVED], "admissionChecks": [CHECK]}, "admission check provisioning: Pending"),
        ({"conditions": [RESERVED], "admissionChecks": [CHECK | {"state": "Ready"}]}, ""),
        ({"conditions": [ROOM, {"type": "Admitted", "status": "True"}]}, ""),
        ({"conditions": [ROOM | {"message": "x" * 600}]}, "x" * 497 + "..."),
    ],
    ids=["new", "no room", "preempted", "said twice", "not checked", "checked", "admitted", "long"],
)
def test_what_kueue_says_of_a_job(status: dict[str, Any], reason: str) -> None:
    metadata = {"name": "job-demo-1", "namespace": "default", "ownerReferences": [{"name": "x", "kind": "Gizmo"}]}

    assert workload_facts({"metadata": metadata, "status": status}) == WorkloadFacts(Key("default", ""), "", reason)


def test_a_job_that_kueue_queues_by_itself_says_so_once_it_is_suspended() -> None:
    store, kind = MemoryStore(frozenset()), WORKLOADS[1]
    workloads = Workloads(store, lambda asked: asked == kind, SystemClock())
    job = store.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "demo-1", "namespace": "default"}}
    )
    owners = [{"name": "demo-1", "kind": "Job", "uid": job["metadata"]["uid"], "controller": True}]
    metadata = {"name": "job-demo-1", "namespace": "default", "ownerReferences": owners}
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {"queueName": "all"}}
    store.create({**made, "status": {"conditions": [ROOM]}})
    runs = trial("demo-1", holding("Running"))
    waits = trial("demo-1", holding("Running", "TrialSuspended", status="False"))

    def said_by(made: Trial) -> str:
        workloads.words_of(made)
        workloads.look()
        return workloads.words_of(made)

    assert said_by(runs) == ""
    eventually(lambda: said_by(waits) == "waits in Kueue's queue all: 2 more needed", picture=lambda: said_by(waits))
    workloads.stop()


@pytest.mark.parametrize(
    ("phase", "role", "is_active"),
    [
        ("Running", "master", True),
        ("Pending", "master", True),
        ("Failed", "master", False),
        ("Running", "worker", False),
    ],
)
def test_only_a_primary_pod_that_may_still_run_is_an_active_one(
    store: MemoryStore, pods: TrialPodCache, phase: str, role: str, *, is_active: bool
) -> None:
    one = pod(phase=phase)
    one["metadata"]["labels"]["role"] = role
    store.create(one)
    pods.informer.start()
    assert pods.informer.wait_for_sync(10)
    assert pods.has_active_pod(trial("demo-1", primary_pod_labels={"role": "master"})) is is_active


@pytest.mark.parametrize(
    ("status", "runs"),
    [
        ({"phase": "Running"}, True),
        ({"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {}}}]}, False),
        ({"phase": "Pending", "initContainerStatuses": [{"name": "data", "state": {"running": {}}}]}, True),
        ({"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}, True),
        (
            {
                "phase": "Running",
                "initContainerStatuses": [{"name": "metrics-logger-and-collector", "state": {"running": {}}}],
                "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
            },
            False,
        ),
        ({"phase": "Succeeded"}, False),
    ],
    ids=["phase", "created", "init container", "runs", "only its collector", "over"],
)
def test_a_pod_runs_while_a_container_of_the_job_does(status: dict[str, Any], runs: bool) -> None:
    assert facts_of({"metadata": {"name": "p", "namespace": "ns"}, "status": status}).runs is runs


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        pytest.param("last output: KeyError: 3", terminated(1), id="an exception"),
        pytest.param("", terminated(1, ""), id="no output"),
        pytest.param("last output: epoch 7", terminated(137, "OOMKilled"), id="out of memory"),
    ],
)
def test_the_cause_of_a_failure_comes_before_how_the_container_ended(
    said: str, ended: dict[str, Any], golden: Golden
) -> None:
    collectors = [container(COLLECTOR, **terminated(0, message=said))] if said else []

    facts = facts_of(pod(containerStatuses=[container(**ended), *collectors]))

    golden(failure_cause(facts.failure))
    assert facts.report == ""


SAID = "epoch 1\nTraceback (most recent call last):\nCUDA out of memory\n"


def restarted(*, running: bool = False, **now: Any) -> dict[str, Any]:
    """Return a program whose first try failed by itself, and what became of the second."""
    state = {"running": {}} if running else now
    return {**container(last=terminated(1, at="2024-05-01T12:00:03Z", message=SAID), **state), "restartCount": 1}


def test_a_try_that_was_ended_with_its_pod_is_not_the_cause_and_its_last_line_is_not_of_another_try(
    golden: Golden,
) -> None:
    """The job has no try left once the first has failed, and ends the second, which was only starting."""
    said = container(COLLECTOR, **terminated(0, message="all readings are stored\nlast output: accuracy=0.1"))
    one = pod(containerStatuses=[restarted(**terminated(143, at="2024-05-01T12:00:05Z")), said])
    one["metadata"] |= {"deletionTimestamp": "2024-05-01T12:00:34Z", "deletionGracePeriodSeconds": 30}

    golden(failure_cause(facts_of(one).failure))
    assert facts_of(one).report == ""
    one["metadata"] |= {"deletionTimestamp": "2024-05-01T12:00:07Z", "deletionGracePeriodSeconds": 0}
    golden(failure_cause(facts_of(one).failure))


def test_a_program_that_was_only_ended_with_its_pod_says_so(golden: Golden) -> None:
    one = pod(containerStatuses=[container(**terminated(143, at="2024-05-01T12:00:04Z"))])
    one["metadata"] |= {"deletionTimestamp": "2024-05-01T12:00:34Z", "deletionGracePeriodSeconds": 30}

    golden(failure_cause(facts_of(one).failure))


def test_what_a_shell_prints_of_a_killed_program_is_no_last_output(golden: Golden) -> None:
    one = pod(containerStatuses=[container(**terminated(137, "OOMKilled", message="Killed\n"))])

    golden(failure_cause(facts_of(one).failure))


def test_a_program_that_failed_before_its_pod_was_deleted_is_the_cause() -> None:
    one = pod(containerStatuses=[container(**terminated(1, at="2024-05-01T12:00:03Z", message=SAID))])
    one["metadata"] |= {"deletionTimestamp": "2024-05-01T12:00:34Z", "deletionGracePeriodSeconds": 30}

    assert facts_of(one).failed_at == "2024-05-01T12:00:03Z"


def test_the_cause_is_told_while_the_program_restarts(store: MemoryStore, pods: TrialPodCache, golden: Golden) -> None:
    pods.informer.start()
    looping = {**restarted(waiting={"reason": "CrashLoopBackOff"}), "restartCount": 2}
    golden(facts_of(pod(containerStatuses=[looping])).waiting)

    store.create(pod(containerStatuses=[restarted(running=True)]))
    update = eventually(lambda: found if (found := pods.update_of(trial("demo-1"))).last_failure else None)
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 3}}
    others = {**job, "kind": "TrainJob"}
    golden(retry_words({}, job, update.last_failure, update.restarts))
    golden(retry_words({}, others, update.last_failure, update.restarts))
