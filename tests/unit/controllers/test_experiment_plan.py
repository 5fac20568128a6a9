"""What is done about an experiment, as vectors: what is seen, what is planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from katib.engine.controllers.experiment.plan import ExperimentPlan, Observed, Obstacle, plan_experiment
from katib.engine.controllers.ledger import TrialCounts
from katib.engine.controllers.settings import FINISH_ANNOTATION
from katib.engine.controllers.suggestion import states
from katib.engine.controllers.suggestion.states import EXHAUSTED
from katib.engine.runtime.objects import Key
from katib.model.features.budgets.annotations import LIMITS
from katib.model.features.budgets.feature import Budgets
from katib.model.features.budgets.spending import Uses
from katib.model.names import AHEAD_ANNOTATION, ASKED_ANNOTATION, FIRST_FAILURES_ANNOTATION
from katib.model.types import ParameterAssignment, Trial, TrialAssignment, TrialState
from tests.support.golden import Golden
from tests.support.planning import (
    LATER,
    NOW,
    KnownLedger,
    experiment,
    holding,
    readings,
    story,
    suggestion,
    trial,
    two_objectives,
)

CREATED = holding("Created", "ExperimentCreated", message="Experiment is created")
RUNNING = holding("Running", "ExperimentRunning", message="Experiment is running")
MAX_REACHED = holding("Succeeded", "ExperimentMaxTrialsReached")
GOAL = {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.1}


def counts(*, best: Any = None, **states: int) -> TrialCounts:
    """Return counts with so many trials in these states (`running=2`)."""
    counts = {TrialState[name.upper()]: count for name, count in states.items()}
    active = tuple(f"run-{i}" for i in range(states.get("running", 0) + states.get("pending", 0)))
    winner = None if best is None else trial("best", "Succeeded", value=best)
    return TrialCounts(counts=counts, active=active, best=winner)


def assignments(*names: str) -> tuple[TrialAssignment, ...]:
    return tuple(
        TrialAssignment(name=name, parameter_assignments=(ParameterAssignment(name="lr", value="0.05"),))
        for name in names
    )


def plan(*conditions: Any, seen: dict[str, Any] | None = None, **spec: Any) -> ExperimentPlan:
    """Plan for an experiment with this spec; `seen` overrides what is observed.

    The budget of its annotations applies to the `uses` in `seen`.
    """
    fields = {"suggestion": suggestion(), "counts": TrialCounts(), **(seen or {})}
    made = experiment(*(conditions or (CREATED,)), annotations=fields.pop("annotations", None), **spec)
    if (uses := fields.pop("uses", None)) is not None:
        fields["parts"] = (Budgets().limits(made, uses, keeps_checkpoints=fields.pop("keeps_checkpoints", False)),)
    return plan_experiment(Observed(made, now=LATER, **fields))


# --- the beginning ----------------------------------------------------------------------------------------------------


def test_a_new_experiment_is_created_and_asks_for_as_many_as_may_run() -> None:
    made = experiment(maxTrialCount=10, parallelTrialCount=3)
    planned = plan_experiment(Observed(made, None, TrialCounts(), now=NOW))

    assert story(planned.status.conditions) == [("Created", "True", "ExperimentCreated")]
    assert planned.status.conditions[0].message == "Experiment is created"
    assert planned.status.start_time == NOW
    assert (planned.create_suggestion, planned.requests) == (True, 3)


def test_it_is_running_once_a_trial_exists_and_not_before() -> None:
    assert story(plan().status.conditions) == [("Created", "True", "ExperimentCreated")]
    running = plan(seen={"counts": counts(pending=1)}).status.conditions[-1]
    assert (running.type, running.reason, running.message) == ("Running", "ExperimentRunning", "Experiment is running")


def test_planning_again_changes_nothing() -> None:
    first = plan(seen={"counts": counts(running=2), "suggestion": suggestion(requests=2, suggestion_count=2)})
    made = structs.replace(experiment(CREATED), status=first.status)
    again = plan_experiment(Observed(made, suggestion(requests=2, suggestion_count=2), counts(running=2), now=LATER))

    assert again == ExperimentPlan(status=first.status)


# --- how many trials --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trials", "waiting", "created", "asked"),
    [
        pytest.param({}, 0, 0, 3, id="nothing yet"),
        pytest.param({}, 3, 3, 0, id="all have come"),
        pytest.param({}, 2, 2, 1, id="some have come"),
        pytest.param({}, 5, 3, 0, id="more than fit"),
        pytest.param({"running": 3}, 0, 0, 0, id="full"),
        pytest.param({"running": 3}, 2, 0, 0, id="full with waiting ones"),
        pytest.param({"running": 1, "pending": 1}, 1, 1, 0, id="pending counts as active"),
        pytest.param({"running": 5}, 0, 0, 0, id="parallelism was lowered"),
        pytest.param({"succeeded": 8}, 0, 0, 2, id="the budget leaves two"),
        pytest.param({"succeeded": 8, "running": 2}, 0, 0, 0, id="the last ones run"),
        pytest.param({"succeeded": 5, "metrics_unavailable": 4}, 0, 0, 1, id="missing metrics count as done"),
        pytest.param({"early_stopped": 3, "killed": 2, "failed": 1}, 0, 0, 3, id="every end counts"),
    ],
)
def test_active_waiting_and_asked_for_fill_the_parallelism_within_the_budget(
    trials: dict[str, int], waiting: int, created: int, asked: int
) -> None:
    names = assignments(*(f"w{i}" for i in range(waiting)))
    given = sum(trials.values()) + waiting
    asking = suggestion(requests=given, suggestion_count=given, suggestions=names)
    planned = plan(
        seen={"suggestion": asking, "counts": counts(**trials), "waiting": names},
        maxTrialCount=10,
        parallelTrialCount=3,
    )

    assert [a.name for a in planned.create_trials] == [a.name for a in names[:created]]
    assert planned.requests == (given + asked if asked else None)


@pytest.mark.parametrize(
    ("annotations", "running", "waiting", "outstanding", "requested"),
    [
        pytest.param({ASKED_ANNOTATION: "5"}, 3, 0, 0, 2, id="as many as were asked for"),
        pytest.param({ASKED_ANNOTATION: "9"}, 3, 0, 0, 3, id="and may be evaluated at once"),
        pytest.param({ASKED_ANNOTATION: "5"}, 3, 2, 0, 0, id="those that wait were asked for"),
        pytest.param({AHEAD_ANNOTATION: "10"}, 6, 0, 0, 10, id="ahead whatever the parallelism"),
        pytest.param({AHEAD_ANNOTATION: "10"}, 6, 4, 0, 6, id="filled up when half are gone"),
        pytest.param({AHEAD_ANNOTATION: "10"}, 6, 5, 0, 0, id="not one by one"),
        pytest.param({AHEAD_ANNOTATION: "10"}, 6, 1, 9, 9, id="nor while they are made"),
        pytest.param({AHEAD_ANNOTATION: "10"}, 6, 20, 0, 0, id="more than fit"),
        pytest.param({AHEAD_ANNOTATION: "100"}, 6, 0, 0, 14, id="within the budget"),
    ],
)
def test_trials_of_callers_are_made_by_them_from_what_was_requested(
    annotations: dict[str, str], running: int, waiting: int, outstanding: int, requested: int
) -> None:
    names = assignments(*(f"w{i}" for i in range(waiting)))
    given = running + waiting
    asking = suggestion(requests=given + outstanding, suggestion_count=given, suggestions=names)
    planned = plan(
        seen={"suggestion": asking, "counts": counts(running=running), "waiting": names, "annotations": annotations},
        trialTemplate=None,
        maxTrialCount=20,
        parallelTrialCount=6,
    )

    assert planned.create_trials == ()
    assert given + requested == (asking.spec.requests if planned.requests is None else planned.requests)


@pytest.mark.parametrize("parallel", [0, -3])
def test_no_trials_at_once_which_no_webhook_saw_means_one(parallel: int) -> None:
    assert plan(parallelTrialCount=parallel, maxTrialCount=10).requests == 1


def test_an_unlimited_experiment_keeps_the_parallelism_full() -> None:
    asking = suggestion(requests=5000, suggestion_count=5000)
    planned = plan(
        seen={"suggestion": asking, "counts": counts(succeeded=5000)}, maxTrialCount=None, parallelTrialCount=2
    )

    assert planned.requests == 5002


def test_what_was_asked_for_already_is_not_asked_for_twice() -> None:
    assert plan(seen={"suggestion": suggestion(requests=2, suggestion_count=0)}).requests is None


def test_requests_fall_when_the_parallelism_does() -> None:
    asking = suggestion(requests=9, suggestion_count=4)
    planned = plan(
        seen={"suggestion": asking, "counts": counts(running=1, succeeded=3)}, maxTrialCount=20, parallelTrialCount=2
    )

    assert planned.requests == 5


def test_only_the_assignment_without_a_trial_becomes_one() -> None:
    planned = plan(seen={"counts": counts(running=2), "waiting": assignments("two")}, parallelTrialCount=3)

    assert [a.name for a in planned.create_trials] == ["two"]


def test_a_template_that_cannot_be_rendered_starts_nothing_and_waits_for_what_runs() -> None:
    seen = {
        "counts": counts(running=1),
        "waiting": assignments("a"),
        "obstacle": Obstacle("Trial template cannot be rendered: spec.trialTemplate: broken"),
    }
    planned = plan(seen=seen)

    assert (planned.create_trials, planned.requests) == ((), None)
    assert planned.status.conditions[-1].type == "Running"


MISSING = Obstacle("Experiment waits for its trial template: ConfigMap team/x is not found", may_pass=True)


@pytest.mark.parametrize(("trials", "status"), [({}, "False"), ({"running": 1}, "True"), ({"failed": 1}, "False")])
def test_a_template_that_is_missing_starts_nothing_and_is_waited_for(trials: dict[str, int], status: str) -> None:
    seen = {"counts": counts(**trials), "waiting": assignments("a"), "obstacle": MISSING, "suggestion": None}
    planned = plan(CREATED, RUNNING, seen=dict(seen))
    again = plan(*planned.status.conditions, seen=dict(seen))

    assert (planned.create_trials, planned.requests, planned.create_suggestion) == ((), None, False)
    assert story(planned.status.conditions)[1:] == [("Running", status, "TrialTemplateMissing")]
    assert planned.status.conditions[-1].message == MISSING.cause
    assert again.status.conditions == planned.status.conditions


AWAY = states.unavailable((), 'suggestion service "tpe" was killed by SIGKILL', NOW)


@pytest.mark.parametrize(("trials", "status"), [({}, "False"), ({"running": 1}, "True")])
def test_a_service_that_is_away_is_waited_for_while_trials_are_made_of_what_it_gave(
    trials: dict[str, int], status: str
) -> None:
    seen = {"counts": counts(**trials), "waiting": assignments("a"), "suggestion": suggestion(*AWAY, requests=2)}
    planned = plan(CREATED, seen=dict(seen))
    again = plan(*planned.status.conditions, seen=dict(seen))
    enough = plan(*planned.status.conditions, seen={**seen, "suggestion": suggestion(*AWAY, requests=0)})

    assert [assignment.name for assignment in planned.create_trials] == ["a"]
    assert story(planned.status.conditions)[1:] == [("Running", status, "SuggestionServiceUnavailable")]
    assert again.status.conditions == planned.status.conditions
    assert "SuggestionServiceUnavailable" not in {c.reason for c in enough.status.conditions}


@pytest.mark.parametrize(("trials", "kept"), [({}, ["Created"]), ({"running": 1}, ["Created", "Running"])])
def test_once_the_template_is_back_nothing_is_said_of_it_any_more(trials: dict[str, int], kept: list[str]) -> None:
    waited = plan(CREATED, seen={"obstacle": MISSING}).status.conditions
    planned = plan(*waited, seen={"counts": counts(**trials)})

    assert [condition.type for condition in planned.status.conditions] == kept
    assert "TrialTemplateMissing" not in {condition.reason for condition in planned.status.conditions}


def test_an_experiment_that_waits_for_its_template_may_still_reach_its_end() -> None:
    waited = plan(CREATED, seen={"obstacle": MISSING}).status.conditions
    planned = plan(*waited, seen={"obstacle": MISSING, "counts": counts(failed=1)}, maxFailedTrialCount=1)

    assert [condition.type for condition in planned.status.conditions] == ["Created", "Failed"]


# --- the end ----------------------------------------------------------------------------------------------------------

SUCCEEDED_GOAL = ("Succeeded", "ExperimentGoalReached", "Experiment has succeeded because Objective goal has reached")
SUCCEEDED_MAX = (
    "Succeeded",
    "ExperimentMaxTrialsReached",
    "Experiment has succeeded because max trial count has reached",
)
SUCCEEDED_END = (
    "Succeeded",
    "ExperimentSuggestionEndReached",
    "Experiment has succeeded because suggestion service has reached the end",
)
FAILED_MAX = ("Failed", "ExperimentFailed", "Experiment has failed because max failed count has reached")


def failed_suggestion() -> Any:
    return suggestion(holding("Failed", "SuggestionFailed", message="Validation failed: gamma"))


@pytest.mark.parametrize(
    ("seen", "spec", "end"),
    [
        pytest.param({"counts": counts(succeeded=1, best="0.1")}, {"objective": GOAL}, SUCCEEDED_GOAL, id="goal"),
        pytest.param(
            {"counts": counts(succeeded=3, failed=3, best="0.05")},
            {"objective": GOAL, "maxFailedTrialCount": 3, "maxTrialCount": 6},
            SUCCEEDED_GOAL,
            id="the goal before everything else",
        ),
        pytest.param(
            {"counts": counts(failed=1, metrics_unavailable=1)},
            {"maxFailedTrialCount": 2},
            FAILED_MAX,
            id="missing metrics count as failures",
        ),
        pytest.param(
            {"counts": counts(succeeded=1, failed=2)},
            {"maxFailedTrialCount": 2, "maxTrialCount": 3},
            FAILED_MAX,
            id="failures before the budget",
        ),
        pytest.param({"counts": counts(failed=1)}, {"maxFailedTrialCount": 0}, FAILED_MAX, id="no failure is allowed"),
        pytest.param(
            {"counts": counts(succeeded=3, best="1")}, {"maxFailedTrialCount": 0}, SUCCEEDED_MAX, id="no failure came"
        ),
        pytest.param(
            {"counts": counts(succeeded=1, killed=1, early_stopped=1, best="1")},
            {},
            SUCCEEDED_MAX,
            id="every end spends budget",
        ),
        pytest.param(
            {"suggestion": suggestion(holding(EXHAUSTED)), "counts": counts(succeeded=2, best="1")},
            {"maxTrialCount": 5},
            SUCCEEDED_END,
            id="the space is exhausted",
        ),
        pytest.param(
            {"suggestion": failed_suggestion(), "counts": counts(succeeded=1)},
            {},
            ("Failed", "ExperimentFailed", "Suggestion has failed: Validation failed: gamma"),
            id="the suggestion failed",
        ),
        pytest.param(
            {"obstacle": Obstacle("Trial template cannot be rendered: spec.trialTemplate: broken")},
            {},
            ("Failed", "ExperimentFailed", "Trial template cannot be rendered: spec.trialTemplate: broken"),
            id="the template is broken",
        ),
    ],
)
def test_the_first_rule_that_holds_ends_it(
    seen: dict[str, Any], spec: dict[str, Any], end: tuple[str, str, str]
) -> None:
    planned = plan(CREATED, RUNNING, seen=dict(seen), **spec)

    last = planned.status.conditions[-1]
    assert (last.type, last.reason, last.message) == end
    assert story(planned.status.conditions)[:2] == [
        ("Created", "True", "ExperimentCreated"),
        ("Running", "False", "ExperimentRunning"),
    ]
    assert planned.status.completion_time == LATER
    assert not planned.create_trials


@pytest.mark.parametrize(
    ("seen", "spec"),
    [
        pytest.param({"counts": counts(succeeded=2, running=1)}, {}, id="the last trial runs"),
        pytest.param({"counts": counts(succeeded=1, best="0.2")}, {"objective": GOAL}, id="short of the goal"),
        pytest.param(
            {"suggestion": suggestion(holding(EXHAUSTED)), "counts": counts(running=1)},
            {"maxTrialCount": 9},
            id="exhausted, and one runs",
        ),
        pytest.param(
            {"suggestion": suggestion(holding(EXHAUSTED)), "waiting": assignments("a")},
            {},
            id="exhausted, and one waits",
        ),
        pytest.param({"suggestion": failed_suggestion(), "counts": counts(running=1)}, {}, id="one of a failed runs"),
        pytest.param({"counts": counts(succeeded=900)}, {"maxTrialCount": None}, id="without budget"),
    ],
)
def test_it_goes_on_while_something_may_still_come(seen: dict[str, Any], spec: dict[str, Any]) -> None:
    assert plan(seen=dict(seen), **spec).status.completion_time is None


def test_an_exhausted_service_is_asked_for_nothing_more() -> None:
    asking = suggestion(holding(EXHAUSTED), requests=4, suggestion_count=4)
    planned = plan(seen={"suggestion": asking, "counts": counts(succeeded=3, running=1)}, maxTrialCount=9)

    assert planned.requests is None


def test_the_end_stops_what_runs_and_closes_the_service() -> None:
    seen = {"counts": counts(succeeded=1, running=2, best="0.01")}
    planned = plan(CREATED, RUNNING, seen=seen, objective=GOAL)

    assert planned.stop_trials == ("run-0", "run-1")
    assert planned.close_suggestion


def test_what_runs_may_finish_when_the_experiment_says_so() -> None:
    seen = {"counts": counts(succeeded=1, running=2, best="0.01"), "annotations": {FINISH_ANNOTATION: "finish"}}

    assert plan(CREATED, RUNNING, seen=seen, objective=GOAL).stop_trials == ()


@pytest.mark.parametrize(("policy", "closes"), [("Never", True), ("FromVolume", True), ("LongRunning", False)])
def test_the_resume_policy_decides_about_the_service(policy: str, *, closes: bool) -> None:
    assert plan(seen={"counts": counts(succeeded=3)}, resumePolicy=policy).close_suggestion is closes


@pytest.mark.parametrize("closed", ["Succeeded", "Failed"])
def test_a_closed_suggestion_is_not_closed_again(closed: str) -> None:
    assert not plan(seen={"counts": counts(succeeded=3), "suggestion": suggestion(holding(closed))}).close_suggestion


def test_ending_without_a_suggestion_is_no_error() -> None:
    planned = plan(seen={"suggestion": None, "counts": counts(succeeded=3)})

    assert (planned.close_suggestion, planned.create_suggestion) == (False, False)


def test_a_finished_experiment_keeps_its_end_and_its_time() -> None:
    made = experiment(CREATED, MAX_REACHED)
    ended = structs.replace(made, status=structs.replace(made.status, completion_time=NOW))
    planned = plan_experiment(Observed(ended, suggestion(), counts(succeeded=3), now=LATER))

    assert story(planned.status.conditions)[-1] == ("Succeeded", "True", "ExperimentMaxTrialsReached")
    assert planned.status.completion_time == NOW
    assert planned.requests is None


def test_the_summary_of_a_finished_experiment_follows_its_last_trials() -> None:
    planned = plan(CREATED, MAX_REACHED, seen={"counts": counts(succeeded=3, killed=2)})

    assert (planned.status.trials, planned.status.trials_killed) == (5, 2)


# --- the summary ------------------------------------------------------------------------------------------------------


def test_the_status_counts_every_state() -> None:
    states = {"pending": 1, "running": 2, "succeeded": 3, "failed": 4, "killed": 5, "early_stopped": 6}
    status = plan(seen={"counts": counts(**states, metrics_unavailable=7)}, maxTrialCount=99).status

    assert {name: getattr(status, f"trials_{name}") for name in states} == states
    assert (status.trial_metrics_unavailable, status.trials) == (7, 28)


def test_the_best_trial_is_shown_and_forgotten_with_it() -> None:
    shown = plan(seen={"counts": counts(succeeded=1, best="0.3")}).status.current_optimal_trial
    gone = plan(seen={"counts": counts()}).status.current_optimal_trial

    assert (shown.best_trial_name, shown.observation.metrics[0].latest) == ("best", "0.3")
    assert gone.best_trial_name == ""


# --- restart ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["LongRunning", "FromVolume"])
def test_a_raised_budget_starts_it_again(policy: str) -> None:
    closed = suggestion(holding("Succeeded", "Experiment is succeeded"), requests=3, suggestion_count=3)
    seen = {"counts": counts(succeeded=3), "suggestion": closed}
    planned = plan(CREATED, MAX_REACHED, seen=seen, maxTrialCount=5, resumePolicy=policy)

    assert story(planned.status.conditions) == [
        ("Created", "True", "ExperimentCreated"),
        ("Restarting", "True", "ExperimentRestarting"),
        ("Running", "True", "ExperimentRunning"),
    ]
    assert planned.status.conditions[1].message == "Experiment is restarted"
    assert planned.status.completion_time is None
    assert planned.restart_suggestion
    assert planned.requests == 5


def failed(name: str, message: str) -> Trial:
    return trial(name, holding("Failed", "TrialFailed", message=f"Trial has failed: {message}"))


@pytest.mark.parametrize(
    ("messages", "annotation", "ends"),
    [
        pytest.param(["KeyError: 'x' (exit code 1)"] * 2, None, False, id="two"),
        pytest.param(["KeyError: 'x' (exit code 1)"] * 3, None, True, id="three"),
        pytest.param(
            [f"lr={n / 7} is bad, 'a{n}' too (exit code 1)" for n in range(3)], None, True, id="other numbers"
        ),
        pytest.param([f"no <f at 0x7f{n}e{n}a>" for n in "1ab"], None, True, id="other addresses"),
        pytest.param(["KeyError", "KeyError", "MemoryError"], None, False, id="another cause"),
        pytest.param(["KeyError"] * 9, "0", False, id="switched off"),
        pytest.param(["KeyError"] * 4, "5", False, id="a larger number"),
    ],
)
def test_first_trials_that_fail_alike_end_it(messages: list[str], annotation: str | None, *, ends: bool) -> None:
    lost = tuple(failed(f"t-{n}", message) for n, message in enumerate(messages))
    annotations = {} if annotation is None else {FIRST_FAILURES_ANNOTATION: annotation}

    def planned(**further: int) -> ExperimentPlan:
        seen = {"counts": replace(counts(failed=len(lost), **further), lost=lost), "annotations": annotations}
        return plan(seen=seen, maxTrialCount=20)

    reason = "ExperimentFirstTrialsFailed"
    last = planned().status.conditions[-1]
    cause = f"its first {len(lost)} trials failed alike: {messages[-1]}; "
    assert (last.type == "Failed" and last.reason == reason and cause in last.message) == ends

    meanwhile = planned(running=2)  # these may end well, and the search continues
    running = meanwhile.status.conditions[-1]

    assert (running.type, running.status, running.reason == reason) == ("Running", "True", ends)
    assert (meanwhile.stop_trials, meanwhile.create_trials) == ((), ())
    assert meanwhile.requests is None or not ends


@pytest.mark.parametrize(
    ("states", "spec", "message"),
    [
        ({"failed": 2, "metrics_unavailable": 1}, {}, "none of its 3 trials brought a value of loss"),
        ({"succeeded": 3}, {}, "none of its 3 trials brought a value of loss"),
        ({"failed": 1, "killed": 2}, {}, "its trial brought no value of loss"),
        ({"killed": 3}, {}, ""),
        ({"succeeded": 3}, {"metricsCollectorSpec": {"collector": {"kind": "None"}}}, ""),
    ],
)
def test_an_experiment_without_one_value_has_failed(states: dict[str, int], spec: dict[str, Any], message: str) -> None:
    last = plan(seen={"counts": counts(**states)}, maxTrialCount=3, **spec).status.conditions[-1]
    expected = ("Failed", "ExperimentNoUsableTrial", f"Experiment has failed because {message}")
    assert (last.type, last.reason, last.message) == (expected if message else SUCCEEDED_MAX)


def test_a_restarted_experiment_ends_with_restarting_false() -> None:
    conditions = (CREATED, holding("Restarting", "ExperimentRestarting"), RUNNING)
    planned = plan(*conditions, seen={"counts": counts(succeeded=5, best="1")}, maxTrialCount=5)

    assert story(planned.status.conditions) == [
        ("Created", "True", "ExperimentCreated"),
        ("Restarting", "False", "ExperimentRestarting"),
        ("Running", "False", "ExperimentRunning"),
        ("Succeeded", "True", "ExperimentMaxTrialsReached"),
    ]


@pytest.mark.parametrize(
    ("end", "spec"),
    [
        pytest.param(MAX_REACHED, {"resumePolicy": "Never", "maxTrialCount": 9}, id="policy never"),
        pytest.param(MAX_REACHED, {"resumePolicy": "LongRunning", "maxTrialCount": 3}, id="the budget is the same"),
        pytest.param(
            holding("Succeeded", "ExperimentGoalReached"),
            {"resumePolicy": "LongRunning", "maxTrialCount": None},
            id="the goal was reached without budget",
        ),
        pytest.param(
            holding("Failed", "ExperimentFailed"), {"resumePolicy": "LongRunning", "maxTrialCount": None}, id="failed"
        ),
    ],
)
def test_what_cannot_be_resumed_stays_as_it_ended(end: Any, spec: dict[str, Any]) -> None:
    planned = plan(CREATED, end, seen={"counts": counts(succeeded=3)}, **spec)

    assert story(planned.status.conditions)[-1] == (end.type, "True", end.reason)


# --- several objectives -----------------------------------------------------------------------------------------------


def measured(name: str, accuracy: float, seconds: float) -> Trial:
    made = trial(name, "Succeeded", objective_spec=two_objectives())
    observation = readings(accuracy=str(accuracy), seconds=str(seconds))
    return structs.replace(made, status=structs.replace(made.status, observation=observation))


def planned(trials: list[Trial], **goals: float) -> ExperimentPlan:
    """Plan for these trials, with goals by metric."""
    ledger = KnownLedger()
    for made in trials:
        ledger.apply(None, made)
    terms = [{"name": "accuracy", "type": "maximize"}, {"name": "seconds", "type": "minimize"}]
    objectives = [{**term, "goal": goals[term["name"]]} if term["name"] in goals else term for term in terms]
    return plan(
        CREATED, RUNNING, seen={"counts": ledger.counts(Key("default", "demo"))}, objective={"objectives": objectives}
    )


def test_the_status_names_the_trials_that_none_beats_and_what_they_cover() -> None:
    trials = [measured("a", 0.9, 10), measured("b", 0.5, 5), measured("c", 0.4, 6), measured("d", 0.1, 1)]

    status = planned(trials).status

    assert status.current_optimal_trial.best_trial_name == "a"
    assert status.pareto_set is not None
    assert [t.best_trial_name for t in status.pareto_set.trials] == ["a", "b", "d"]
    assert status.pareto_set.trial_count == 3
    assert [(p.name, p.value) for p in status.pareto_set.reference_point] == [("accuracy", "0.02"), ("seconds", "10.9")]
    assert status.pareto_set.hypervolume == pytest.approx(0.9 * 0.88 + 5 * 0.48 + 4 * 0.08)


def test_goals_end_an_experiment_when_one_trial_reaches_all() -> None:
    """Also a trial that is not the best one of the first objective."""
    trials = [measured("a", 0.9, 10), measured("b", 0.8, 5)]

    def is_reached(**goals: float) -> bool:
        return story(planned(trials, **goals).status.conditions)[-1][2] == "ExperimentGoalReached"

    assert is_reached(accuracy=0.8, seconds=5)
    assert not is_reached(accuracy=0.9, seconds=5)
    assert is_reached(seconds=5)
    assert not is_reached()


# --- a budget of time and money ---------------------------------------------------------------------------------------


def uses(hours: float, *, running: int = 0, median: float | None = None) -> Uses:
    """Return what trials used: hours that are over, and trials that have just started."""
    return Uses(3600 * hours, {}, ((0.0, {"trial": 1.0}),) * running, (), median and 3600 * median, {"trial": 1.0})


@pytest.mark.parametrize(
    ("used", "trials", "created", "again"),
    [
        pytest.param(uses(1), {"succeeded": 1}, 3, None, id="much is left"),
        pytest.param(uses(1, running=1), {"running": 1}, 2, 60, id="its use is written every minute"),
        pytest.param(uses(3.99, running=1), {"running": 1}, 2, 36, id="it is spent in 36 seconds"),
        pytest.param(uses(3, running=1, median=1.5), {"running": 1}, 0, 60, id="too little for one more"),
    ],
)
def test_trials_start_as_long_as_they_can_end_within_the_budget(
    used: Uses, trials: dict[str, int], created: int, again: float | None
) -> None:
    seen: dict[str, Any] = {"counts": counts(**trials), "uses": used, "waiting": assignments("a", "b", "c")}
    seen["annotations"] = {LIMITS.name: "4h"}
    planned = plan(seen=seen, maxTrialCount=20, parallelTrialCount=3)

    assert len(planned.create_trials) == created
    assert planned.again_after_seconds == (again and pytest.approx(again))
    assert [(u.unit, u.limit) for u in planned.status.budget_usage] == [("hours", "4")]


def test_a_budget_that_is_spent_cuts_what_runs_before_it_ends_the_experiment() -> None:
    """The readings of these trials count, so the end waits for them."""
    made = counts(best="0.5", succeeded=3, running=1)
    seen: dict[str, Any] = {
        "counts": made,
        "uses": uses(4, running=1),
        "annotations": {LIMITS.name: "4h"},
        "waiting": assignments("a"),
    }
    planned = plan(CREATED, RUNNING, seen=seen, maxTrialCount=20)

    assert (planned.cut_trials, planned.create_trials, planned.stop_trials) == (made.active, (), ())
    assert story(planned.status.conditions)[-1] == ("Running", "True", "ExperimentBudgetSpent")
    assert planned.again_after_seconds is None


@pytest.mark.parametrize(
    ("budget", "keeps", "resumed", "ended"),
    [
        pytest.param("8h", True, ("cut-1", "cut-2"), False, id="as many as run at once"),
        pytest.param("8h", False, ("cut-3",), False, id="one that has not run needs no checkpoint"),
        pytest.param("4h", True, (), True, id="spent"),
    ],
)
def test_trials_that_a_budget_ended_go_on_with_a_larger_one(
    budget: str, keeps: bool, resumed: tuple[str, ...], ended: bool
) -> None:
    cut = {"cut-1": 5.0, "cut-2": 6.0, "cut-3": 0.0}
    made = counts(best="0.5", early_stopped=2, killed=1)
    seen: dict[str, Any] = {"uses": replace(uses(4), cut=cut), "keeps_checkpoints": keeps}
    seen |= {"counts": made, "annotations": {LIMITS.name: budget}}
    planned = plan(CREATED, RUNNING, seen=seen, maxTrialCount=3, parallelTrialCount=2)

    assert planned.resume_trials == resumed
    assert (planned.status.conditions[-1].reason == "ExperimentBudgetSpent") is ended


@pytest.mark.parametrize("used", [uses(4), uses(3, median=1.5)], ids=["spent", "too little for one more"])
def test_a_budget_that_is_spent_ends_the_experiment(used: Uses, golden: Golden) -> None:
    made = counts(best="0.5", succeeded=3)
    seen = {"counts": made, "uses": used, "annotations": {LIMITS.name: "4h"}}
    planned = plan(CREATED, RUNNING, seen=seen, maxTrialCount=20)
    end = planned.status.conditions[-1]

    assert (end.type, end.status, end.reason) == ("Succeeded", "True", "ExperimentBudgetSpent")
    golden(end.message)
    assert planned.stop_trials == made.active
    assert planned.again_after_seconds is None


def test_a_larger_budget_lets_it_go_on_and_the_same_does_not() -> None:
    spent = holding("Succeeded", "ExperimentBudgetSpent", message="because its budget of 4h is spent")

    def planned(budget: str, policy: str) -> list[tuple[str, str, str]]:
        seen = {"counts": counts(best="0.5", succeeded=3), "uses": uses(4), "annotations": {LIMITS.name: budget}}
        found = plan(CREATED, spent, seen=seen, maxTrialCount=20, resumePolicy=policy)
        return story(found.status.conditions)[-1:]

    assert planned("8h", "LongRunning") == [("Running", "True", "ExperimentRunning")]
    assert planned("4h", "LongRunning") == planned("8h", "Never") == story([spent])
