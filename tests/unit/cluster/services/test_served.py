"""How one suggestion is served, step by step. Time is a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from katib.engine.algorithm_services.plan import ServiceId
from katib.places.cluster.services.plan import ClusterPlan, ServiceEndpoint
from katib.places.cluster.services.served import (
    ClusterTiming,
    ServiceProgress,
    after_answer,
    after_block,
    after_creation,
    after_look,
    is_notable,
    next_step,
)
from katib.places.cluster.services.trouble import NO_TROUBLE, ReadinessProblem
from tests.support.golden import Golden

TIMING = ClusterTiming(patience=120.0, first_look=2.0, look=10.0, retry=2.0, settle=10.0, grace=5.0)
HERE, FAR = ServiceEndpoint(ServiceId("tpe"), "", 6789), ServiceEndpoint(ServiceId("far"), "", 6789, "far:1")
STARTING: dict[str, Any] = {"status": {"conditions": []}}
AVAILABLE: dict[str, Any] = {"status": {"conditions": [{"type": "Available", "status": "True"}]}}
NO_ROOM, CRASH = ReadinessProblem("no room", may_pass=True), ReadinessProblem("ended (exit code 2)")


def served(*endpoints: ServiceEndpoint, **fields: Any) -> ServiceProgress:
    objects: Any = None if endpoints and all(endpoint.address for endpoint in endpoints) else object()
    plan = ClusterPlan("demo-tpe", endpoints or (HERE,), objects, None, has_volume=False)
    return ServiceProgress(("team", "demo"), "uid", plan, **fields)


def test_a_missing_deployment_is_created_and_waited_for() -> None:
    first = next_step(served(), None, TIMING, 100.0)
    retry = next_step(first.served, None, TIMING, 101.0)
    created = after_creation(first.served, 100.0)
    settles = next_step(created, None, TIMING, 105.0)
    lost = next_step(created, None, TIMING, 110.0)

    assert (first.creates, first.due) == (True, 102.0)
    assert (retry.creates, retry.due) == (False, 102.0)
    assert (settles.creates, settles.due) == (False, 110.0)
    assert lost.creates


def test_what_cannot_be_created_fails_after_the_patience_unless_it_may_pass(golden: Golden) -> None:
    def at_last(trouble: ReadinessProblem) -> ServiceProgress:
        state = after_block(served(), trouble, TIMING, 0.0)
        for moment in range(0, 130, 2):
            state = next_step(state, None, TIMING, float(moment)).served
        return state

    failed = at_last(ReadinessProblem("forbidden"))
    golden(failed.failure)
    assert next_step(failed, AVAILABLE, TIMING, 200.0).served == failed
    assert at_last(NO_ROOM).failure == ""
    assert at_last(NO_ROOM).trouble == NO_ROOM


def test_pods_are_looked_at_after_a_moment_and_then_now_and_then() -> None:
    first = next_step(served(), STARTING, TIMING, 0.0)
    second = next_step(first.served, STARTING, TIMING, 2.0)
    third = next_step(second.served, STARTING, TIMING, 5.0)

    assert [(step.looks_at_pods, step.due) for step in (first, second, third)] == [
        (False, 2.0),
        (True, 12.0),
        (False, 12.0),
    ]


@pytest.mark.parametrize(
    ("trouble", "fails"),
    [
        pytest.param(NO_TROUBLE, False, id="merely slow"),
        pytest.param(NO_ROOM, False, id="the cluster's own"),
        pytest.param(CRASH, True, id="its own"),
    ],
)
def test_only_trouble_of_its_own_that_lasts_is_a_failure(trouble: ReadinessProblem, *, fails: bool) -> None:
    early = after_look(served(), trouble, TIMING, 0.0)

    assert (early.failure, bool(after_look(early, trouble, TIMING, 120.0).failure)) == ("", fails)


def test_trouble_that_goes_away_is_forgiven() -> None:
    state = after_look(served(), CRASH, TIMING, 0.0)
    state = after_look(state, NO_TROUBLE, TIMING, 100.0)

    assert after_look(state, CRASH, TIMING, 130.0).failure == ""
    crashing = after_look(after_look(state, NO_ROOM, TIMING, 130.0), CRASH, TIMING, 300.0)
    assert (crashing.failure, bool(after_look(crashing, CRASH, TIMING, 420.0).failure)) == ("", True)


def test_an_available_service_is_asked_once_and_ready_when_all_have_answered() -> None:
    asked = next_step(served(HERE, replace(HERE, port=6788)), AVAILABLE, TIMING, 0.0)
    waits = next_step(asked.served, AVAILABLE, TIMING, 0.0)
    one = after_answer(asked.served, 0, "", TIMING, 0.1)
    two = after_answer(one, 1, "", TIMING, 0.2)

    assert (asked.asks, waits.asks) == ((0, 1), ())
    assert not next_step(one, AVAILABLE, TIMING, 0.1).served.ready
    assert next_step(two, AVAILABLE, TIMING, 0.2).served.ready


def test_one_that_does_not_answer_is_asked_again_with_growing_pauses() -> None:
    state, dues = served(), []
    for _ in range(7):
        state = after_answer(next_step(state, AVAILABLE, TIMING, state.next_probe).served, 0, "refused", TIMING, 0.0)
        dues.append(next_step(state, AVAILABLE, TIMING, 0.0).due)

    assert dues == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert state.trouble == ReadinessProblem("refused")


def test_words_of_a_crash_say_more_than_a_refused_connection() -> None:
    assert after_answer(after_look(served(), CRASH, TIMING, 0.0), 0, "refused", TIMING, 1.0).trouble == CRASH
    assert after_answer(served(), 0, "refused", TIMING, 1.0).trouble == ReadinessProblem("refused")


def test_a_ready_service_has_no_trouble_and_one_whose_pod_goes_is_not_ready() -> None:
    troubled = replace(after_look(served(), CRASH, TIMING, 0.0), healthy=frozenset({0}))
    ready = next_step(troubled, AVAILABLE, TIMING, 1.0).served
    gone = next_step(ready, STARTING, TIMING, 2.0).served

    assert (ready.ready, ready.trouble, ready.crash, ready.trouble_since) == (True, NO_TROUBLE, NO_TROUBLE, None)
    assert (gone.ready, gone.healthy) == (False, frozenset())


def test_a_service_run_elsewhere_is_ready_at_once() -> None:
    assert next_step(served(FAR), None, TIMING, 0.0).served.ready


def test_the_experiment_is_notified_of_readiness_failure_and_new_trouble_of_the_cluster() -> None:
    state = served()

    assert is_notable(state, replace(state, ready=True))
    assert is_notable(state, replace(state, failure="gone"))
    assert is_notable(state, replace(state, trouble=NO_ROOM))
    assert not is_notable(replace(state, trouble=NO_ROOM), replace(state, trouble=NO_ROOM))
    assert not is_notable(state, replace(state, trouble=CRASH))


@pytest.mark.parametrize(
    ("fields", "moment", "failing"),
    [
        pytest.param({}, 9.0, False, id="no trouble"),
        pytest.param({"trouble": CRASH, "trouble_since": 0.0}, 4.9, False, id="just begun"),
        pytest.param({"trouble": CRASH, "trouble_since": 0.0}, 5.0, True, id="lasting"),
        pytest.param({"trouble": NO_ROOM}, 0.0, True, id="the cluster's"),
        pytest.param({"failure": "over"}, 0.0, True, id="failed"),
    ],
)
def test_a_service_is_failing_when_trouble_lasts(fields: dict[str, Any], moment: float, *, failing: bool) -> None:
    assert served(**fields).is_failing(TIMING, moment) is failing
