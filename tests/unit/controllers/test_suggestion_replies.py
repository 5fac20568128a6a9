"""What a reply means for a Suggestion, and which conditions tell of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from katib.engine.controllers.ports import SuggestionsReply
from katib.engine.controllers.suggestion import states
from katib.engine.controllers.suggestion.replies import (
    MalformedReplyError,
    Question,
    accepted,
    asked_about,
    merged_settings,
    open_question,
    waiting_assignments,
    waiting_trials,
)
from katib.model.conditions import with_start
from katib.model.names import trial_name
from katib.model.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    EarlyStoppingRule,
    ParameterAssignment,
    SuggestionStatus,
    TrialAssignment,
)
from tests.support.experiments import a_choice, a_double
from tests.support.golden import Golden
from tests.support.planning import LATER, NOW, experiment, holding, story, suggestion


def point(value: str = "0.05", *, name: str = "", parameter: str = "lr", **labels: str) -> TrialAssignment:
    assignment = ParameterAssignment(name=parameter, value=value)
    return TrialAssignment(name=name, parameter_assignments=(assignment,), labels=labels)


def reply(*points: TrialAssignment, exhausted: bool = False, **settings: str) -> SuggestionsReply:
    pairs = tuple(AlgorithmSetting(name=name, value=value) for name, value in settings.items())
    return SuggestionsReply(points, pairs, exhausted)


def accept(
    given: SuggestionsReply,
    *,
    base: int = 0,
    wanted: int | None = None,
    taken: set[str] | None = None,
    rules: tuple[EarlyStoppingRule, ...] = (),
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> SuggestionStatus:
    asked = Question(base, len(given.assignments) if wanted is None else wanted)
    return accepted(
        experiment(**spec),
        suggestion(**(status or {})),
        asked,
        replace(given, rules=rules),
        taken=taken or set(),
        now=NOW,
    )


def setting(name: str, value: str) -> AlgorithmSetting:
    return AlgorithmSetting(name=name, value=value)


# --- asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "count", "asked"),
    [
        pytest.param(3, 0, Question(0, 3), id="all"),
        pytest.param(5, 3, Question(3, 2), id="the rest"),
        pytest.param(3, 3, None, id="none"),
        pytest.param(2, 3, None, id="fewer than given"),
    ],
)
def test_what_is_outstanding_is_asked_for(requests: int, count: int, asked: Question | None) -> None:
    assert open_question(suggestion(requests=requests, suggestion_count=count)) == asked


def test_an_exhausted_service_is_not_asked() -> None:
    assert open_question(suggestion(holding(states.EXHAUSTED), requests=9)) is None


def test_a_service_is_asked_with_the_settings_it_gave() -> None:
    algorithm = {
        "algorithmName": "pbt",
        "algorithmSettings": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
    }
    given = suggestion(algorithm_settings=(setting("b", "9"), setting("c", "3")))
    asked = asked_about(experiment(algorithm=algorithm), given).spec.algorithm

    assert asked is not None
    assert [(s.name, s.value) for s in asked.algorithm_settings] == [("a", "1"), ("b", "9"), ("c", "3")]


def test_a_service_that_gave_no_settings_is_asked_about_the_experiment_itself() -> None:
    asked = experiment()

    assert asked_about(asked, suggestion()) is asked


def test_an_experiment_without_an_algorithm_is_asked_about_with_an_empty_one() -> None:
    bare = experiment()
    bare = structs.replace(bare, spec=structs.replace(bare.spec, algorithm=None))

    assert asked_about(bare, suggestion()).spec.algorithm == AlgorithmSpec()


def test_waiting_assignments_are_shown_to_the_service_as_trials_under_way() -> None:
    waiting = TrialAssignment(name="w", parameter_assignments=point().parameter_assignments, labels={"generation": "2"})
    (shown,) = waiting_trials(experiment(), (waiting,), NOW)

    assert (shown.name, shown.namespace, shown.spec.labels) == ("w", "default", {"generation": "2"})
    assert story(shown.status.conditions) == [("Created", "True", "TrialCreated")]
    assert shown.spec.objective is not None


# --- taking -----------------------------------------------------------------------------------------------------------


def test_assignments_get_names_from_their_numbers() -> None:
    status = accept(reply(point(), point("0.06")), base=4)

    assert [a.name for a in status.suggestions] == [trial_name("default", "demo", i) for i in (4, 5)]
    assert status.suggestion_count == 6


def test_taking_the_same_reply_twice_gives_the_same_names() -> None:
    assert accept(reply(point(), point("0.06"))) == accept(reply(point(), point("0.06")))


def test_a_name_that_a_trial_has_gives_way_to_the_next_in_line() -> None:
    usual = trial_name("default", "demo", 0)
    (assignment,) = accept(reply(point()), taken={usual}).suggestions

    assert assignment.name == trial_name("default", "demo", 0, {usual})
    assert assignment.name != usual


def test_names_labels_and_rules_of_the_services_are_kept() -> None:
    rule = EarlyStoppingRule(name="loss", value="0.5", comparison="greater", start_step=4)
    (assignment,) = accept(reply(point(name="demo-7f", generation="1")), rules=(rule,)).suggestions

    assert (assignment.name, assignment.labels) == ("demo-7f", {"generation": "1"})
    assert assignment.early_stopping_rules == (rule,)


def test_assignments_that_wait_stay_in_front_and_those_with_a_trial_go() -> None:
    old = tuple(TrialAssignment(name=name) for name in ("has-trial", "waits"))
    status = accept(reply(point(name="new")), base=2, taken={"has-trial"}, status={"suggestions": old})

    assert [a.name for a in status.suggestions] == ["waits", "new"]
    assert status.suggestion_count == 3


def test_settings_of_the_reply_replace_equally_named_ones_in_place() -> None:
    merged = merged_settings((setting("a", "1"), setting("b", "2")), (setting("c", "3"), setting("a", "4")))

    assert [(s.name, s.value) for s in merged] == [("a", "4"), ("b", "2"), ("c", "3")]


def test_settings_survive_a_reply_without_any() -> None:
    status = accept(reply(point()), status={"algorithm_settings": (setting("a", "1"),)})

    assert status.algorithm_settings == (setting("a", "1"),)


@pytest.mark.parametrize("count", [0, 1])
def test_an_exhausted_service_may_give_fewer(count: int) -> None:
    status = accept(reply(*[point()] * count, exhausted=True), base=3, wanted=2)

    assert status.suggestion_count == 3 + count
    assert states.is_exhausted(status.conditions)


def test_a_search_that_ends_before_its_first_point_is_an_odd_answer(golden: Golden) -> None:
    with golden.raises(MalformedReplyError):
        accept(reply(exhausted=True), wanted=2)


def test_a_full_reply_with_the_last_points_is_exhausted_too() -> None:
    assert states.is_exhausted(accept(reply(point(), exhausted=True)).conditions)


@pytest.mark.parametrize(
    ("given", "wanted", "words"),
    [
        pytest.param(reply(), 1, "0 assignments were given where 1 were asked for", id="none"),
        pytest.param(reply(point()), 2, "1 assignments were given where 2 were asked for", id="too few"),
        pytest.param(reply(point(), point()), 1, "2 assignments were given where 1 were asked for", id="too many"),
        pytest.param(reply(point(), point(), exhausted=True), 1, "2 assignments", id="too many at the end"),
        pytest.param(reply(point("0.5")), 1, "0.5", id="above the range"),
        pytest.param(reply(point("abc")), 1, "abc", id="no number"),
        pytest.param(reply(point("nan")), 1, "nan", id="not a number"),
        pytest.param(reply(point(parameter="momentum")), 1, "momentum", id="unknown parameter"),
        pytest.param(reply(TrialAssignment()), 1, "lr", id="missing parameter"),
        pytest.param(reply(point(name="Bad_Name")), 1, '"Bad_Name" is not a DNS label', id="bad name"),
        pytest.param(reply(point(name="a" * 64)), 1, "is not a DNS label", id="long name"),
        pytest.param(reply(point(name="a"), point(name="a")), 2, '"a" is taken', id="the same name twice"),
    ],
)
def test_a_malformed_reply_is_refused_whole(given: SuggestionsReply, wanted: int, words: str) -> None:
    with pytest.raises(MalformedReplyError, match=words):
        accept(given, wanted=wanted)


@pytest.mark.parametrize("where", ["trial", "waiting"])
def test_a_name_of_the_service_that_is_in_use_is_refused(where: str) -> None:
    status = {"suggestions": (TrialAssignment(name="mine"),)} if where == "waiting" else {}
    with pytest.raises(MalformedReplyError, match='"mine" is taken'):
        accept(reply(point(name="mine")), taken={"mine"} if where == "trial" else set(), status=status)


def test_values_of_lists_have_to_be_in_them() -> None:
    space = [a_double("lr"), a_choice("opt", ["sgd", "adam"])]
    good, bad = (
        TrialAssignment(
            parameter_assignments=(*point().parameter_assignments, ParameterAssignment(name="opt", value=value))
        )
        for value in ("adam", "ada")
    )

    assert accept(reply(good), parameters=space).suggestion_count == 1
    with pytest.raises(MalformedReplyError, match="ada"):
        accept(reply(bad), parameters=space)


def test_without_a_suggestion_nothing_waits() -> None:
    assert waiting_assignments(None, ()) == ()


# --- conditions -------------------------------------------------------------------------------------------------------


def running() -> tuple[Any, ...]:
    created = with_start(SuggestionStatus(), "Suggestion", NOW).conditions
    return states.running(states.deployment_ready(created, NOW), NOW)


def test_a_conversation_is_told_in_order() -> None:
    assert [(c.type, c.reason, c.message) for c in running()] == [
        ("Created", "SuggestionCreated", "Suggestion is created"),
        ("DeploymentReady", "DeploymentReady", "Deployment is ready"),
        ("Running", "SuggestionRunning", "Suggestion is running"),
    ]


def test_a_service_that_goes_away_is_told() -> None:
    last = states.deployment_not_ready(running(), "", LATER)[-1]

    assert (last.type, last.status, last.reason) == ("DeploymentReady", "False", "DeploymentNotReady")
    assert last.message == "Deployment is not ready"
    assert last.last_transition_time == LATER


def test_what_a_service_waits_for_is_told_as_it_is_now() -> None:
    messages = []
    conditions = running()
    for words in ("", "no room", "no room", "no image", ""):
        conditions = states.deployment_not_ready(conditions, words, NOW)
        messages.append(conditions[-1].message)

    assert [message.removeprefix("Deployment is not ready") for message in messages] == [
        "",
        ": no room",
        ": no room",
        ": no image",
        "",
    ]
    assert states.deployment_not_ready(conditions, "", LATER) is conditions


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("Never", "Suggestion is succeeded, can't be restarted"),
        ("FromVolume", "Suggestion is succeeded, suggestion volume is not deleted, can be restarted"),
    ],
)
def test_closing_ends_everything_and_says_whether_it_can_be_opened_again(policy: str, message: str) -> None:
    closed = states.closed(running(), policy, LATER)

    assert [(c.type, c.status, c.reason, c.message) for c in closed[1:]] == [
        ("Running", "False", "Suggestion is succeeded", "Suggestion is not running"),
        ("DeploymentReady", "False", "Suggestion is succeeded", "Deployment is not ready"),
        ("Succeeded", "True", "Experiment is succeeded", message),
    ]
    assert states.is_closed(closed)
    assert states.closed(closed, policy, LATER) is closed


def test_closing_before_anything_ran_says_only_that() -> None:
    assert story(states.closed((), "Never", NOW)) == [("Succeeded", "True", "Experiment is succeeded")]


def test_opening_again_takes_the_end_back() -> None:
    opened = states.restarting(states.closed(running(), "FromVolume", NOW), LATER)

    assert not states.is_closed(opened)
    last = opened[-1]
    assert (last.type, last.status, last.reason) == ("Running", "False", "Experiment is restarting")
    assert last.message == "Suggestion is not running"
    assert story(states.running(opened, LATER))[-1] == ("Running", "True", "SuggestionRunning")


def test_a_failed_suggestion_is_closed() -> None:
    failed = states.failed(running(), "Validation failed: gamma", LATER)

    assert states.is_closed(failed)
    assert (failed[-1].reason, failed[-1].message) == ("SuggestionFailed", "Validation failed: gamma")
