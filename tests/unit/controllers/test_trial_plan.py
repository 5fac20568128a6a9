"""What is done about a trial, as vectors: what is seen, what is planned."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from katib.engine.controllers.ports import PodRefusal, PodUpdate, UncollectedPod
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.trial.jobs import view_of
from katib.engine.controllers.trial.plan import (
    JobView,
    Judgment,
    Observed,
    TrialPlan,
    held_up,
    killed,
    needs_observation,
    plan_trial,
)
from katib.model.trials import waiting_words
from katib.model.types import CollectorSpec, MetricsCollectorSpec, Observation, Trial, TrialStatus
from katib.service.tuning.reading import seconds_run
from tests.support.golden import Golden
from tests.support.planning import LATER, NOW, holding, observed, story, trial

CREATED = holding("Created", "TrialCreated", message="Trial is created")
RUNNING = holding("Running", "TrialRunning", message="Trial is running")
PUSH = MetricsCollectorSpec(collector=CollectorSpec(kind="Push"))
NOTHING = MetricsCollectorSpec(collector=CollectorSpec(kind="None"))

DONE = JobView(succeeded=Judgment("CompletionsReached", "Reached expected number of succeeded pods"), ended_at=NOW)
BROKEN = JobView(failed=Judgment("BackoffLimitExceeded", "exited with 1"), ended_at=NOW)
STOPPED = JobView(succeeded=Judgment("EarlyStopped", "loss 0.9 > 0.5"), ended_at=NOW)


def plan(made: Trial, job: JobView | None, reading: Observation | None = None, **seen: Any) -> TrialPlan:
    return plan_trial(Observed(made, job, reading, now=LATER, **seen))


def last(planned: TrialPlan) -> tuple[str, str, str, str]:
    condition = planned.status.conditions[-1]
    return condition.type, condition.status, condition.reason, condition.message


def started(**spec: Any) -> Trial:
    return trial("demo-1", CREATED, RUNNING, **spec)


def test_a_new_trial_is_created_gets_its_job_and_runs(golden: Golden) -> None:
    planned = plan(trial("demo-1"), None)

    assert planned.create_job
    assert [(c.type, c.reason, c.message) for c in planned.status.conditions] == [
        ("Created", "TrialCreated", "Trial is created")
    ]
    assert planned.status.start_time == LATER
    assert planned.event is not None
    assert planned.event.reason == "JobCreated"
    golden(planned.event.message)
    assert last(plan(trial("demo-1", CREATED), JobView())) == ("Running", "True", "TrialRunning", "Trial is running")


def after(minutes: int, status: TrialStatus, job: JobView, *, ran: float = 0) -> TrialStatus:
    """Return the status of a trial whose job is seen so long after NOW, and which ran for so many minutes."""
    made, now = structs.replace(trial("demo-1"), status=status), NOW + timedelta(minutes=minutes)
    return plan_trial(Observed(made, job, observed("0.5"), run_seconds=60 * ran, now=now)).status


def ran_minutes(status: TrialStatus, minutes: int) -> float | None:
    seconds = seconds_run(Trial(status=status), NOW + timedelta(minutes=minutes))
    return None if seconds is None else seconds / 60


NEW = TrialStatus(conditions=(CREATED,), start_time=NOW)
QUEUED = JobView(waiting="waits for 2 cpu; 0 of 2 cpu are free", is_trouble=False, runs=False)
SUSPENDED = JobView(suspended=True, runs=False)


def test_waiting_is_told_from_running_and_only_running_counts_as_duration(golden: Golden) -> None:
    queued = after(1, NEW, QUEUED)
    assert waiting_words(structs.replace(trial("demo-1"), status=queued)) == QUEUED.waiting
    assert ran_minutes(queued, 5) is None
    running = after(10, queued, JobView())
    assert (running.start_time, ran_minutes(running, 13)) == (NOW + timedelta(minutes=10), 3)
    suspended = after(13, running, SUSPENDED, ran=3)
    golden(last(TrialPlan(suspended)))
    assert ran_minutes(suspended, 50) == 3
    resumed = after(50, suspended, JobView(), ran=3)
    assert ran_minutes(resumed, 54) == 7
    assert ran_minutes(after(55, resumed, DONE, ran=8), 90) == 8


def test_the_start_of_a_running_trial_moves_on_by_what_was_no_running_and_small_differences_are_not_written() -> None:
    running = after(0, NEW, JobView())

    assert after(10, running, JobView(), ran=10 - 1 / 60) is running
    slept = after(500, running, JobView(), ran=10)
    assert (slept.start_time, ran_minutes(slept, 501)) == (NOW + timedelta(minutes=490), 11)
    over = after(500, running, DONE, ran=0.125)
    assert (over.run_seconds, over.start_time) == (7.5, NOW + timedelta(minutes=500, seconds=-8))


def test_the_grace_period_of_a_trial_that_is_over_is_added_and_nothing_is_written_without_one() -> None:
    over = killed(after(0, NEW, JobView()), "Trial is stopped", NOW + timedelta(minutes=2), 120.0)

    assert after(3, over, JobView(), ran=2.0005).run_seconds == 120
    assert after(3, over, JobView(), ran=2.5).run_seconds == 150


@pytest.mark.parametrize("job", [QUEUED, SUSPENDED], ids=["queued", "suspended"])
def test_a_trial_that_is_killed_while_it_waits_has_not_run_meanwhile(job: JobView) -> None:
    waits = after(2, after(0, NEW, JobView()), job, ran=2)

    assert ran_minutes(killed(waits, "Trial is killed", NOW + timedelta(minutes=30), 120.0), 60) == 2


def test_a_pause_after_a_failure_is_no_running(golden: Golden) -> None:
    running = after(0, NEW, JobView())
    pause = after(2, running, JobView(retrying="exited with 1; try 2 begins at noon", runs=False), ran=2)
    golden(last(TrialPlan(pause))[1:])
    again = after(12, pause, JobView(retrying="exited with 1; try 2", runs=True), ran=2)
    golden(last(TrialPlan(again))[1:])
    assert ran_minutes(again, 15) == 5


def test_one_of_which_nothing_is_known_to_run_yet_neither_runs_nor_waits() -> None:
    starting = after(1, NEW, JobView(runs=False))

    assert starting is NEW
    assert waiting_words(structs.replace(trial("demo-1"), status=starting)) == ""


@pytest.mark.parametrize(
    ("job", "update", "runs"),
    [
        ({}, PodUpdate(), False),
        ({"status": {"active": 1}}, PodUpdate(), True),
        ({"status": {"active": 1}}, PodUpdate(runs=False), False),
        ({}, PodUpdate(runs=True), True),
        ({"status": {"active": 1}}, PodUpdate(waiting="image cannot be pulled"), False),
    ],
    ids=[
        "no controller has seen it",
        "nothing is known of pods",
        "its pods wait",
        "a pod runs",
        "only a wait is known",
    ],
)
def test_whether_a_job_runs_is_said_by_its_pods_or_else_by_its_controller(
    job: dict[str, Any], update: PodUpdate, runs: bool
) -> None:
    assert view_of(job, trial("demo-1", run_spec={"apiVersion": "batch/v1", "kind": "Job"}), NOW, update).runs is runs


def test_a_trial_that_nothing_is_collected_of_succeeds_without_an_observation() -> None:
    planned = plan(started(metrics_collector=NOTHING), DONE)

    assert last(planned)[:3] == ("Succeeded", "True", "TrialSucceededUnmeasured")
    assert planned.delete_job
    assert last(plan(started(metrics_collector=NOTHING), BROKEN))[0] == "Failed"


def test_a_job_that_vanished_is_created_again() -> None:
    assert plan(started(), None).create_job


def test_a_job_that_runs_changes_nothing() -> None:
    made = started()

    assert plan(made, JobView()) == TrialPlan(status=made.status)


def test_a_trial_that_is_held_up_says_so_once_per_cause() -> None:
    held = held_up(started().status, "TrialWaiting", "no room", NOW)
    (condition,) = [c for c in held.conditions if c.type == "Running"]

    assert (condition.status, condition.reason) == ("False", "TrialWaiting")
    assert held_up(held, "TrialWaiting", "no room", LATER) == held
    assert held_up(held, "TrialWaiting", "no quota", LATER) != held
    assert held_up(held, "JobForbidden", "no room", LATER) != held


def test_a_failed_try_is_told_once_and_with_each_news() -> None:
    first, second = "exited with 1; try 2 of 7 begins at 12:00", "exited with 1; try 2 of 7"

    told = plan(started(), JobView(retrying=first))
    quiet = plan(trial("demo-1", *told.status.conditions), JobView(retrying=first))
    again = plan(trial("demo-1", *told.status.conditions), JobView(retrying=second))

    assert last(told) == ("Running", "True", "TrialRetrying", f"Trial is running: {first}")
    assert told.event is not None
    assert (told.event.reason, told.event.warning) == ("JobRetrying", True)
    assert quiet.event is None
    assert last(again) == ("Running", "True", "TrialRetrying", f"Trial is running: {second}")


def test_a_job_that_succeeded_with_its_metric_is_the_success_of_the_trial(golden: Golden) -> None:
    planned = plan(started(), DONE, observed("0.5"))

    golden(last(planned))
    assert story(planned.status.conditions)[1] == ("Running", "False", "TrialRunning")
    assert (planned.status.completion_time, planned.status.observation) == (LATER, observed("0.5"))
    assert planned.delete_job
    assert planned.event is not None
    assert planned.event.message == "Job demo-1 has succeeded"


@pytest.mark.parametrize("text", ["nan", "inf", "conv3x3"])
def test_any_reading_is_a_success(text: str) -> None:
    assert plan(started(), DONE, observed(text)).status.conditions[-1].type == "Succeeded"


def test_a_failed_job_is_the_failure_of_the_trial_with_its_reason(golden: Golden) -> None:
    planned = plan(started(), BROKEN)

    golden(last(planned))
    assert planned.event is not None
    golden(planned.event.message)
    assert (planned.event.reason, planned.event.warning) == ("JobFailed", True)


@pytest.mark.parametrize(
    ("judged", "failure", "told"),
    [
        (
            Judgment("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
            "Container main in pod p ended with exit code 1; last output: CUDA out of memory.",
            "CUDA out of memory. (exit code 1); Job has reached the specified backoff limit (BackoffLimitExceeded)",
        ),
        (
            Judgment("DeadlineExceeded", "Job was active longer than specified deadline."),
            "Container main in pod p ended with exit code 143",
            "Job was active longer than specified deadline (DeadlineExceeded)",
        ),
        (Judgment("Because"), "", "(Because)"),
    ],
    ids=["words", "deadline", "reason alone"],
)
def test_the_event_of_a_failed_job_is_one_sentence(judged: Judgment, failure: str, told: str) -> None:
    planned = plan(started(), JobView(failed=judged, last_failure=failure, ended_at=NOW))

    assert planned.event is not None
    assert planned.event.message.removeprefix("Job demo-1 has failed").strip(": .") == told.strip(".")
    assert ".." not in planned.event.message


def test_a_failed_job_without_words_fails_the_trial_without_words() -> None:
    planned = plan(started(), JobView(failed=Judgment(), ended_at=NOW))

    assert last(planned)[3] == "Trial has failed"
    assert planned.event is not None
    assert planned.event.message == "Job demo-1 has failed"


def test_failure_counts_before_success() -> None:
    both = JobView(failed=Judgment("A"), succeeded=Judgment("B"), ended_at=NOW)

    assert plan(started(), both, observed("0.5")).status.conditions[-1].type == "Failed"


def test_what_a_failed_job_had_reported_is_kept() -> None:
    assert plan(started(), BROKEN, observed("0.5")).status.observation == observed("0.5")


@pytest.mark.parametrize("reading", [observed("0.9"), None], ids=["with metrics", "before the first"])
def test_an_early_stopped_job_is_an_early_stopped_trial(reading: Observation | None, golden: Golden) -> None:
    planned = plan(started(), STOPPED, reading)

    golden(last(planned))
    assert planned.status.observation == reading


@pytest.mark.parametrize(
    ("made", "job", "reading"),
    [
        pytest.param(
            started(),
            JobView(succeeded=Judgment(), ended_at=NOW, metrics_report='4 lines, none matched "loss"'),
            None,
            id="the collector explains",
        ),
        pytest.param(started(), DONE, observed("unavailable"), id="only unavailable was reported"),
        pytest.param(started(metrics_collector=PUSH), DONE, None, id="a push collector was never called"),
        pytest.param(started(), DONE, None, id="nothing came in time"),
    ],
)
def test_metrics_that_are_missing_end_the_trial_with_the_cause(
    made: Trial, job: JobView, reading: Observation | None, golden: Golden
) -> None:
    planned = plan(made, job, reading)

    assert last(planned)[:3] == ("MetricsUnavailable", "True", "MetricsUnavailable")
    golden(last(planned)[3])
    assert planned.status.observation == reading
    assert planned.event is not None
    assert planned.event.warning
    golden(planned.event.message)


def test_metrics_are_waited_for_as_long_as_they_may_come() -> None:
    job = JobView(succeeded=Judgment(), ended_at=LATER - timedelta(seconds=20))
    planned = plan(started(), job)

    assert planned.status.conditions[-1].type == "Running"
    assert planned.again_after_seconds == 40.0


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "Killed", "EarlyStopped", "MetricsUnavailable"])
def test_a_trial_that_ended_keeps_its_end_whatever_the_job_says(end: str) -> None:
    made = trial("demo-1", CREATED, end)
    planned = plan(made, BROKEN, observed("0.5"))

    assert planned.status.conditions == made.status.conditions
    assert planned.delete_job
    assert not planned.create_job


@pytest.mark.parametrize("job", [DONE, BROKEN, STOPPED], ids=["succeeded", "failed", "stopped"])
def test_a_job_is_kept_when_the_template_retains_it(job: JobView) -> None:
    assert not plan(started(retain_run=True), job, observed("0.5")).delete_job


def test_a_killed_trial_loses_its_job_even_when_jobs_are_retained() -> None:
    assert plan(trial("demo-1", CREATED, "Killed", retain_run=True), JobView()).delete_job


def test_a_trial_that_a_service_declared_early_stopped_waits_for_its_observation() -> None:
    made = trial("demo-1", CREATED, RUNNING, "EarlyStopped")

    assert not plan(made, JobView()).delete_job
    late = plan(made, DONE, observed("0.5"))
    assert late.delete_job
    assert late.status.observation == observed("0.5")
    assert late.status.completion_time == LATER


def test_a_trial_that_ended_without_a_job_needs_nothing() -> None:
    made = trial("demo-1", CREATED, "Succeeded")
    ended = structs.replace(made, status=structs.replace(made.status, completion_time=NOW))

    assert plan(ended, None) == TrialPlan(status=ended.status)


@pytest.mark.parametrize(
    ("job", "value", "needed"),
    [
        pytest.param(None, None, False, id="no job"),
        pytest.param(JobView(), None, False, id="it runs"),
        pytest.param(DONE, None, True, id="it ended"),
        pytest.param(DONE, "0.5", False, id="it is known"),
    ],
)
def test_the_log_is_read_once_the_job_has_ended(job: JobView | None, value: str | None, *, needed: bool) -> None:
    assert needs_observation(trial("demo-1", value=value), job) is needed


def test_a_killed_trial_says_why_and_runs_no_more(golden: Golden) -> None:
    status = killed(started().status, "Trial is stopped: the goal was reached", LATER, 60.0)

    assert story(status.conditions)[1:] == [("Running", "False", "TrialRunning"), ("Killed", "True", "TrialKilled")]
    golden(status.conditions[-1].message)
    assert status.completion_time == LATER


# --- jobs -------------------------------------------------------------------------------------------------------------

SUCCESS = 'status.conditions.#(type=="Complete")#|#(status=="True")#'
FAILURE = 'status.conditions.#(type=="Failed")#|#(status=="True")#'


def condition(type_: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": type_, "status": status, **more}


def judged(*conditions: dict[str, str], annotations: Any = None, **status: Any) -> JobView:
    job = {"metadata": {"annotations": annotations}, "status": {"conditions": list(conditions), **status}}
    return view_of(job, trial(success_condition=SUCCESS, failure_condition=FAILURE), LATER)


@pytest.mark.parametrize(
    ("conditions", "failed", "succeeded"),
    [
        pytest.param((), None, None, id="none"),
        pytest.param((condition("Complete", "False"), condition("Failed", "False")), None, None, id="both false"),
        pytest.param(
            (condition("Failed", "False"), condition("Complete", reason="R", message="M")),
            None,
            Judgment("R", "M"),
            id="complete with words",
        ),
        pytest.param((condition("Failed", reason="R"),), Judgment("R", ""), None, id="failed"),
        pytest.param(
            (condition("SuccessCriteriaMet"), condition("Complete")), None, Judgment(), id="a forerunner of success"
        ),
        pytest.param(
            (condition("FailureTarget"), condition("Failed", message="M")),
            Judgment("", "M"),
            None,
            id="a forerunner of failure",
        ),
        pytest.param(
            (condition("Complete", "False"), condition("Complete", reason="second")),
            None,
            Judgment("second"),
            id="the second of a type",
        ),
    ],
)
def test_the_conditions_of_the_template_judge_a_job(
    conditions: tuple[dict[str, str], ...], failed: Judgment | None, succeeded: Judgment | None
) -> None:
    view = judged(*conditions)

    assert (view.failed, view.succeeded) == (failed, succeeded)
    assert (view.ended_at is None) is (failed is None and succeeded is None)


@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        pytest.param({"completionTime": "2024-05-01T12:00:07Z"}, 7, id="completion time"),
        pytest.param({"completionTime": "soon"}, 3600, id="unreadable"),
        pytest.param({}, 3600, id="when it was seen"),
    ],
)
def test_a_job_ended_when_it_says_so_else_when_it_was_seen(end: dict[str, str], seconds: int) -> None:
    assert judged(condition("Complete"), **end).ended_at == NOW + timedelta(seconds=seconds)


def test_the_last_transition_stands_in_for_a_completion_time() -> None:
    view = judged(condition("Failed", lastTransitionTime="2024-05-01T14:00:03+02:00"))

    assert view.ended_at == NOW + timedelta(seconds=3)


def test_the_collector_speaks_through_an_annotation_of_the_job() -> None:
    view = judged(annotations={"katib.kubeflow.org/metrics-report": "nothing was printed"})

    assert view.metrics_report == "nothing was printed"


def test_without_conditions_to_judge_by_a_job_never_ends() -> None:
    assert view_of({"status": {"conditions": [condition("Complete")]}}, trial(), LATER) == JobView()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (condition("Complete"), "ConditionsNeverHold"),
        (condition("Failed", reason="BackoffLimitExceeded"), "BackoffLimitExceeded"),
        (condition("Complete", "False"), None),
        (condition("Suspended"), None),
    ],
    ids=["complete", "failed", "not complete", "suspended"],
)
def test_a_job_that_has_ended_while_no_condition_can_hold_fails_its_trial_at_once(
    end: dict[str, str], reason: str | None
) -> None:
    made = trial(success_condition="status.succeeded", failure_condition="status.failed", run_spec={"kind": "Job"})
    view = view_of(
        {"apiVersion": "batch/v1", "kind": "Job", "status": {"conditions": [end], "succeeded": 1}}, made, LATER
    )

    assert (view.failed and view.failed.reason, view.succeeded) == (reason, None)
    assert (view.ended_at is not None) is (reason is not None)


def test_an_explanation_that_may_still_come_is_waited_for_a_moment(golden: Golden) -> None:
    ended = JobView(succeeded=Judgment("CompletionsReached"), ended_at=LATER - timedelta(seconds=1))
    nothing = observed("unavailable")
    waiting = plan(started(), ended, nothing, settings=ControllerSettings(explanation_seconds=3.0))
    explained = plan(started(), replace(ended, metrics_report='4 lines, none matched "loss"'), nothing)
    late = plan(
        started(),
        replace(ended, ended_at=LATER - timedelta(seconds=5)),
        nothing,
        settings=ControllerSettings(explanation_seconds=3.0),
    )

    assert waiting.again_after_seconds == 2.0
    assert last(waiting)[0] == "Running"
    golden(last(explained)[3])
    golden(last(late)[3])


# --- a part of the readings -------------------------------------------------------------------------------------------

PART = observed("0.388")
KILLED = "container metrics-logger-and-collector in pod p was killed because it ran out of memory"


def test_a_value_of_a_part_of_the_readings_never_wins() -> None:
    planned = plan(started(), replace(DONE, incomplete=KILLED), PART)

    assert last(planned) == ("MetricsUnavailable", "True", "MetricsIncomplete", f"Metrics are not complete: {KILLED}")
    assert planned.status.observation is None
    assert planned.delete_job
    assert planned.event is not None
    assert (planned.event.reason, planned.event.warning) == ("MetricsUnavailable", True)


def test_an_incomplete_trial_keeps_its_end_and_is_not_observed_later() -> None:
    ended = structs.replace(started(), status=plan(started(), replace(DONE, incomplete=KILLED), PART).status)

    assert not needs_observation(ended, DONE)
    assert plan(ended, DONE).status == ended.status


def test_a_collector_that_may_still_store_something_is_waited_for_but_not_for_ever(golden: Golden) -> None:
    collecting = replace(
        DONE, ended_at=LATER - timedelta(seconds=10), collecting="the collector in pod p had not ended"
    )

    waiting = plan(started(), collecting, PART)
    stored = plan(started(), replace(collecting, collecting=""), PART)
    late = plan(started(), replace(collecting, ended_at=LATER - timedelta(seconds=60)), PART)

    assert (last(waiting)[0], waiting.again_after_seconds) == ("Running", 50.0)
    assert last(stored)[0] == "Succeeded"
    golden(last(late)[2:])


def test_a_job_that_failed_for_its_collector_alone_has_no_metrics_and_any_other_failed() -> None:
    alone = plan(started(), replace(BROKEN, lost=KILLED))
    both = plan(started(), replace(BROKEN, lost=KILLED, last_failure="Container main was killed"))

    assert last(alone)[2:] == ("MetricsIncomplete", f"Metrics are not complete: {KILLED}")
    assert last(both)[0] == "Failed"


def test_a_trial_that_was_stopped_early_is_that_whatever_its_collector_did() -> None:
    assert last(plan(started(), replace(STOPPED, incomplete=KILLED), PART))[0] == "EarlyStopped"


REFUSED = PodRefusal("exceeded quota: q", since=LATER - timedelta(seconds=100), is_passing=True)
UNCOLLECTED = UncollectedPod("pod demo-1-x ran without metrics collector, because the webhook did not answer")


def test_a_trial_whose_pods_are_refused_waits_and_says_who_refuses_them() -> None:
    planned = plan(started(), JobView(refusal=REFUSED))

    message = "Trial waits: no pod of its job can be created: exceeded quota: q"
    assert last(planned) == ("Running", "False", "TrialWaiting", message)
    assert planned.again_after_seconds == 200
    assert not planned.delete_job


@pytest.mark.parametrize(
    ("refusal", "patience"),
    [
        (REFUSED, 100.0),
        (replace(REFUSED, is_final=True), 300.0),
        (REFUSED, 0.0),
        (replace(REFUSED, is_passing=False), 300.0),
    ],
    ids=["patience is over", "forever", "no patience", "for what it is"],
)
def test_a_trial_whose_pods_stay_refused_fails_with_the_refusal(refusal: PodRefusal, patience: float) -> None:
    made = started(retain_run=True)
    planned = plan(
        made, JobView(refusal=refusal), settings=ControllerSettings(passing_refusal_patience_seconds=patience)
    )

    message = "Trial has failed: no pod of its job can be created: exceeded quota: q"
    assert last(planned) == ("Failed", "True", "TrialPodsRefused", message)
    assert planned.delete_job
    assert planned.event is not None
    assert planned.event.warning


def test_a_job_whose_pods_were_refused_goes_even_if_jobs_are_retained() -> None:
    over = plan(started(retain_run=True), JobView(refusal=replace(REFUSED, is_final=True)))

    assert plan(trial("demo-1", *over.status.conditions, retain_run=True), JobView()).delete_job


def test_a_pod_without_collector_is_no_part_of_a_success() -> None:
    """The others may have reported, but not what this one printed."""
    planned = plan(started(), replace(DONE, uncollected=UNCOLLECTED), observed("0.5"))

    assert last(planned)[0] == "Running"
    assert planned.again_after_seconds is not None


@pytest.mark.parametrize("collector", [None, PUSH], ids=["collected", "pushed"])
@pytest.mark.parametrize("reading", [None, observed("0.5")], ids=["nothing reported", "others reported"])
def test_a_trial_whose_pod_stays_without_collector_says_so_and_not_what_its_program_did(
    collector: MetricsCollectorSpec | None, reading: Observation | None
) -> None:
    job = replace(DONE, uncollected=replace(UNCOLLECTED, is_final=True), metrics_report="none matched")
    made = started() if collector is None else started(metrics_collector=collector)
    planned = plan(made, job, reading)

    message = f"Metrics are not available: {UNCOLLECTED.message}"
    assert last(planned) == ("MetricsUnavailable", "True", "PodWithoutCollector", message)


# --- stopped by the early stopping service ----------------------------------------------------------------------------

WHY = "loss 0.91 at step 4 is worse than 0.43, the best third of 27 trials"


def stopping(**spec: Any) -> Trial:
    """Return a trial whose verdict is written down."""
    begun = plan(started(**spec), JobView(), verdict=WHY)
    return trial("demo-1", *begun.status.conditions, **spec)


@pytest.mark.parametrize("retained", [False, True], ids=["disposable", "retained"])
def test_why_a_trial_is_stopped_is_written_down_before_its_job_is_deleted(*, retained: bool, golden: Golden) -> None:
    planned = plan(started(retain_run=retained), JobView(), verdict=WHY)

    golden(last(planned))
    assert planned.delete_job
    assert planned.status.completion_time is None


@pytest.mark.parametrize("job", [DONE, BROKEN], ids=["succeeded", "failed"])
@pytest.mark.parametrize("written", [False, True], ids=["verdict in memory", "verdict written"])
def test_a_trial_that_ends_by_itself_before_its_job_is_deleted_keeps_its_end(job: JobView, *, written: bool) -> None:
    made, verdict = (stopping(), "") if written else (started(), WHY)

    planned = plan(made, job, observed("0.5"), verdict=verdict)

    assert planned.status.conditions[-1].type == ("Succeeded" if job is DONE else "Failed")


@pytest.mark.parametrize("job", [JobView(), JobView(is_going=True), replace(BROKEN, is_going=True)])
def test_a_stopped_trial_runs_on_while_its_job_is_there(job: JobView) -> None:
    made = stopping(retain_run=True)

    planned = plan(made, job)

    assert planned.status.conditions == made.status.conditions
    assert planned.delete_job


def test_a_stopped_trial_runs_on_while_programs_of_its_job_do() -> None:
    made = stopping()

    assert plan(made, None, is_ending=True) == TrialPlan(status=made.status)


def test_a_stopped_trial_ends_with_the_reason_and_its_last_value_when_its_job_is_gone() -> None:
    planned = plan(stopping(), None, observed("0.91"))

    assert not planned.create_job
    assert story(planned.status.conditions)[1:] == [
        ("Running", "False", "TrialRunning"),
        ("EarlyStopped", "True", "TrialEarlyStopped"),
    ]
    assert last(planned)[-1] == f"Trial is early stopped: {WHY}"
    assert (planned.status.observation, planned.status.completion_time) == (observed("0.91"), LATER)
    assert planned.event is not None
    assert planned.event.reason == "TrialEarlyStopped"


def test_the_observation_of_a_stopped_trial_is_read_when_its_job_is_gone() -> None:
    assert needs_observation(stopping(), None)
    assert not needs_observation(stopping(), JobView())
    assert not needs_observation(started(), None)


def test_a_verdict_about_a_trial_without_a_job_waits_for_it() -> None:
    assert plan(started(), None, verdict=WHY).create_job


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        pytest.param(4.9, "", id="once"),
        pytest.param(12.0, "; it had run for 8 s before it was started again", id="three times"),
    ],
)
def test_a_trial_past_its_deadline_says_how_long_it_ran_before_the_run_that_counts(ran: float, words: str) -> None:
    cause = "the job was active for longer than its deadline of 4 s"
    view = JobView(failed=Judgment("DeadlineExceeded", cause), began_at=NOW - timedelta(seconds=4), ended_at=NOW)

    assert last(plan(started(), view, run_seconds=ran))[3] == f"Trial has failed: {cause}{words}"
