from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from katib.places.machine.jobs.batch.plan import plan
from katib.places.machine.jobs.conditions import FORGIVEN_LOSSES
from katib.places.machine.pods.records import Delays, PodPhase
from tests.support.golden import Golden
from tests.support.planned_jobs import START, PlannedJob


class Simulation(PlannedJob):
    """A Job on a virtual clock."""

    def __init__(self, *, restart: str = "Never", delays: Delays | None = None, **spec: Any) -> None:
        template = {"spec": {"restartPolicy": restart, "containers": [{"name": "main", "command": ["x"]}]}}
        super().__init__({"metadata": {"name": "j"}, "spec": {**spec, "template": template}}, plan, delays=delays)

    def end(self, code: int = 0, *, index: int | None = None, **changes: Any) -> None:
        """End the first running pod, or that of an index, and step."""
        self.finish(next(p for p in self.unstopped if index is None or p.index == index), code, **changes)
        self.step()

    def restart(self) -> None:
        pod = self.unstopped[0]
        self.change(pod.name, restarts=pod.restarts + 1, message="it exited with 1")


def started(**options: Any) -> Simulation:
    simulation = Simulation(**options)
    simulation.step()
    return simulation


class TestCompletion:
    def test_one_pod_is_the_default(self) -> None:
        s = started()
        assert (len(s.pods), s.status["active"], s.status["startTime"]) == (1, 1, "2024-01-01T00:00:00Z")

        s.end(0)

        assert s.conditions() == [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")]
        assert s.status["succeeded"] == 1
        assert "active" not in s.status
        assert s.status["completionTime"] == "2024-01-01T00:00:00Z"

    def test_completions_run_as_parallelism_allows(self) -> None:
        s = started(completions=3, parallelism=2)
        assert len(s.unstopped) == 2

        s.end(0)
        assert len(s.unstopped) == 2

        s.end(0)
        assert len(s.unstopped) == 1

        s.end(0)
        assert s.status["succeeded"] == 3

    def test_a_work_queue_starts_nothing_after_the_first_success(self) -> None:
        s = started(parallelism=3)
        s.end(0)
        assert len(s.unstopped) == 2
        assert s.conditions() == []

        s.end(0)
        s.end(0)

        assert ("Complete", "CompletionsReached") in s.conditions()

    def test_parallelism_zero_runs_nothing(self) -> None:
        assert started(parallelism=0, completions=1).pods == []

    def test_lowered_parallelism_stops_the_newest_pods(self) -> None:
        s = started(completions=5, parallelism=3)
        s.spec["parallelism"] = 1

        s.step()

        assert [p.name for p in s.unstopped] == ["p0"]
        assert "failed" not in s.status

    def test_complete_waits_for_pods_that_still_end(self) -> None:
        s = started(
            completions=3, parallelism=3, completionMode="Indexed", successPolicy={"rules": [{"succeededCount": 1}]}
        )
        s.polite = False

        s.end(0, index=1)

        assert s.conditions() == [("SuccessCriteriaMet", "SuccessPolicy")]
        assert s.status["terminating"] == 2

    def test_a_job_of_another_controller_is_left_alone(self) -> None:
        s = started(managedBy="example.com/other")

        assert (s.pods, s.status) == ([], {})


class TestBackOff:
    def test_never_runs_limit_plus_one_times_with_doubling_delays(self, golden: Golden) -> None:
        s = started(backoffLimit=2)
        s.end(1)
        assert s.unstopped == []
        assert s.conditions() == []
        golden(s.message())
        s.advance_to_wake()
        golden(s.message())
        s.end(1)
        s.advance_to_wake()
        s.end(1)

        assert s.starts == [0, 10, 30]
        assert s.conditions() == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]
        assert "completionTime" not in s.status
        assert s.status["failed"] == 3
        golden(s.message())

    def test_delays_double_to_ten_minutes_and_to_five_for_a_restart(self) -> None:
        new, again = Delays().recreate.pause_seconds, Delays().restart.pause_seconds

        assert [new(k) for k in (0, 1, 2, 3, 7, 8, 5000)] == [0, 10, 20, 40, 600, 600, 600]
        assert [again(k) for k in (0, 1, 2, 3, 5, 6, 9)] == [0, 10, 20, 40, 160, 300, 300]

    def test_the_delay_starts_again_after_a_success(self) -> None:
        s = started(completions=3, backoffLimit=6)
        s.end(1)
        s.advance(10)
        s.end(0)
        s.end(1)

        s.advance(10)

        assert s.starts == [0, 10, 10, 20]

    def test_pods_lost_with_the_guard_are_replaced_and_count_for_nothing(self) -> None:
        s = started()
        for _ in range(FORGIVEN_LOSSES):
            s.end(137, lost=True)
            s.advance(600)
        assert s.unstopped
        assert "failed" not in s.status

        s.end(137, lost=True)

        assert ("Failed", "BackoffLimitExceeded") in s.conditions()

    def test_readings_are_thrown_away_when_all_pods_were_lost_and_kept_for_a_retry(self) -> None:
        s = started(backoffLimit=3)
        s.end(1)
        s.advance(600)
        assert s.emptied == []

        s.end(137, lost=True)
        s.advance(600)

        assert s.emptied == [2]

    def test_readings_stay_when_one_of_several_pods_was_lost_or_one_has_succeeded(self) -> None:
        s = started(completions=3, parallelism=2)
        s.end(137, lost=True)
        s.advance(600)
        s.end()
        s.advance(600)
        for _ in s.unstopped:
            s.end(137, lost=True)
        s.advance(600)

        assert s.unstopped
        assert s.emptied == []

    @pytest.mark.parametrize("options", [{}, {"backoffLimit": 1}], ids=["no other try", "a try"])
    def test_the_last_line_of_a_failed_program_is_told(self, options: dict[str, Any], golden: Golden) -> None:
        s = started(**options)
        s.pods = [replace(s.pods[0], last_output="ValueError: boom")]

        s.end(1)

        assert len(s.pods) == 1
        golden(s.message())
        assert (("Failed", "BackoffLimitExceeded") in s.conditions()) == (not options)

    @pytest.mark.parametrize("limit", [0, 2])
    def test_on_failure_kills_the_restart_that_reaches_the_limit(self, limit: int) -> None:
        s = started(restart="OnFailure", backoffLimit=limit)
        for _ in range(limit - 1):
            s.restart()
        assert s.conditions() == []

        s.restart()

        assert ("Failed", "BackoffLimitExceeded") in s.conditions()

    @pytest.mark.parametrize(
        ("changes", "conditions"),
        [
            (
                {"phase": PodPhase.FAILED, "finished_at": START, "cannot_start": "it is said"},
                [("FailureTarget", "PodCannotStart"), ("Failed", "PodCannotStart")],
            ),
            ({"verdict": "it is said"}, [("SuccessCriteriaMet", "EarlyStopped"), ("Complete", "EarlyStopped")]),
        ],
        ids=["cannot start", "stopped early"],
    )
    def test_what_no_further_pod_could_change_ends_the_job_at_once(
        self, changes: dict[str, Any], conditions: list[tuple[str, str]]
    ) -> None:
        s = started()
        s.pods = [replace(s.pods[0], **changes)]

        s.step()

        assert (s.conditions(), s.message()) == (conditions, "it is said")


class TestIndexed:
    def test_each_index_runs_once_lowest_first_and_more_run_when_the_job_gets_more(self) -> None:
        s = started(completions=3, parallelism=2, completionMode="Indexed")
        assert [p.index for p in s.unstopped] == [0, 1]

        s.end(0, index=1)
        assert [p.index for p in s.unstopped] == [0, 2]
        assert s.status["completedIndexes"] == "1"
        s.spec.update({"completions": 5, "parallelism": 5})
        s.step()

        assert [p.index for p in s.unstopped] == [0, 2, 3, 4]

    def test_indexes_that_the_job_has_no_more_are_ended_and_count_no_more(self) -> None:
        s = started(completions=4, parallelism=4, completionMode="Indexed")
        s.end(0, index=3)
        s.spec.update({"completions": 2, "parallelism": 2})
        s.step()
        assert [p.index for p in s.unstopped] == [0, 1]
        assert "completedIndexes" not in s.status

        s.end(0, index=0)
        s.end(0, index=1)

        assert s.conditions()[-1] == ("Complete", "CompletionsReached")
        assert (s.status["completedIndexes"], s.status.get("failed", 0)) == ("0,1", 0)

    def test_a_failed_index_is_tried_again(self) -> None:
        s = started(completions=2, parallelism=2, completionMode="Indexed", backoffLimit=1)
        s.end(1, index=0)
        s.advance(10)

        assert sorted(p.index or 0 for p in s.unstopped) == [0, 1]

    def test_an_index_beyond_its_limit_fails_the_job_when_the_others_are_through(self) -> None:
        s = started(completions=3, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=0)
        s.end(0, index=0)
        s.end(1, index=1)
        assert s.conditions() == []
        s.end(0, index=2)

        assert s.conditions() == [("FailureTarget", "FailedIndexes"), ("Failed", "FailedIndexes")]
        assert (s.status["completedIndexes"], s.status["failedIndexes"]) == ("0,2", "1")

    def test_each_index_waits_for_its_own_back_off(self) -> None:
        s = started(completions=2, parallelism=1, completionMode="Indexed", backoffLimitPerIndex=3)
        s.end(1, index=0)
        assert [p.index for p in s.unstopped] == [1]
        s.end(0, index=1)
        s.advance(9)
        assert s.unstopped == []

        s.advance(1)

        assert [p.index for p in s.unstopped] == [0]

    def test_too_many_failed_indexes_end_the_job_at_once(self) -> None:
        s = started(completions=4, parallelism=4, completionMode="Indexed", backoffLimitPerIndex=0, maxFailedIndexes=1)
        s.end(1, index=0)
        assert s.conditions() == []

        s.end(1, index=3)

        assert ("Failed", "MaxFailedIndexesExceeded") in s.conditions()
        assert s.status["failedIndexes"] == "0,3"

    def test_the_named_index_meets_the_success_policy_and_the_others_are_stopped(self) -> None:
        policy = {"rules": [{"succeededIndexes": "0"}]}
        s = started(completions=3, parallelism=3, completionMode="Indexed", successPolicy=policy)

        s.end(0, index=0)

        assert s.conditions() == [("SuccessCriteriaMet", "SuccessPolicy"), ("Complete", "SuccessPolicy")]
        assert s.unstopped == []

    @pytest.mark.parametrize(
        ("rule", "indexes", "met"),
        [
            pytest.param({"succeededIndexes": "0-2", "succeededCount": 2}, (0, 1), True, id="some-of"),
            pytest.param({"succeededIndexes": "0-2", "succeededCount": 2}, (0, 4), False, id="wrong-ones"),
            pytest.param({"succeededIndexes": "0,2"}, (0,), False, id="not-all"),
            pytest.param({"succeededCount": 2}, (3, 4), True, id="any"),
        ],
    )
    def test_success_rules_count_the_indexes_they_name(
        self, rule: dict[str, Any], indexes: tuple[int, ...], met: bool
    ) -> None:
        s = started(completions=5, parallelism=5, completionMode="Indexed", successPolicy={"rules": [rule]})
        for index in indexes:
            s.end(0, index=index)

        assert (("Complete", "SuccessPolicy") in s.conditions()) is met


def failure_policy(action: str, values: list[int], operator: str = "In", **more: Any) -> dict[str, Any]:
    return {"rules": [{"action": action, "onExitCodes": {"operator": operator, "values": values, **more}}]}


class TestFailurePolicy:
    def test_fail_job_ends_the_job_at_once(self, golden: Golden) -> None:
        s = started(completions=2, parallelism=2, podFailurePolicy=failure_policy("FailJob", [42]))

        s.end(42)

        assert ("Failed", "PodFailurePolicy") in s.conditions()
        golden(s.message())
        assert s.unstopped == []

    def test_ignored_failures_do_not_count(self) -> None:
        s = started(backoffLimit=0, podFailurePolicy=failure_policy("Ignore", [137]))
        s.end(137)
        s.advance(10)
        assert s.conditions() == []
        assert len(s.unstopped) == 1
        assert "failed" not in s.status

        s.end(1)

        assert ("Failed", "BackoffLimitExceeded") in s.conditions()

    def test_fail_index_gives_one_index_up(self) -> None:
        policy = failure_policy("FailIndex", [0, 1], "NotIn")
        s = started(
            completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=9, podFailurePolicy=policy
        )
        s.end(2, index=0)
        s.end(0, index=1)

        assert s.status["failedIndexes"] == "0"
        assert ("Failed", "FailedIndexes") in s.conditions()

    @pytest.mark.parametrize(
        ("code", "container", "fails"),
        [
            pytest.param(3, "main", True, id="match"),
            pytest.param(3, "other", False, id="other-container"),
            pytest.param(4, "main", False, id="other-code"),
        ],
    )
    def test_a_rule_may_name_a_container(self, code: int, container: str, fails: bool) -> None:
        s = started(podFailurePolicy=failure_policy("FailJob", [3], containerName="main"), backoffLimit=1)

        s.end(code, container=container)

        assert bool(s.conditions()) is fails

    def test_the_first_matching_rule_wins(self) -> None:
        rules = [*failure_policy("Count", [3])["rules"], *failure_policy("FailJob", [3])["rules"]]
        s = started(podFailurePolicy={"rules": rules}, backoffLimit=1)

        s.end(3)

        assert s.conditions() == []

    def test_with_a_failure_policy_a_pod_is_replaced_only_when_it_has_ended(self) -> None:
        s = started(completions=2, parallelism=2, podFailurePolicy=failure_policy("Ignore", [9]))
        s.polite = False
        s.spec["parallelism"] = 1
        s.step()
        s.spec["parallelism"] = 2
        s.step()

        assert len(s.pods) == 2


class TestDeadline:
    @pytest.mark.parametrize("fails", [False, True], ids=["it runs", "it waits for the next try"])
    def test_the_deadline_ends_the_job(self, fails: bool) -> None:
        s = started(activeDeadlineSeconds=6, backoffLimit=1)
        if fails:
            s.end(1)
        assert s.step().wake_at == START + timedelta(seconds=6)
        s.advance(5)
        assert s.conditions() == []

        s.advance(1)

        assert s.conditions() == [("FailureTarget", "DeadlineExceeded"), ("Failed", "DeadlineExceeded")]
        assert s.unstopped == []

    def test_the_deadline_counts_from_the_resume(self) -> None:
        s = started(activeDeadlineSeconds=60)
        s.advance(50)
        s.spec["suspend"] = True
        s.advance(100)
        assert s.conditions() == [("Suspended", "JobSuspended")]
        s.spec["suspend"] = False
        s.advance(59)
        s.advance(59)
        assert s.conditions() == []

        s.advance(1)

        assert ("Failed", "DeadlineExceeded") in s.conditions()

    @pytest.mark.parametrize("hours", [-3, 3])
    def test_a_wall_clock_that_is_set_moves_no_deadline_and_no_next_try(self, hours: int) -> None:
        s = started(activeDeadlineSeconds=15, backoffLimit=1)
        s.end(1)
        began = s.status["startTime"]
        s.wall_jump = timedelta(hours=hours)
        s.advance(9)
        assert s.unstopped == []

        s.advance(1)
        assert s.starts == [0, 10]
        assert s.status["startTime"] == began
        s.advance(4)
        assert s.unstopped

        s.advance(1)
        assert ("Failed", "DeadlineExceeded") in s.conditions()


class TestSuspend:
    def test_a_suspended_job_starts_nothing(self) -> None:
        s = started(suspend=True)

        assert s.pods == []
        assert "startTime" not in s.status
        assert s.conditions() == [("Suspended", "JobSuspended")]

    def test_stopped_pods_are_no_failures_and_resuming_starts_again(self) -> None:
        s = started(backoffLimit=0)
        s.advance(30)
        s.spec["suspend"] = True
        s.step()
        assert s.unstopped == []
        s.spec["suspend"] = False

        s.step()

        assert len(s.unstopped) == 1
        assert s.conditions() == []
        assert s.status["conditions"][0]["reason"] == "JobResumed"
        assert s.status["startTime"] == "2024-01-01T00:00:30Z"
        assert "failed" not in s.status

    def test_successes_survive_the_pause(self) -> None:
        s = started(completions=2, parallelism=1, completionMode="Indexed")
        s.end(0, index=0)
        s.spec["suspend"] = True
        s.step()
        s.spec["suspend"] = False
        s.step()

        s.end(0, index=1)

        assert s.status["completedIndexes"] == "0,1"


class TestEnd:
    def test_a_noted_outcome_is_final(self) -> None:
        s = started(completions=2, parallelism=2, backoffLimit=0, activeDeadlineSeconds=60)
        s.polite = False
        s.end(1)
        assert s.conditions() == [("FailureTarget", "BackoffLimitExceeded")]

        s.advance(60)
        s.pods = [replace(p, phase=PodPhase.SUCCEEDED, finished_at=s.now) if p.stopping else p for p in s.pods]
        s.step()

        assert s.conditions() == [("FailureTarget", "BackoffLimitExceeded"), ("Failed", "BackoffLimitExceeded")]

    def test_an_ended_job_is_not_touched(self) -> None:
        s = started()
        s.end(0)
        before = s.status

        s.advance(1000)

        assert s.status == before
        assert len(s.pods) == 1

    def test_the_time_to_live_deletes_the_job(self) -> None:
        s = started(ttlSecondsAfterFinished=30)
        s.end(0)
        assert s.step().wake_at == START + timedelta(seconds=30)
        s.advance(29)
        assert not s.step().delete

        s.advance(1)

        assert s.step().delete
