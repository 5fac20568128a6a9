"""The next step of a trial that a caller evaluates, decided from what is seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from katib.engine.controllers.trial.callers import CallersTrial, comes_to_its_end, plan_callers_trial, silence_of
from katib.engine.controllers.trial.plan import TrialPlan
from katib.model.leases import Lease, Outcome, lease_of, outcome_of
from katib.model.names import (
    BY_CALLER,
    EVALUATED_BY_LABEL,
    LEASE_ANNOTATION,
    LOST_LEASES_ANNOTATION,
    OUTCOME_ANNOTATION,
)
from katib.model.trials import is_callers, trial_state
from katib.model.types import (
    CollectorSpec,
    Metric,
    MetricsCollectorSpec,
    ObjectiveSpec,
    ObjectMeta,
    Observation,
    Trial,
    TrialSpec,
    TrialState,
)
from tests.support.golden import Golden

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
HELD = Lease("alice", "one", 60.0, NOW + timedelta(seconds=30))
ENDED = Lease("alice", "one", 60.0, NOW - timedelta(seconds=1))
OBSERVED = Observation(metrics=(Metric(name="loss", min="0.5", max="0.5", latest="0.5"),))


def a_trial(lease: Lease | None = None, outcome: Outcome | None = None, **annotations: str) -> Trial:
    given = {} if lease is None else {LEASE_ANNOTATION: str(lease)}
    told = {} if outcome is None else {OUTCOME_ANNOTATION: str(outcome)}
    return Trial(
        metadata=ObjectMeta(
            name="demo-1", labels={EVALUATED_BY_LABEL: BY_CALLER}, annotations={**given, **told, **annotations}
        ),
        spec=TrialSpec(
            objective=ObjectiveSpec(type="minimize", objective_metric_name="loss"),
            metrics_collector=MetricsCollectorSpec(collector=CollectorSpec(kind="Push")),
        ),
    )


def plan(trial: Trial, **seen: Any) -> TrialPlan:
    return plan_callers_trial(CallersTrial(trial, **{"now": NOW, **seen}))


def after(trial: Trial, **seen: Any) -> Trial:
    return structs.replace(trial, status=plan(trial, **seen).status)


def state(trial: Trial) -> TrialState:
    return trial_state(trial)


def test_a_trial_without_a_lease_is_created_and_waits() -> None:
    waiting = after(a_trial())

    assert [condition.type for condition in waiting.status.conditions] == ["Created"]
    assert plan(waiting).status is waiting.status


def test_a_trial_runs_as_long_as_its_lease_and_is_looked_at_when_that_ends(golden: Golden) -> None:
    running = plan(a_trial(HELD))

    golden(running.status.conditions[-1].message)
    assert running.again_after_seconds == 30
    assert not running.create_job


@pytest.mark.parametrize(
    ("lease", "outcome", "server_minutes", "seconds"),
    [
        pytest.param(HELD, None, 60, None, id="its lease is renewed"),
        pytest.param(None, None, 60, 0, id="nobody has asked for it"),
        pytest.param(HELD, Outcome("tell", NOW - timedelta(seconds=5)), 60, 5, id="its caller has told"),
        pytest.param(ENDED, None, 60, 61, id="its caller is lost: since its last sign of life"),
        pytest.param(ENDED, None, 0.5, None, id="a server has just started"),
        pytest.param(ENDED, None, 2, 61, id="and nobody came back"),
    ],
)
def test_only_the_time_in_which_a_caller_gives_signs_of_life_counts(
    lease: Lease | None, outcome: Outcome | None, server_minutes: float, seconds: float | None
) -> None:
    assert silence_of(a_trial(lease, outcome), NOW, NOW - timedelta(minutes=server_minutes)) == seconds


def test_a_trial_that_its_caller_ended_is_written_again_only_if_its_times_are_wrong() -> None:
    running = after(a_trial(HELD), now=NOW - timedelta(hours=9))
    told = structs.replace(running, metadata=a_trial(HELD, Outcome("tell", NOW)).metadata)
    over = after(told, observation=OBSERVED)

    assert plan(over, run_seconds=9 * 3600 + 0.4).status is over.status
    assert plan(over, run_seconds=3600.4).status.run_seconds == 3600.4  # a night was between
    assert after(told, observation=OBSERVED, run_seconds=12.25).status.run_seconds == 12.25


def test_a_lease_that_ended_has_it_wait_for_another_caller_and_only_once() -> None:
    lost = structs.replace(after(a_trial(HELD)), metadata=a_trial(ENDED).metadata)
    waiting = after(lost)

    assert state(waiting) is TrialState.PENDING
    assert plan(lost).event is not None
    assert plan(waiting).event is None
    assert plan(waiting).status is waiting.status


def test_a_lease_that_ended_fails_it_where_that_is_wanted() -> None:
    failed = after(a_trial(ENDED, **{LOST_LEASES_ANNOTATION: "fail"}))

    assert state(failed) is TrialState.FAILED
    assert failed.status.completion_time == NOW


@pytest.mark.parametrize(
    ("outcome", "observation", "wanted"),
    [
        pytest.param(Outcome("t", NOW, {"loss": "0.5"}), OBSERVED, TrialState.SUCCEEDED, id="told"),
        pytest.param(Outcome("t", NOW, failure="no"), None, TrialState.FAILED, id="failed"),
        pytest.param(Outcome("t", NOW, stopped=True), OBSERVED, TrialState.EARLY_STOPPED, id="stopped"),
        pytest.param(Outcome("t", NOW), None, TrialState.METRICS_UNAVAILABLE, id="without a value"),
    ],
)
@pytest.mark.parametrize("lease", [HELD, ENDED], ids=["held", "ended"])
def test_what_its_caller_says_ends_it_whatever_the_lease(
    outcome: Outcome, observation: Observation | None, wanted: TrialState, lease: Lease
) -> None:
    trial = a_trial(lease, outcome)
    ended = after(trial, observation=observation)

    assert comes_to_its_end(trial, NOW)
    assert state(ended) is wanted
    assert ended.status.observation == observation
    assert plan(ended).status is ended.status


def test_a_verdict_is_written_down_and_its_caller_is_waited_for(golden: Golden) -> None:
    stopping = after(after(a_trial(HELD)), verdict="worse than the median")

    assert state(stopping) is TrialState.RUNNING
    golden(stopping.status.conditions[-1].message)
    assert not comes_to_its_end(stopping, NOW)
    told = structs.replace(stopping, metadata=a_trial(HELD, Outcome("t", NOW, {"loss": "0.5"})).metadata)
    ended = after(told, observation=OBSERVED)
    assert state(ended) is TrialState.EARLY_STOPPED
    golden(ended.status.conditions[-1].message)


def test_a_stopped_trial_whose_caller_is_lost_ends_with_what_it_reported() -> None:
    stopping = after(after(a_trial(HELD)), verdict="worse than the median")
    lost = structs.replace(stopping, metadata=a_trial(ENDED).metadata)

    assert comes_to_its_end(lost, NOW)
    assert state(after(lost, observation=OBSERVED)) is TrialState.EARLY_STOPPED


def test_a_lease_lasts_for_its_whole_time_after_the_server_came_back() -> None:
    back = NOW - timedelta(seconds=ENDED.seconds / 2)
    waiting = plan(a_trial(ENDED), since=back)

    assert waiting.again_after_seconds == ENDED.seconds / 2
    assert waiting.status.conditions[-1].status == "True"
    assert state(after(after(a_trial(HELD)), since=NOW)) is TrialState.RUNNING
    assert state(structs.replace(a_trial(ENDED), status=plan(a_trial(ENDED)).status)) is TrialState.PENDING


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "null", '{"until": 5, "seconds": "x"}', '{"seconds": 1e300}'])
def test_annotations_that_a_user_broke_are_a_lease_that_ended(text: str) -> None:
    trial = a_trial(**{LEASE_ANNOTATION: text, OUTCOME_ANNOTATION: text})

    assert is_callers(trial)
    lease, outcome = lease_of(trial), outcome_of(trial)
    assert lease is not None
    assert lease.until < NOW
    assert outcome is not None
    assert outcome.values == {}


def test_leases_and_outcomes_are_read_as_they_were_written() -> None:
    outcome = Outcome("t", NOW, {"loss": "nan"}, failure="no", stopped=True)
    trial = a_trial(HELD, outcome)

    assert lease_of(trial) == HELD
    assert outcome_of(trial) == outcome
