"""What is decided about a training job, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from katib.places.machine.jobs.conditions import DOUBT, FORGIVEN_LOSSES, end_of
from katib.places.machine.jobs.gang.plan import UNLIMITED_FAILURES
from katib.places.machine.jobs.replicated.frameworks import JAXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob
from katib.places.machine.jobs.replicated.job import RENEWALS, ReplicatedJob
from katib.places.machine.pods.records import PodPhase
from tests.support.golden import Golden
from tests.support.training_jobs import Training, replica, started, training_job

PYTORCH, TF, XGBOOST, PADDLE, JAX = PyTorchJob(), TFJob(), XGBoostJob(), PaddleJob(), JAXJob()

IN_USE = "OSError: [Errno 98] Address already in use"


def pytorch(restart: str = "Never", workers: int = 2, **policy: Any) -> Training:
    program = {"name": "pytorch", "command": ["x"]}
    roles = {"Master": replica(1, program, policy=restart), "Worker": replica(workers, program, policy=restart)}
    return started(PYTORCH, training_job(PYTORCH, policy=policy, **roles))


class TestStart:
    def test_all_replicas_start_together_the_master_first(self) -> None:
        t = pytorch()

        assert t.running == ["j-master-0", "j-worker-0", "j-worker-1"]
        assert t.holding() == {"Created": "PyTorchJobCreated", "Running": "PyTorchJobRunning"}
        assert (t.counts("Master"), t.counts("Worker")) == ({"active": 1}, {"active": 2})
        assert t.status["startTime"] == "2024-01-01T00:00:00Z"
        assert {
            "type": "Running",
            "status": "True",
            "reason": "PyTorchJobRunning",
            "message": "PyTorchJob j is running.",
            "lastUpdateTime": "2024-01-01T00:00:00Z",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        } in t.status["conditions"]
        assert t.status["replicaStatuses"]["Worker"]["selector"] == (
            "training.kubeflow.org/job-name=j,training.kubeflow.org/operator-name=pytorchjob-controller,"
            "training.kubeflow.org/replica-type=worker"
        )

    def test_workers_wait_for_the_program_of_the_master(self) -> None:
        decision = Training(PYTORCH, training_job(PYTORCH, Master=1, Worker=1)).plan()

        assert [(s.role, s.index, s.after) for s in decision.start] == [("master", 0, ""), ("worker", 0, "master")]

    def test_types_are_known_in_any_letter_case(self) -> None:
        t = started(PYTORCH, training_job(PYTORCH, master=1, WORKER=1))

        assert t.running == ["j-master-0", "j-worker-0"]
        assert set(t.status["replicaStatuses"]) == {"Master", "Worker"}


class TestSuccess:
    def test_the_master_decides_and_late_workers_have_a_moment(self, golden: Golden) -> None:
        t = pytorch()

        t.end("j-master-0")
        assert (t.is_over, t.running) == (False, ["j-worker-0", "j-worker-1"])
        t.end("j-worker-0")
        t.advance(t.kind.late_seconds)

        assert t.running == []
        assert t.holding() == {"Created": "PyTorchJobCreated", "Succeeded": "PyTorchJobSucceeded"}
        golden(t.message("Succeeded"))
        assert (t.counts("Master"), t.counts("Worker")) == ({"succeeded": 1}, {"succeeded": 2})
        assert t.status["completionTime"] == "2024-01-01T00:00:05Z"

    def test_nothing_is_waited_for_when_all_have_ended(self, golden: Golden) -> None:
        t = pytorch()
        t.end("j-worker-0")
        t.end("j-worker-1")

        t.end("j-master-0")

        golden(t.message("Succeeded"))

    def test_a_worker_that_fails_after_the_master_succeeded_changes_nothing(self) -> None:
        t = pytorch()
        t.end("j-master-0")

        t.end("j-worker-0", 1)
        t.end("j-worker-1", 1)

        assert "Failed" not in t.holding()
        assert t.holding()["Succeeded"] == "PyTorchJobSucceeded"

    def test_the_success_of_the_master_comes_before_the_failure_of_a_worker(self) -> None:
        t = pytorch()
        t.end("j-worker-0", 1, steps=False)

        t.end("j-master-0")
        t.advance(t.kind.late_seconds)

        assert end_of(t.status)["reason"] == "PyTorchJobSucceeded"  # type: ignore[index]

    def test_a_worker_that_starts_again_is_not_waited_for(self) -> None:
        t = pytorch("OnFailure")
        t.restart("j-worker-0")
        t.end("j-worker-1")

        t.end("j-master-0")

        assert "Succeeded" in t.holding()

    @pytest.mark.parametrize("chief", ["Chief", "Master"])
    def test_the_chief_decides_and_parameter_servers_are_stopped_at_once(self, chief: str, golden: Golden) -> None:
        t = started(TF, training_job(TF, PS=2, Worker=1, **{chief: 1}))
        t.end("j-worker-0")

        t.end(f"j-{chief.lower()}-0")

        golden(t.message("Succeeded"))

    @pytest.mark.parametrize(
        ("kind", "fields", "roles", "decide"),
        [
            (PYTORCH, {}, {"Worker": 2}, ["j-worker-0", "j-worker-1"]),
            (PYTORCH, {"elasticPolicy": {}}, {"Worker": 2}, ["j-worker-1"]),
            (TF, {}, {"Worker": 2}, ["j-worker-0"]),
            (TF, {"successPolicy": "AllWorkers"}, {"Worker": 2}, ["j-worker-0", "j-worker-1"]),
            (XGBOOST, {}, {"Master": 1, "Worker": 2}, ["j-master-0"]),
            (PADDLE, {}, {"Master": 1, "Worker": 2}, ["j-master-0"]),
            (PADDLE, {}, {"Worker": 2}, ["j-worker-0", "j-worker-1"]),
            (JAX, {}, {"Worker": 2}, ["j-worker-1", "j-worker-0"]),
        ],
        ids=["pytorch", "elastic", "first", "all-workers", "xgboost", "paddle", "paddle-collective", "jax"],
    )
    def test_each_kind_has_its_rule(
        self, kind: ReplicatedJob, fields: dict[str, Any], roles: dict[str, int], decide: list[str]
    ) -> None:
        t = started(kind, training_job(kind, fields=fields, **roles))
        for name in decide:
            t.advance(600)
            assert not t.is_over
            t.end(name)
        t.advance(t.kind.late_seconds)

        assert t.holding()["Succeeded"] == f"{kind.kind.kind}Succeeded"

    def test_a_job_without_a_replica_that_decides_does_not_go_on_forever(self) -> None:
        t = started(TF, training_job(TF, Evaluator=2))
        t.end("j-evaluator-0")
        t.end("j-evaluator-1")

        assert "none of them decides" in t.message("Failed")


class TestFailure:
    def test_never_fails_the_job_and_stops_the_others(self, golden: Golden) -> None:
        t = pytorch()

        t.end("j-worker-1", 1, output="ValueError: boom")
        t.advance(DOUBT.total_seconds())

        assert (t.running, t.holding()) == ([], {"Created": "PyTorchJobCreated", "Failed": "PyTorchJobFailed"})
        golden(t.message("Failed"))
        assert (t.counts("Master"), t.counts("Worker")) == ({}, {"failed": 1})
        assert "completionTime" in t.status

    def test_the_failure_that_came_first_is_named(self) -> None:
        t = pytorch()
        t.polite = False
        t.end("j-worker-1", 1, steps=False)
        t.now = t.now.replace(second=1)
        t.end("j-master-0", 1)
        t.end("j-worker-0", 143)

        assert "j-worker-1" in t.message("Failed")

    def test_a_trial_that_is_stopped_early_ends_the_job_as_succeeded(self, golden: Golden) -> None:
        t = pytorch()

        t.change("j-master-0", verdict="worse than the others", stopping=True)
        assert (t.is_over, t.running) == (False, [])
        t.end("j-master-0", 143)

        assert t.holding()["Succeeded"] == "EarlyStopped"
        golden(t.message("Succeeded"))


class TestExitCode:
    @pytest.mark.parametrize(
        ("made", "name", "code"),
        [
            pytest.param(lambda: pytorch("ExitCode"), "j-worker-0", 1, id="code 1"),
            pytest.param(lambda: pytorch("ExitCode"), "j-worker-0", 127, id="code 127"),
            pytest.param(lambda: pytorch("OnFailure", backoffLimit=0), "j-worker-0", 1, id="no try is left"),
            pytest.param(lambda: started(TF, training_job(TF, PS=1, Worker=1)), "j-ps-0", 1, id="parameter server"),
        ],
    )
    def test_a_code_of_the_program_is_final(self, made: Callable[[], Training], name: str, code: int) -> None:
        t = made()

        t.end(name, code)
        t.advance(DOUBT.total_seconds())

        assert t.holding()["Failed"] == f"{t.job['kind']}Failed"

    @pytest.mark.parametrize("code", [128, 137, 143])
    def test_a_program_that_was_killed_gets_a_new_pod(self, code: int) -> None:
        t = pytorch("ExitCode")
        t.end("j-worker-0", code, steps=False)

        decision = t.plan()
        t.step()

        assert [(s.role, s.index) for s in decision.start] == [("worker", 0)]
        restarting = next(c for c in decision.status["conditions"] if c["type"] == "Restarting")
        assert restarting["reason"] == "PyTorchJobRestarting"
        assert "Running" not in {c["type"] for c in decision.status["conditions"]}
        assert sorted(t.running) == ["j-master-0", "j-worker-0", "j-worker-1"]
        assert "try 2 of 6" in t.message("Retrying")

    def test_the_exit_of_another_container_does_not_count(self) -> None:
        t = pytorch("ExitCode")
        t.polite = False
        other = t.newest("j-worker-0").exits
        t.end("j-worker-0", 0, steps=False)
        t.pods[1] = replace(t.pods[1], phase=PodPhase.FAILED, exits=(*other, *t.pods[1].exits))

        t.step()
        for name in ("j-master-0", "j-worker-1"):
            t.end(name, 143)

        assert "Failed" in t.holding()

    def test_the_back_off_limit_counts_replacements(self, golden: Golden) -> None:
        t = pytorch("ExitCode", backoffLimit=2)
        t.end("j-worker-0", 137)
        assert not t.is_over

        t.end("j-worker-1", 137)
        t.advance(DOUBT.total_seconds())

        golden(t.message("Failed"))

    def test_without_a_limit_a_replica_is_given_up_after_a_while(self, golden: Golden) -> None:
        t = pytorch("ExitCode")
        for _ in range(UNLIMITED_FAILURES):
            assert not t.is_over
            t.advance(60)
            t.end("j-worker-0", 137)

        t.advance(DOUBT.total_seconds())

        assert t.holding()["Failed"] == "PyTorchJobTooManyRestarts"
        golden(t.message("Failed"))

    def test_a_long_good_run_is_no_failure_in_a_row(self) -> None:
        t = pytorch("ExitCode")
        for _ in range(2 * UNLIMITED_FAILURES):
            t.advance(601)
            t.end("j-worker-0", 137)

        assert not t.is_over


class TestOnFailure:
    @pytest.mark.parametrize("name", ["j-master-0", "j-worker-0"])
    def test_the_second_restart_of_any_replica_reaches_a_limit_of_two(self, name: str, golden: Golden) -> None:
        t = pytorch("OnFailure", backoffLimit=2)
        t.restart("j-master-0")
        assert not t.is_over

        t.restart(name, output="ValueError: boom")

        assert t.holding()["Failed"] == "PyTorchJobFailed"
        golden(t.message("Failed"))

    def test_without_a_limit_six_failures_in_a_row_end_it(self, golden: Golden) -> None:
        t = pytorch("OnFailure")
        for _ in range(UNLIMITED_FAILURES - 1):
            t.restart("j-worker-1")
        assert t.holding() == {"Created": "PyTorchJobCreated", "Running": "PyTorchJobRunning", "Retrying": "PodFailed"}
        golden(t.message("Retrying"))

        t.restart("j-worker-1")
        t.advance(DOUBT.total_seconds())

        assert t.holding()["Failed"] == "PyTorchJobTooManyRestarts"


class TestDeadline:
    def test_it_counts_from_the_start_even_when_ports_change(self) -> None:
        t = pytorch(activeDeadlineSeconds=30)
        t.advance(20)
        t.end("j-master-0", 1, in_use=True)

        t.advance(10)

        assert "deadline" in t.message("Failed")

    def test_it_no_longer_counts_once_the_job_has_succeeded(self) -> None:
        t = pytorch(activeDeadlineSeconds=30)
        t.advance(29)
        t.end("j-master-0")

        t.advance(t.kind.late_seconds)

        assert "Succeeded" in t.holding()


class TestSuspension:
    def test_a_suspended_job_stops_and_starts_again(self) -> None:
        t = pytorch()
        t.advance(10)
        t.job["spec"]["runPolicy"] = {"suspend": True}
        t.step()
        assert (t.running, t.holding()) == ([], {"Created": "PyTorchJobCreated", "Suspended": "PyTorchJobSuspended"})
        assert (t.counts("Worker"), "startTime" in t.status) == ({}, False)
        assert {"Running": "False"}.items() <= {c["type"]: c["status"] for c in t.status["conditions"]}.items()

        t.job["spec"]["runPolicy"] = {}
        t.advance(10)

        assert t.running == ["j-master-0", "j-worker-0", "j-worker-1"]
        assert t.holding() == {"Created": "PyTorchJobCreated", "Running": "PyTorchJobRunning"}
        suspended = next(c for c in t.status["conditions"] if c["type"] == "Suspended")
        assert (suspended["status"], suspended["reason"]) == ("False", "PyTorchJobResumed")
        assert t.status["startTime"] == "2024-01-01T00:00:20Z"

    def test_failures_before_it_are_forgotten(self) -> None:
        t = pytorch("ExitCode", backoffLimit=2)
        t.end("j-worker-0", 137)
        t.job["spec"]["runPolicy"]["suspend"] = True
        t.step()
        t.job["spec"]["runPolicy"]["suspend"] = False
        t.step()

        t.end("j-worker-0", 137)

        assert not t.is_over


class TestNewTries:
    def test_a_port_that_is_taken_gives_all_replicas_new_ports(self, golden: Golden) -> None:
        t, in_place = pytorch(backoffLimit=0), pytorch("OnFailure")

        t.end("j-master-0", 1, in_use=True)
        in_place.restart("j-master-0", in_use=True)

        assert t.running == ["j-master-0", "j-worker-0", "j-worker-1"]
        assert t.rewired == [3]
        golden(t.message("Retrying"))
        assert (t.counts("Master"), t.counts("Worker")) == ({"active": 1}, {"active": 2})
        assert (in_place.rewired, len(in_place.running)) == ([3], 3)

    @pytest.mark.parametrize(
        ("kind", "roles", "first", "taken"),
        [
            (PYTORCH, {"Master": 1, "Worker": 2}, "j-worker-0", "j-master-0"),
            (XGBOOST, {"Master": 1, "Worker": 2}, "j-master-0", "j-worker-1"),
            (TF, {"PS": 1, "Worker": 2}, "j-worker-0", "j-ps-0"),
            (PADDLE, {"Worker": 2}, "j-worker-1", "j-worker-0"),
            (JAX, {"Worker": 2}, "j-worker-1", "j-worker-0"),
        ],
        ids=["pytorch", "xgboost", "tensorflow", "paddle", "jax"],
    )
    def test_that_is_so_too_when_another_replica_has_failed_before(
        self, kind: ReplicatedJob, roles: dict[str, int], first: str, taken: str
    ) -> None:
        program = {"name": kind.container, "command": ["x"]}
        specs = {type_: replica(count, program, policy="Never") for type_, count in roles.items()}
        t = started(kind, training_job(kind, **specs))
        count = len(t.running)

        t.end(first, 1, output="ConnectionRefusedError")
        t.advance(DOUBT.total_seconds() / 2)
        assert (t.is_over, taken in t.running) == (False, True)
        t.end(taken, 1, output=IN_USE, in_use=True)

        assert (t.rewired, len(t.running), t.is_over) == ([count], count, False)
        t.advance(600)
        assert not t.is_over

    @pytest.mark.parametrize("succeeds", [False, True], ids=["continues", "succeeds"])
    def test_the_failure_of_a_worker_is_final_when_the_master_does_not_fail(
        self, succeeds: bool, golden: Golden
    ) -> None:
        t = pytorch()
        t.end("j-worker-0", 1, output="ValueError: boom")
        assert t.plan().wake_at == t.now + DOUBT

        if succeeds:
            t.end("j-master-0")
        else:
            t.advance(DOUBT.total_seconds())

        golden(t.message("Failed"))

    def test_a_limit_that_is_reached_leaves_the_same_moment_and_starts_nothing_in_it(self) -> None:
        t = pytorch("ExitCode", backoffLimit=1)
        t.end("j-worker-0", 137)
        assert t.running == ["j-master-0", "j-worker-1"]

        t.end("j-master-0", 1, in_use=True)

        assert (t.rewired, len(t.running)) == ([3], 3)

    def test_that_happens_only_twice(self) -> None:
        t = pytorch()
        for _ in range(RENEWALS):
            t.end("j-master-0", 1, in_use=True)
            assert not t.is_over

        t.end("j-master-0", 1, output=IN_USE, in_use=True)

        assert "Address already in use" in t.message("Failed")

    def test_readings_are_thrown_away_with_a_try_of_all_replicas_and_kept_with_that_of_one(self) -> None:
        t = pytorch("ExitCode")
        t.end("j-worker-0", 137)
        assert (len(t.pods), t.emptied) == (4, [])

        t.end("j-master-0", 1, in_use=True)
        t.end("j-worker-1", 137, lost=True)

        assert t.emptied == [4, 7]

    def test_replicas_that_were_lost_with_the_guard_start_again_and_nothing_counts(self) -> None:
        t = pytorch()
        for _ in range(FORGIVEN_LOSSES):
            t.end("j-worker-0", 137, lost=True)
            assert len(t.running) == 3

        t.end("j-worker-0", 137, lost=True)
        t.advance(DOUBT.total_seconds())

        assert "Failed" in t.holding()
