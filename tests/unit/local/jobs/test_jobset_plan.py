from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from katib.places.machine.jobs.jobset.jobset import JobSet
from katib.places.machine.jobs.kind import ObservedJob, Plan, PodStart
from katib.places.machine.jobs.networks import NamedWiring
from katib.places.machine.pods.records import PodPhase
from tests.support.golden import Golden
from tests.support.planned_jobs import PlannedJob


class Simulation(PlannedJob):
    """A JobSet, or what is made into one, on a virtual clock."""

    def __init__(self, spec: Mapping[str, Any], plan: Callable[[ObservedJob], Plan]) -> None:
        metadata = {"name": "t", "namespace": "ns", "uid": "u"}
        super().__init__({"kind": "TrainJob", "metadata": metadata, "spec": dict(spec)}, plan)

    def roles(self) -> list[str]:
        """Return `<role>-<index>` of every running pod."""
        return [f"{p.role}-{p.index}" for p in self.unstopped]

    def end(self, role: str, code: int = 0, *, index: int = 0, **changes: Any) -> None:
        """End the running pod of a role, and step."""
        pod = next(p for p in self.unstopped if (p.role, p.index) == (role, index))
        self.finish(pod, code, **changes)
        self.step()


def replicated(name: str, replicas: int = 1, depends_on: str = "", **job: Any) -> dict[str, Any]:
    """Return a replicated job; `depends_on` is `name:status`."""
    spec = {**job, "template": {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}}
    found: dict[str, Any] = {"name": name, "replicas": replicas, "template": {"spec": spec}}
    if depends_on:
        other, _, status = depends_on.partition(":")
        found["dependsOn"] = [{"name": other, "status": status}]
    return found


def started(*jobs: dict[str, Any], **spec: Any) -> Simulation:
    simulation = Simulation({**spec, "replicatedJobs": list(jobs)}, JobSet().plan)
    simulation.step()
    return simulation


def counts(simulation: Simulation, name: str) -> dict[str, int]:
    found = next(item for item in simulation.status["replicatedJobsStatus"] if item["name"] == name)
    return {key: value for key, value in found.items() if key != "name" and value}


class TestSuccess:
    def test_it_completes_when_all_its_jobs_have(self) -> None:
        s = started(replicated("a", 2), replicated("b", parallelism=2, completions=2))
        assert s.roles() == ["a-0-0", "a-1-0", "b-0-0", "b-0-1"]
        assert s.conditions() == []

        for role, index in (("a-0", 0), ("a-1", 0), ("b-0", 0)):
            s.end(role, index=index)
        assert s.conditions() == []
        assert counts(s, "a") == {"succeeded": 2}
        assert counts(s, "b") == {"ready": 1, "active": 1}

        s.end("b-0", index=1)

        assert s.conditions() == [("Completed", "AllJobsCompleted")]
        assert s.status["terminalState"] == "Completed"

    def test_with_any_the_first_complete_job_ends_the_others(self) -> None:
        s = started(replicated("a", 3), successPolicy={"operator": "Any"})
        s.polite = False

        s.end("a-1")

        assert all(pod.stopping for pod in s.pods if pod.role != "a-1")
        assert s.conditions() == []  # the last process is still there

        for pod in s.pods:
            s.change(pod.name, phase=PodPhase.FAILED, finished_at=s.now)
        s.step()

        assert s.conditions() == [("Completed", "AllJobsCompleted")]

    def test_only_targets_count(self) -> None:
        s = started(
            replicated("server"),
            replicated("worker"),
            successPolicy={"operator": "All", "targetReplicatedJobs": ["worker"]},
        )

        s.end("worker-0")

        assert s.conditions() == [("Completed", "AllJobsCompleted")]
        assert s.unstopped == []


class TestOrder:
    def test_a_job_waits_until_another_is_complete(self, golden: Golden) -> None:
        s = started(replicated("data"), replicated("train", depends_on="data:Complete"))
        assert s.roles() == ["data-0-0"]
        golden(s.step().waiting)

        s.end("data-0")

        assert s.roles() == ["train-0-0"]

    def test_a_job_waits_until_all_pods_of_another_are_ready(self) -> None:
        s = started(replicated("node", parallelism=2, completions=2), replicated("launcher", depends_on="node:Ready"))
        assert s.roles() == ["node-0-0", "node-0-1", "launcher-0-0"]

        pending = started(replicated("node"), replicated("launcher", depends_on="node:Ready"))
        pending.pods = [replace(p, phase=PodPhase.PENDING) for p in pending.pods if p.role == "node-0"]
        pending.memory, pending.status = {}, {}
        pending.step()
        assert pending.roles() == ["node-0-0"]

    def test_startup_in_order_is_reported(self) -> None:
        s = started(replicated("a"), replicated("b"), startupPolicy={"startupPolicyOrder": "InOrder"})

        assert [start.role for start in s.started] == ["a-0", "b-0"]
        assert s.conditions() == [("StartupPolicyCompleted", "StartupPolicyCompleted")]


class TestFailure:
    def test_without_a_policy_the_first_failed_job_fails_it(self, golden: Golden) -> None:
        s = started(replicated("a", 2))

        s.end("a-1", 3)

        assert s.conditions() == [("Failed", "FailedJobs")]
        golden(s.message())
        assert s.status["terminalState"] == "Failed"
        assert s.unstopped == []

    def test_a_job_with_retries_left_is_not_failed(self) -> None:
        s = started(replicated("a", backoffLimit=1))

        s.end("a-0", 3)
        assert s.conditions() == []
        s.advance(10)

        assert s.roles() == ["a-0-0"]

    def test_all_jobs_start_again_until_the_restarts_are_used_up(self) -> None:
        s = started(replicated("a"), replicated("b"), failurePolicy={"maxRestarts": 1})

        s.end("a-0", 3)
        assert s.roles() == ["a-0-0", "b-0-0"]
        assert (s.status["restarts"], s.status["restartsCountTowardsMax"]) == (1, 1)
        assert [start.details["attempt"] for start in s.started] == [0, 0, 1, 1]

        assert s.emptied == []  # the author of the JobSet wanted it tried again: what was reported stays

        s.end("b-0", 4)
        assert s.conditions() == [("Failed", "ReachedMaxRestarts")]

    def test_nothing_starts_again_before_the_old_pods_are_gone(self) -> None:
        s = started(replicated("a"), replicated("b"), failurePolicy={"maxRestarts": 1})
        s.polite = False

        s.end("a-0", 3)
        assert s.unstopped == []

        s.change("p1", phase=PodPhase.FAILED, finished_at=s.now)
        s.step()
        assert s.roles() == ["a-0-0", "b-0-0"]

    def test_the_second_restart_waits(self) -> None:
        s = started(replicated("a"), failurePolicy={"maxRestarts": 3})
        s.end("a-0", 3)
        assert s.roles() == ["a-0-0"]

        s.end("a-0", 3)
        assert s.roles() == []
        s.advance(10)

        assert s.roles() == ["a-0-0"]

    @pytest.mark.parametrize(
        ("action", "outcome"),
        [
            ("FailJobSet", [("Failed", "FailJobSetFailurePolicyAction")]),
            ("RestartJobSet", [("Failed", "ReachedMaxRestarts")]),
            ("RestartJobSetAndIgnoreMaxRestarts", []),
            ("RestartJobAndIgnoreMaxRestarts", []),
        ],
    )
    def test_the_first_rule_that_fits_says_what_happens(self, action: str, outcome: list[tuple[str, str]]) -> None:
        rules = [
            {"action": "FailJobSet", "targetReplicatedJobs": ["b"]},
            {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
            {"action": "FailJobSet", "onJobFailureMessagePatterns": ["exited with 9"]},
            {"action": action, "onJobFailureReasons": ["BackoffLimitExceeded"]},
        ]
        s = started(replicated("a"), replicated("b"), failurePolicy={"rules": rules})

        s.end("a-0", 3)

        assert s.conditions() == outcome

    def test_a_single_job_can_start_again(self) -> None:
        rules = [{"action": "RestartJob"}]
        s = started(replicated("a"), replicated("b"), failurePolicy={"maxRestarts": 1, "rules": rules})

        s.end("a-0", 3)

        assert s.roles() == ["b-0-0", "a-0-0"]
        assert [(start.role, start.details["attempt"]) for start in s.started] == [("a-0", 0), ("b-0", 0), ("a-0", 1)]
        assert s.status["restartsCountTowardsMax"] == 1

    def test_a_pod_that_can_never_start_fails_it_whatever_the_policy(self) -> None:
        s = started(replicated("a"), failurePolicy={"maxRestarts": 5})

        s.change("p0", phase=PodPhase.FAILED, cannot_start="no such program", finished_at=s.now)
        s.step()

        assert s.conditions() == [("Failed", "PodCannotStart")]
        assert s.message() == "no such program"


class TestLife:
    def test_suspend_stops_all_pods_and_resume_starts_new_ones(self) -> None:
        s = started(replicated("a", 2))

        s.spec["suspend"] = True
        s.step()
        assert s.conditions() == [("Suspended", "SuspendedJobs")]
        assert s.unstopped == []
        assert counts(s, "a") == {"suspended": 2}

        s.spec["suspend"] = False
        s.step()
        assert s.conditions() == []
        assert s.roles() == ["a-0-0", "a-1-0"]


def test_a_pod_carries_the_labels_of_the_jobset_and_of_its_job() -> None:
    s = started(replicated("a", 2), replicated("b", 2, parallelism=2, completions=2))

    pod = JobSet().pod(s.job, PodStart(1, "b-1", details={"attempt": 3}), NamedWiring())

    labels = {name.removeprefix("jobset.sigs.k8s.io/"): value for name, value in pod.labels.items()}
    assert pod.name == "t-b-1-1-"
    assert pod.hostname == "t-b-1-1"
    assert pod.path == "spec.replicatedJobs[1].template.spec.template"
    assert (
        labels.items()
        >= {
            "jobset-name": "t",
            "jobset-uid": "u",
            "replicatedjob-name": "b",
            "replicatedjob-replicas": "2",
            "global-replicas": "4",
            "job-index": "1",
            "job-global-index": "3",
            "restart-attempt": "3",
            "job-name": "t-b-1",
            "batch.kubernetes.io/job-completion-index": "1",
        }.items()
    )
    assert len(labels["job-key"]) == 40
    assert pod.annotations["jobset.sigs.k8s.io/restart-attempt"] == "3"
    assert pod.variables == {"main": {"JOB_COMPLETION_INDEX": "1"}}
