"""Pods of jobs as objects in the store: real processes, a job with roles, and a store that may fail."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from katib.engine.controllers.kinds import POD
from katib.engine.runtime.objects import Key, Kind
from katib.errors import UnavailableError
from katib.places.machine.jobs import pod_objects
from katib.places.machine.jobs.batch.job import JOB, BatchJob
from katib.places.machine.layout import Layout
from katib.places.machine.pods.requests import Capacity
from katib.places.machine.trials.output import TrialOutput
from katib.service.tuning.replicas import has_failed, place_words, replica_name, state_words
from tests.support.faulty_store import FaultyStore
from tests.support.gang_kind import GANG, GangKind, gang
from tests.support.local_jobs import Home, home, job, shell
from tests.support.memory_store import MemoryStore
from tests.support.tuning import make_trial, patched
from tests.support.waiting import eventually

KINDS = (GangKind(),)
FOREVER = "echo up; exec sleep 600"


def gang_store() -> MemoryStore:
    return MemoryStore({JOB, GANG}, uid_kinds=(POD,))


def pods(h: Home) -> dict[str, dict[str, Any]]:
    """Return the stored pods by name."""
    return {pod["metadata"]["name"]: dict(pod) for pod in h.store.list(POD, "ns").items}


def states(h: Home) -> dict[str, str]:
    return {name: state_words(pod) for name, pod in pods(h).items()}


def end_of_gang(h: Home, name: str = "j") -> bool:
    conditions = (h.store.get(GANG, Key("ns", name)).get("status") or {}).get("conditions") or ()
    return any(c["type"] in ("Succeeded", "Failed") for c in conditions)


def test_the_replicas_of_a_job_are_objects_that_it_owns(tmp_path: Path) -> None:
    with home(tmp_path, store=gang_store(), kinds=KINDS) as h:
        owner = h.submit(gang(FOREVER, FOREVER))
        eventually(lambda: set(states(h).values()) == {"Running"} and len(states(h)) == 3)
        worker = pods(h)["j-worker-1"]

    assert worker["metadata"]["labels"]["katib.kubeflow.org/trial"] == "j"
    assert worker["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"
    (reference,) = worker["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == (
        "PyTorchJob",
        owner["metadata"]["uid"],
        True,
    )
    assert worker["spec"] == {"nodeName": "localhost", "containers": [{"name": "main", "image": "none"}]}
    assert (worker["status"]["podIP"], worker["status"]["hostIP"]) == ("127.0.0.1", "127.0.0.1")
    assert worker["status"]["startTime"]
    assert replica_name(worker) == "worker-1"


def test_a_running_replica_names_its_process(tmp_path: Path) -> None:
    with home(tmp_path, store=gang_store(), kinds=KINDS) as h:
        h.submit(gang(FOREVER, FOREVER, workers=1))
        eventually(lambda: set(states(h).values()) == {"Running"})

        os.kill(int(place_words(pods(h)["j-master-0"]).removeprefix("pid ")), 0)


def test_a_replica_that_failed_is_told_from_those_that_its_job_ended(tmp_path: Path) -> None:
    with home(tmp_path, store=gang_store(), kinds=KINDS) as h:
        h.submit(gang(FOREVER, "case $HOSTNAME in *-1) echo boom; exit 3;; esac; exec sleep 600"))
        eventually(lambda: states(h) == {"j-master-0": "Stopped", "j-worker-0": "Stopped", "j-worker-1": "Error"})
        worker = pods(h)["j-worker-1"]
        failed = [name for name, pod in pods(h).items() if has_failed(pod)]

    ended = worker["status"]["containerStatuses"][0]["state"]["terminated"]
    assert failed == ["j-worker-1"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "boom")
    assert ended["startedAt"] <= ended["finishedAt"]


def test_a_pod_has_the_uid_that_its_program_is_told(tmp_path: Path) -> None:
    told = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    with home(tmp_path, store=gang_store()) as h:
        h.submit(job(shell("echo $POD_UID; exec sleep 600", env=[told])))
        (pod,) = eventually(lambda: list(pods(h).values()))
        eventually(lambda: h.log_files() and h.log().endswith("\n"))

        assert h.log().strip() == pod["metadata"]["uid"]


def test_a_pod_with_a_limit_of_its_own_says_how_often_its_index_failed(tmp_path: Path) -> None:
    ignored = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}
    first_then_second = "test -e second && exec sleep 600; test -e first && touch second && exit 1"
    script = f"cd {tmp_path}; {first_then_second}; touch first; exit 42"
    fields = {"completionMode": "Indexed", "completions": 1, "podFailurePolicy": {"rules": [ignored]}}
    with home(tmp_path, store=gang_store()) as h:
        h.submit(job(shell(script), backoffLimitPerIndex=3, **fields))
        (running,) = eventually(lambda: [pod for pod in pods(h).values() if state_words(pod) == "Running"])

    assert _failure_marks(running) == {"job-index-failure-count": "1", "job-index-ignored-failure-count": "1"}


def test_the_first_pod_of_an_index_says_that_none_has_failed(tmp_path: Path) -> None:
    fields = {"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1}
    with home(tmp_path, store=gang_store()) as h:
        h.submit(job(shell(FOREVER), **fields))
        h.submit(job(shell(FOREVER), name="one-limit", completionMode="Indexed", completions=1))
        found = eventually(lambda: sorted(pods(h).items()) if len(pods(h)) == 2 else None)

    assert [_failure_marks(pod) for _, pod in found] == [{"job-index-failure-count": "0"}, {}]


def test_the_objects_go_with_their_job(tmp_path: Path) -> None:
    with home(tmp_path, store=gang_store(), kinds=KINDS) as h:
        h.submit(gang(FOREVER, FOREVER))
        eventually(lambda: len(pods(h)) == 3)
        h.store.delete(GANG, Key("ns", "j"))

        assert pods(h) == {}
        eventually(lambda: not h.runner.runs(Key("ns", "j")))
        assert pods(h) == {}


def test_a_replica_that_is_started_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    once = f"test -e {tmp_path}/again && exec sleep 600; touch {tmp_path}/again; sleep 1; exit 9"
    with home(tmp_path, store=gang_store(), kinds=KINDS) as h:
        h.submit(gang(FOREVER, once, workers=1, restarts=1))
        first = eventually(lambda: pods(h).get("j-worker-0"))
        eventually(lambda: pods(h)["j-worker-0"]["metadata"]["uid"] != first["metadata"]["uid"])
        eventually(lambda: states(h) == {"j-master-0": "Running", "j-worker-0": "Running"})


def test_restarts_in_place_are_counted(tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/again && exec sleep 600; touch {tmp_path}/again; exit 7"
    with home(tmp_path) as h:
        h.submit(job(shell(script), restart="OnFailure", backoffLimit=6))
        eventually(lambda: [p["status"]["containerStatuses"][0]["restartCount"] for p in pods(h).values()] == [1])
        (pod,) = pods(h).values()

    status = pod["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert "running" in status["state"]


def test_a_pod_that_is_gone_with_its_job_in_a_moment_is_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_objects, "APPEAR_SECONDS", 3.0)  # a tiny job may take long on a machine that is busy
    store = gang_store()
    since = store.list(POD).resource_version
    with store.watch(POD, since) as watch:
        with home(tmp_path, store=store) as h:
            for number in range(3):
                h.run(job(shell("true"), name=f"tiny-{number}"))
                h.store.delete(JOB, Key("ns", f"tiny-{number}"))
            h.submit(job(shell(FOREVER), name="long"))
            eventually(lambda: pods(h))  # later than any of the others would be

        first = watch.next(1.0)

    assert first is not None
    assert first.object["metadata"]["name"].startswith("long-")


def test_how_the_pods_of_a_job_that_is_kept_ended_is_written_even_if_that_took_a_moment(tmp_path: Path) -> None:
    with home(tmp_path) as h:
        h.run(job(shell("true")))
        eventually(lambda: list(states(h).values()) == ["Completed"])


def test_a_pod_that_waits_for_room_says_so(tmp_path: Path) -> None:
    request = {"resources": {"requests": {"cpu": "1"}}}
    with home(tmp_path, machine={"capacity": Capacity(Decimal(1), Decimal(2**30))}) as h:
        h.submit(job(shell(FOREVER, **request), name="first"))
        eventually(lambda: "Running" in states(h).values())
        h.submit(job(shell(FOREVER, **request), name="second"))
        eventually(lambda: sorted(states(h).values()) == ["Pending", "Running"])
        eventually(lambda: any("waits for 1 cpu" in str(pod["status"].get("conditions")) for pod in pods(h).values()))


def test_a_failed_write_is_tried_again(tmp_path: Path) -> None:
    store = FaultyStore(gang_store())
    failures = iter(range(4))
    store.fail_on = lambda call: (
        UnavailableError("away")
        if (call.verb, call.kind) == ("create", POD) and next(failures, None) is not None
        else None
    )
    with home(tmp_path, store=store, kinds=KINDS) as h:
        h.submit(gang(FOREVER, FOREVER))
        eventually(lambda: len(states(h)) == 3 and set(states(h).values()) == {"Running"})


def test_objects_of_an_engine_that_was_killed_go_when_the_next_one_starts(tmp_path: Path) -> None:
    store = gang_store()
    owner = store.create(gang(FOREVER, FOREVER, name="cut-off"))
    owner = store.update_status({**owner, "status": {"startTime": "2030-01-01T00:00:00Z"}})
    kept = store.create(job(shell("true"), name="kept"))
    end = {"type": "Complete", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
    store.update_status({**kept, "status": {"conditions": [end]}})
    for name, phase, of in (
        ("cut-off-worker-7", "Running", owner),
        ("cut-off-worker-8", "Succeeded", owner),
        ("kept-abcde", "Succeeded", kept),
    ):
        store.create(_stale(name, phase, of))
    with home(tmp_path, store=store, kinds=KINDS) as h:
        eventually(lambda: set(states(h).values()) == {"Running", "Succeeded"} and len(states(h)) == 4)

        assert set(pods(h)) == {"cut-off-master-0", "cut-off-worker-0", "cut-off-worker-1", "kept-abcde"}


def test_the_end_of_each_replica_is_known_when_the_job_is_gone(tmp_path: Path) -> None:
    files = TrialOutput(Layout(tmp_path))
    trial = patched(make_trial("j", namespace="ns"), spec={"primaryContainerName": "main"})
    with home(tmp_path, store=gang_store(), kinds=KINDS) as h:
        h.submit(gang("exit 0", "sleep 600"))
        eventually(lambda: end_of_gang(h))
        h.store.delete(GANG, Key("ns", "j"))
        eventually(lambda: not h.runner.runs(Key("ns", "j")))
        ended = {replica_name(pod): state_words(dict(pod)) for pod in files.past_pods(trial)}

    assert ended == {"master-0": "Completed", "worker-0": "Stopped", "worker-1": "Stopped"}


def _failure_marks(pod: dict[str, Any]) -> dict[str, str]:
    """Return the annotations of a pod about failures before it, without the prefix of their names."""
    found = {name.rpartition("/")[2]: value for name, value in pod["metadata"]["annotations"].items()}
    return {name: value for name, value in found.items() if name.endswith("failure-count")}


def _stale(name: str, phase: str, owner: Any) -> dict[str, Any]:
    reference = {**dict(zip(("apiVersion", "kind"), Kind.of(owner), strict=True)), "name": owner["metadata"]["name"]}
    metadata = {"name": name, "namespace": "ns", "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {"phase": phase}}


@pytest.mark.parametrize(("kind", "made"), [(JOB, job(shell(FOREVER))), (GANG, gang(FOREVER, FOREVER))])
def test_conditions_that_others_set_stay_until_others_remove_them(
    tmp_path: Path, kind: Kind, made: dict[str, Any]
) -> None:
    key = Key("ns", "j")
    theirs = {"type": "Reviewed", "status": "True"}

    def types(h: Home) -> set[str]:
        return {c["type"] for c in (h.store.get(kind, key).get("status") or {}).get("conditions", ())}

    with home(tmp_path, store=gang_store(), kinds=(BatchJob(), *KINDS)) as h:
        h.submit(made)
        begun = eventually(lambda: h.store.get(kind, key) if h.store.get(kind, key).get("status") else None)
        conditions = [*begun["status"].get("conditions", ()), theirs]
        h.store.update_status({**begun, "status": {"conditions": conditions}})
        eventually(lambda: len(h.store.get(kind, key)["status"]) > 1)  # the controller has written again
        with_theirs, found = types(h), h.store.get(kind, key)
        rest = [c for c in found["status"]["conditions"] if c != theirs]
        h.store.update_status({**found, "status": {"conditions": rest}})
        eventually(lambda: len(h.store.get(kind, key)["status"]) > 1)

        assert "Reviewed" in with_theirs
        assert "Reviewed" not in types(h)


def conditions(h: Home) -> dict[str, str]:
    (pod,) = pods(h).values()
    return {c["type"]: c["status"] + c.get("reason", "") for c in pod["status"]["conditions"]}


@pytest.mark.parametrize(
    ("exit_code", "reason", "initialized"), [(0, "PodCompleted", "TruePodCompleted"), (3, "PodFailed", "True")]
)
def test_a_pod_has_the_conditions_of_a_kubelet(tmp_path: Path, exit_code: int, reason: str, initialized: str) -> None:
    first = {"name": "first", "command": ["sh", "-c", f"until test -e {tmp_path}/one; do sleep 0.01; done"]}
    made = job(shell(f"until test -e {tmp_path}/two; do sleep 0.01; done; exit {exit_code}"))
    made["spec"]["template"]["spec"]["initContainers"] = [first]
    with home(tmp_path, store=gang_store()) as h:
        h.submit(made)
        eventually(lambda: pods(h) and conditions(h).get("Initialized") == "FalseContainersNotInitialized")
        begins = conditions(h)
        (tmp_path / "one").touch()
        eventually(lambda: conditions(h)["Ready"] == "True")
        (running,) = pods(h).values()
        runs = conditions(h)
        (tmp_path / "two").touch()
        eventually(lambda: conditions(h)["Ready"] == f"False{reason}")
        (ended,) = pods(h).values()
        ends = conditions(h)

    not_ready = {"PodScheduled": "True", "ContainersReady": "FalseContainersNotReady"}
    assert begins.items() >= {**not_ready, "Ready": "FalseContainersNotReady"}.items()
    assert runs == dict.fromkeys(("PodScheduled", "Initialized", "ContainersReady", "Ready"), "True")
    assert ends == {
        "PodScheduled": "True",
        "Initialized": initialized,
        **dict.fromkeys(("ContainersReady", "Ready"), f"False{reason}"),
    }
    times = [{c["type"]: c["lastTransitionTime"] for c in pod["status"]["conditions"]} for pod in (running, ended)]
    assert times[0]["Initialized"] == times[1]["Initialized"]
    assert times[0]["PodScheduled"] <= times[0]["Ready"] <= times[1]["Ready"]
