"""What is said of an experiment, how objects are read for it, and what early stopping saved."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from katib.model.types import Experiment, Trial
from katib.model.wording import format_duration
from katib.service.explaining.answer import saved_share, savings_sentence
from katib.service.explaining.evidence import Evidence, JobFacts, ServiceFacts
from katib.service.explaining.experiment import diagnose_experiment
from katib.service.tuning.reading import best_trial_of, format_run, time_of
from katib.service.tuning.service import Json, RecordedEvent
from katib.service.tuning.states import is_completed, objective_value, state_of
from tests.support.golden import Golden
from tests.support.tuning import (
    START,
    condition,
    make_experiment,
    make_pareto_experiment,
    make_suggestion,
    make_trial,
    patched,
)

NOW = START + timedelta(minutes=2)
RUNNING = condition("Running")
EXHAUSTED = condition("Succeeded", "ExperimentSuggestionEndReached")
MAX_TRIALS = condition("Succeeded", "ExperimentMaxTrialsReached")


def verdict(experiment: Experiment, **evidence: Any) -> str:
    return diagnose_experiment(experiment, Evidence(now=NOW, experiment=experiment, **evidence)).verdict


def warn(reason: str, message: str, *, at: float = 60, count: int = 1) -> RecordedEvent:
    return RecordedEvent(START + timedelta(seconds=at), "Experiment", "demo", True, reason, message, count)


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param({}, id="unknown"),
        pytest.param({"controllers_running": False}, id="nobody-works"),
        pytest.param({"events": (warn("DiskFull", "cannot write"),)}, id="disk-full"),
        pytest.param(
            {"events": (warn("ReconcileError", "Failed to reconcile: database is locked"),)}, id="database-away"
        ),
        pytest.param({"services": (ServiceFacts("tpe", "starting"),)}, id="service-starts"),
        pytest.param(
            {"services": (ServiceFacts("tpe", "failing", 3, "No module named 'optuna'"),)}, id="service-fails"
        ),
        pytest.param({"suggestion": make_suggestion()}, id="service-of-a-cluster-starts"),
        pytest.param(
            {"suggestion": make_suggestion(condition("DeploymentReady"), RUNNING, requests=4, count=3)},
            id="waits-for-assignments",
        ),
        pytest.param(
            {"suggestion": make_suggestion(condition("Failed", message="seed must be at least 0."))},
            id="validation-refused",
        ),
        pytest.param({"trials": (make_trial("t", RUNNING),)}, id="trials-run"),
        pytest.param(
            {
                "trials": (make_trial("t", condition("Created")), make_trial("u", condition("Created"))),
                "jobs": {"t": JobFacts(job={}, waiting="its job waits for 4 cpu; 0 of 2 cpu are free")},
            },
            id="trials-wait-for-cpu",
        ),
    ],
)
def test_an_unfinished_experiment_has_one_answer(evidence: dict[str, Any], golden: Golden) -> None:
    golden(verdict(make_experiment("demo", condition("Created")), **evidence))


@pytest.mark.parametrize(("status", "running"), [("False", 0), ("True", 2)])
def test_a_missing_template_is_the_answer_whether_or_not_trials_still_run(
    status: str, running: int, golden: Golden
) -> None:
    cause = "spec.trialTemplate.configMap.configMapName: ConfigMap team/x is not found; create it"
    waiting = condition("Running", "TrialTemplateMissing", message=f"Experiment waits for its trial template: {cause}")
    experiment = patched(
        make_experiment("demo", condition("Created"), {**waiting, "status": status}), status={"trialsRunning": running}
    )
    events = (warn("TrialTemplateMissing", waiting["message"]),)

    answer = diagnose_experiment(experiment, Evidence(now=NOW, experiment=experiment, events=events))

    golden(answer.verdict)
    golden(answer.remedies)
    assert ("2 trials that were made before continue." in answer.findings) is bool(running)
    assert not any("Warning" in finding for finding in answer.findings)


@pytest.mark.parametrize(("status", "running"), [("False", 0), ("True", 2)])
def test_a_service_that_is_away_is_the_answer_and_has_not_failed(status: str, running: int, golden: Golden) -> None:
    cause = 'suggestion service "tpe" was killed by SIGKILL'
    away = condition("Running", "SuggestionServiceUnavailable", message=f"Experiment waits for its algorithm: {cause}")
    experiment = patched(
        make_experiment("demo", condition("Created"), {**away, "status": status}), status={"trialsRunning": running}
    )
    events = (warn("SuggestionServiceWaiting", cause), warn("SuggestionServiceUnavailable", away["message"]))
    services = (ServiceFacts("tpe", "failing", 7, f"{cause} (6 times in a row)"),)
    evidence = Evidence(now=NOW, experiment=experiment, events=events, services=services)

    answer = diagnose_experiment(experiment, evidence)

    golden(answer.verdict)
    golden(answer.findings)
    assert ("2 trials that were made before continue." in answer.findings) is bool(running)
    assert not any("Warning" in finding for finding in answer.findings)
    golden([remedy.partition(",")[0] for remedy in answer.remedies])


@pytest.mark.parametrize("at_work", [True, False], ids=["a controller works", "nobody works"])
def test_a_deletion_takes_its_trials_and_somebody_at_work(at_work: bool, golden: Golden) -> None:
    deleted = patched(
        make_experiment("demo", condition("Created")), metadata={"deletionTimestamp": "2030-01-01T12:00:00Z"}
    )

    golden(verdict(deleted, controllers_running=at_work))


def test_causes_hide_each_other_in_their_order_until_something_else_happened() -> None:
    """A failing service matters more than the trials that still run, a full disk more than the service."""
    running = {"trials": (make_trial("t", RUNNING),)}
    failing = {"services": (ServiceFacts("tpe", "failing", 1, "boom"),)}
    full = {"events": (warn("DiskFull", "cannot write"),)}

    assert "does not start: boom" in verdict(make_experiment(), **running, **failing)
    assert "the disk is full" in verdict(make_experiment(), **running, **failing, **full)

    later = structs.replace(warn("TrialCreated", "fine", at=90), warning=False)
    events = (warn("DiskFull", "cannot write"), later)

    assert "the disk is full" not in verdict(make_experiment(), events=events)


def test_one_answer_counts_the_trials_that_run_once() -> None:
    running = tuple(make_trial(name, RUNNING) for name in "ab")
    experiment = make_experiment("demo", RUNNING, trialsRunning=1, trialsPending=1)
    diagnosis = diagnose_experiment(experiment, Evidence(now=NOW, trials=running))

    assert "2 trials running" in diagnosis.verdict
    assert "2 running, 0 waiting" in diagnosis.findings[0]


def test_programs_that_run_are_counted_while_a_full_disk_takes_no_status() -> None:
    jobs = {"a": JobFacts(runs=True), "b": JobFacts(runs=True), "c": JobFacts()}
    diagnosis = diagnose_experiment(make_experiment(), Evidence(now=NOW, jobs=jobs, disk_is_full=True))

    assert "the disk is full" in diagnosis.verdict
    assert "2 running, 0 waiting" in diagnosis.findings[0]


def test_a_failing_service_says_how_often_it_was_tried_and_what_to_install(golden: Golden) -> None:
    facts = ServiceFacts("tpe", "failing", 3, "No module named 'optuna'")
    diagnosis = diagnose_experiment(make_experiment(), Evidence(now=NOW, services=(facts,)))

    golden(diagnosis.findings)
    golden(diagnosis.remedies)


@pytest.mark.parametrize(
    ("end", "best"),
    [
        pytest.param(
            condition("Succeeded", "ExperimentGoalReached"),
            make_trial("t", condition("Succeeded"), loss="0.01"),
            id="goal",
        ),
        pytest.param(MAX_TRIALS, None, id="max-trials"),
        pytest.param(EXHAUSTED, None, id="exhausted"),
        pytest.param(condition("Failed", message="Trial template cannot be rendered: spec.x"), None, id="template"),
    ],
)
def test_a_finished_experiment_says_how_it_ended(end: Json, best: Trial | None, golden: Golden) -> None:
    experiment = patched(make_experiment("demo", RUNNING, end), spec={"objective": {"goal": 0.05}})

    golden(verdict(experiment, best=best))


def test_a_finished_search_says_so_with_its_whole_goal(golden: Golden) -> None:
    experiment = patched(
        make_experiment("demo", RUNNING, condition("Succeeded", "ExperimentGoalReached")),
        spec={"objective": {"goal": 1.0}},
    )

    golden(verdict(experiment, best=make_trial("t", condition("Succeeded"), loss="1")))
    golden(verdict(experiment))

    experiment = patched(
        make_experiment("demo", RUNNING, EXHAUSTED), spec={"algorithm": {"algorithmName": "hyperband"}}
    )
    suggestion = make_suggestion(explanation="all brackets are over")
    diagnosis = diagnose_experiment(experiment, Evidence(now=NOW, suggestion=suggestion))

    golden(diagnosis.verdict)
    golden(diagnosis.findings)


def test_what_the_suggestion_service_waits_for_is_told_beside_the_trials_that_run(golden: Golden) -> None:
    waits = condition("WaitingForTrials", "TrialsRunning", "hyperband waits for 1 trial of rung 0")
    suggestion = make_suggestion(condition("DeploymentReady"), waits, requests=4, count=3)
    running = make_trial("t", condition("Running"))
    told = diagnose_experiment(make_experiment(), Evidence(now=NOW, suggestion=suggestion, trials=(running,)))
    alone = diagnose_experiment(make_experiment(), Evidence(now=NOW, suggestion=suggestion))

    golden(told.findings)
    golden(alone.verdict)


def test_a_spent_failure_budget_names_the_trials_and_the_commonest_cause(golden: Golden) -> None:
    experiment = make_experiment("demo", condition("Failed", "ExperimentFailed"), trialsFailed=3)
    trials = tuple(make_trial(name, condition("Failed")) for name in "abc")
    jobs = {
        "a": JobFacts(exit_code=1, log_tail=("Trace\x1b]0;title\x07back", "\x1b[31mKeyError: 'lr'\x1b[0m")),
        "b": JobFacts(exit_code=1),
        "c": JobFacts(signal="SIGKILL"),
    }
    diagnosis = diagnose_experiment(experiment, Evidence(now=NOW, trials=trials, jobs=jobs))

    golden(diagnosis.verdict)
    golden(diagnosis.findings)
    assert diagnosis.log_tail == ("Traceback", "KeyError: 'lr'")


def test_lost_metrics_and_failed_suggestions_keep_their_words(golden: Golden) -> None:
    experiment = make_experiment("demo", condition("Failed", "ExperimentFailed"), trialMetricsUnavailable=3)
    trials = (make_trial("a", condition("MetricsUnavailable", message="1 line, none matched")),)
    events = (warn("ExperimentFailed", "max failed count has reached"),)
    findings = diagnose_experiment(experiment, Evidence(now=NOW, trials=trials, events=events)).findings

    golden(findings)
    assert not any("ExperimentFailed" in finding for finding in findings)

    experiment = make_experiment("demo", condition("Failed", message="Suggestion has failed"))
    suggestion = make_suggestion(condition("Failed", message="grid needs a step"))

    golden(verdict(experiment, suggestion=suggestion))


def test_findings_tell_progress_best_restarts_and_warnings(golden: Golden) -> None:
    best = make_trial("t", condition("Succeeded"), loss="0.2", lr="0.1")
    restarted = RecordedEvent(NOW - timedelta(seconds=30), "Experiment", "demo", False, "EngineRestarted", "again")
    experiment = make_experiment("demo", RUNNING, trialsSucceeded=3, trialsRunning=1, trialsPending=1)
    evidence = Evidence(
        now=NOW,
        best=best,
        trials=(make_trial("u", RUNNING),),
        events=(warn("ReconcileError", "it hurt.", count=4), restarted),
    )

    golden(diagnose_experiment(experiment, evidence).findings)


@pytest.mark.parametrize("state", [RUNNING, MAX_TRIALS], ids=["running", "ended"])
def test_the_choice_of_the_algorithm_is_among_the_findings(state: Json) -> None:
    explanation = "auto uses gp, since a model of the objective pays with 4 parameters and a budget of 60 trials."
    suggestion = make_suggestion(explanation=explanation)

    diagnosis = diagnose_experiment(make_experiment("demo", state), Evidence(now=NOW, suggestion=suggestion))

    assert explanation in diagnosis.findings


def test_a_diagnosis_fits_one_screen_however_many_trials_there_are() -> None:
    trials = tuple(make_trial(f"t{i}", RUNNING, x="1") for i in range(200))
    events = tuple(warn(f"Reason{i}", "message") for i in range(50))
    jobs = {f"t{i}": JobFacts(job={}, log_tail=("line",) * 1000) for i in range(200)}
    diagnosis = diagnose_experiment(make_experiment(), Evidence(now=NOW, trials=trials, events=events, jobs=jobs))

    assert len(diagnosis.findings) + len(diagnosis.remedies) + len(diagnosis.log_tail) <= 24


# --- several objectives and constraints -------------------------------------------------------------------------------


def test_of_several_objectives_the_pareto_set_and_the_whole_goal_are_told(golden: Golden) -> None:
    done = make_pareto_experiment("demo", condition("Succeeded", "ExperimentMaxTrialsReached"))
    best = best_trial_of(done)

    golden(diagnose_experiment(done, Evidence(now=START, experiment=done, best=best)).findings)

    done = make_pareto_experiment("demo", condition("Succeeded", "ExperimentGoalReached"))

    golden(diagnose_experiment(done, Evidence(now=START, experiment=done)).verdict)


def test_that_no_trial_satisfies_the_constraints_is_told(golden: Golden) -> None:
    left = patched(
        make_pareto_experiment("demo", condition("Succeeded"), currentOptimalTrial={}, paretoSet=None),
        status={"trialsInfeasible": 4},
    )

    golden(diagnose_experiment(left, Evidence(now=START, experiment=left)).findings)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (3600, "1h"),
        (18_720, "5h12m"),
        (86_400, "1d"),
        (273_600, "3d4h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "<1s"),
        (0.04, "<1s"),
        (0.2, "0.2s"),
        (1.0, "1s"),
        (4.66, "4.7s"),
        (9.96, "9s"),
        (10.4, "10s"),
        (200.5, "3m20s"),
    ],
)
def test_short_runs_have_a_decimal(seconds: float, text: str) -> None:
    assert format_run(seconds) == text


def test_objects_without_status_or_observation_are_read() -> None:
    gone = {**condition("Running"), "status": "False"}

    assert state_of(make_experiment("demo", condition("Created"), gone)) == "Created"
    assert state_of(make_trial("t", condition("Created"))) == "Pending"
    assert state_of(make_trial("t", condition("Created"), condition("Running"))) == "Running"

    assert not is_completed(Experiment())
    assert state_of(Experiment()) == "Created"

    assert objective_value(make_trial("t")) is None


@pytest.mark.parametrize("text", [None, "", "yesterday", 3], ids=["none", "empty", "words", "number"])
def test_what_is_no_time_is_none(text: object) -> None:
    assert time_of(text) is None


@pytest.mark.parametrize(
    ("stopped", "complete", "share"),
    [
        pytest.param([4, 4], [10, 10], 12 / 40, id="the rest of what was stopped"),
        pytest.param([10, 12], [10, 10], 0.0, id="stopped at the end"),
        pytest.param([0], [10], 0.5, id="stopped before the first reading"),
        pytest.param([5], [10, 10, 1000], 5 / 1030, id="one long trial is not the usual one"),
    ],
)
def test_the_share_is_of_what_all_trials_would_have_reported(
    stopped: list[int], complete: list[int], share: float
) -> None:
    assert saved_share(stopped, complete, stopped=len(stopped), complete=len(complete)) == pytest.approx(share)


def test_a_sample_stands_for_all() -> None:
    assert saved_share([4], [10], stopped=200, complete=200) == pytest.approx(6 / 20)


@pytest.mark.parametrize(("stopped", "complete"), [([], [10]), ([4], []), ([0], [0])])
def test_nobody_knows_the_share_without_a_trial_of_each_kind(stopped: list[int], complete: list[int]) -> None:
    assert saved_share(stopped, complete, stopped=1, complete=1) is None


def experiment(stopped: int, succeeded: int, algorithm: str = "asha") -> Experiment:
    spec = {"earlyStopping": {"algorithmName": algorithm}} if algorithm else {}
    total = stopped + succeeded
    status = {"trials": total, "trialsEarlyStopped": stopped, "trialsSucceeded": succeeded}
    return Experiment.decode({"spec": spec, "status": status})


def test_what_early_stopping_saved_is_a_sentence_where_there_is_something(golden: Golden) -> None:
    golden(savings_sentence(experiment(14, 46), saved_share([4], [10], stopped=14, complete=46)))
    golden(savings_sentence(experiment(0, 60), saved_share([], [10], stopped=0, complete=60)))

    assert savings_sentence(experiment(0, 60, algorithm=""), None) == ""
    assert savings_sentence(experiment(0, 0), None) == ""
