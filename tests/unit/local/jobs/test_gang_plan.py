"""What is decided about a gang, whichever kind of job it is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from katib.places.machine.jobs.conditions import DOUBT, end_of
from katib.places.machine.jobs.jobset.jobset import JobSet, TrainJob
from katib.places.machine.jobs.kind import ObservedJob, Plan
from katib.places.machine.jobs.kinds import nothing_stored
from katib.places.machine.jobs.replicated.frameworks import PyTorchJob
from katib.places.machine.pods.records import PodPhase
from tests.support.golden import Golden
from tests.support.planned_jobs import PlannedJob

CONTAINER = "pytorch"
ELSEWHERE = "kueue.x-k8s.io/multikueue"


class Gang(PlannedJob):
    """A gang of two pods; the part of its spec that has the policies, and the reasons of its success and failure."""

    def __init__(
        self, plan: Callable[[ObservedJob], Plan], spec: dict[str, Any], policy: dict[str, Any], *reasons: str
    ) -> None:
        job = {"kind": "Any", "metadata": {"name": "t", "namespace": "ns", "uid": "u"}, "spec": spec}
        super().__init__(job, plan, CONTAINER)
        self.policy = policy
        self.succeeded, self.failed = reasons

    def end(self, number: int, code: int = 0, **changes: Any) -> None:
        """End a pod that runs, and step."""
        self.finish(self.unstopped[number], code, **changes)
        self.step()

    def finish_stopped(self) -> None:
        """End the pods that were asked to end, and step."""
        self.pods = [
            replace(pod, phase=PodPhase.FAILED, finished_at=self.now) if pod.stopping and not pod.is_finished else pod
            for pod in self.pods
        ]
        self.step()

    @property
    def reason(self) -> str:
        """The reason of its end; empty while it is open."""
        return str((end_of(self.status) or {}).get("reason", ""))


def jobset() -> Gang:
    pod = {"containers": [{"name": CONTAINER, "command": ["x"]}]}
    spec = {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": {"template": {"spec": pod}}}}]}
    return Gang(JobSet().plan, spec, spec, "AllJobsCompleted", "FailedJobs")


def train_job() -> Gang:
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["train"], "numNodes": 2}}
    return Gang(TrainJob(nothing_stored).plan, spec, spec, "AllJobsCompleted", "FailedJobs")


def pytorch_job() -> Gang:
    container = {"name": CONTAINER, "image": "none", "command": ["x"]}
    worker = {"replicas": 2, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    spec: dict[str, Any] = {"pytorchReplicaSpecs": {"Worker": worker}, "runPolicy": {}}
    return Gang(PyTorchJob().plan, spec, spec["runPolicy"], "PyTorchJobSucceeded", "PyTorchJobFailed")


Make = Callable[..., Gang]
every_kind = pytest.mark.parametrize("make", [jobset, train_job, pytorch_job])
with_ports = pytest.mark.parametrize("make", [train_job, pytorch_job])
with_ttl = pytest.mark.parametrize("make", [jobset, pytorch_job])


def started(make: Make, **policy: Any) -> Gang:
    gang = make()
    gang.policy |= policy
    gang.step()
    return gang


@every_kind
def test_all_pods_start_together_and_nothing_changes_while_nothing_happens(make: Make) -> None:
    gang = started(make)
    before = gang.status
    gang.advance(10)

    assert (len(gang.unstopped), gang.status) == (2, before)


@every_kind
def test_it_succeeds_when_all_pods_have_and_the_end_is_final(make: Make) -> None:
    gang = started(make)
    gang.end(0)
    assert gang.reason == ""
    gang.end(0)
    before = gang.status
    gang.advance(100)

    assert gang.reason == gang.succeeded
    assert gang.status["conditions"] == before["conditions"]


@every_kind
def test_a_failed_pod_fails_it_and_the_end_waits_for_pods_that_still_end(make: Make) -> None:
    gang = started(make)
    gang.polite = False

    gang.end(1, 3, last_output="ValueError: boom")
    gang.advance(DOUBT.total_seconds())
    assert (gang.unstopped, gang.reason) == ([], "")
    gang.finish_stopped()

    assert gang.reason == gang.failed
    assert 'container "' in gang.message("Failed")
    assert gang.message("Failed").endswith("last output: ValueError: boom")


@every_kind
def test_a_pod_that_can_never_start_fails_it(make: Make) -> None:
    gang = started(make)

    gang.change(gang.pods[0].name, phase=PodPhase.FAILED, cannot_start="no such program", finished_at=gang.now)
    gang.step()

    assert (gang.reason, gang.message("Failed")) == ("PodCannotStart", "no such program")
    assert gang.unstopped == []


@every_kind
def test_an_early_stop_ends_it_well(make: Make) -> None:
    gang = started(make)

    gang.change(gang.pods[0].name, phase=PodPhase.FAILED, finished_at=gang.now, verdict="rule met", stopping=True)
    gang.step()

    assert (gang.reason, gang.unstopped) == ("EarlyStopped", [])


@every_kind
def test_one_of_another_controller_is_left_alone(make: Make) -> None:
    gang = started(make, managedBy=ELSEWHERE)

    assert (gang.pods, gang.status) == ([], {})


@every_kind
def test_suspended_from_the_start_it_runs_nothing(make: Make) -> None:
    gang = started(make, suspend=True)

    assert (gang.pods, gang.plan().waiting) == ([], "its job is suspended")


@every_kind
def test_suspended_it_stops_and_new_pods_start_when_the_old_ones_are_gone(make: Make) -> None:
    gang = started(make)
    gang.polite = False
    gang.policy["suspend"] = True
    gang.step()
    assert "Suspended" in dict(gang.conditions())
    gang.policy["suspend"] = False
    gang.step()
    assert "Suspended" not in dict(gang.conditions())

    gang.finish_stopped()

    assert (len(gang.pods), len(gang.unstopped)) == (4, 2)


@with_ttl
@pytest.mark.parametrize("seconds", [0, 60])
def test_it_is_removed_when_it_has_outlived_its_time(make: Make, seconds: int) -> None:
    gang = started(make, ttlSecondsAfterFinished=seconds)
    gang.end(0)
    gang.end(0)
    gang.advance(max(0, seconds - 1))
    assert gang.deleted == (seconds == 0)

    gang.advance(1)

    assert gang.deleted


@with_ports
def test_the_deadline_ends_it_and_suspended_time_does_not_count(make: Make, golden: Golden) -> None:
    gang = started(make, activeDeadlineSeconds=30)
    gang.advance(20)
    gang.policy["suspend"] = True
    gang.advance(100)
    gang.policy["suspend"] = False
    gang.step()
    gang.advance(29)
    assert gang.reason == ""

    gang.advance(1)

    golden(gang.message("Failed"))


@with_ports
def test_a_port_that_is_taken_makes_all_pods_start_again_with_new_ports(make: Make, golden: Golden) -> None:
    gang = started(make)

    gang.end(0, 1, last_output="Address already in use", address_in_use=True)

    assert (len(gang.unstopped), gang.rewired, gang.emptied, gang.reason) == (2, [2], [2], "")
    golden(gang.message("Retrying"))


@with_ports
def test_the_new_ports_are_chosen_when_nothing_runs_any_more(make: Make) -> None:
    gang = started(make)
    gang.polite = False
    gang.end(0, 1, address_in_use=True)
    assert (gang.rewired, gang.unstopped) == ([], [])

    gang.finish_stopped()

    assert (gang.rewired, len(gang.unstopped)) == ([2], 2)


@with_ports
def test_that_is_so_too_when_another_pod_has_failed_before(make: Make) -> None:
    gang = started(make)
    gang.end(1, 1, last_output="ConnectionRefusedError")
    gang.advance(DOUBT.total_seconds() / 2)
    assert len(gang.unstopped) == 1

    gang.end(0, 1, last_output="Address already in use", address_in_use=True)

    assert (len(gang.unstopped), gang.rewired, gang.reason) == (2, [2], "")
