"""Laws of the plans of training jobs, whatever happens to their pods."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from katib.places.machine.jobs.replicated.frameworks import JAXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.training_kind import spec_of
from katib.places.machine.pods.records import PodPhase
from tests.support.training_jobs import Training, replica, started, training_job

KINDS: tuple[ReplicatedJob, ...] = (TFJob(), PyTorchJob(), XGBoostJob(), PaddleJob(), JAXJob())

ENOUGH = 400
"""Far more ends of pods than any job of these tests can have."""


@st.composite
def jobs(draw: st.DrawFn) -> Training:
    kind = draw(st.sampled_from(KINDS))
    types = draw(st.lists(st.sampled_from(kind.types), min_size=1, unique=True))
    program = {"name": kind.container, "command": ["x"]}
    policies = st.sampled_from(["", "Never", "OnFailure", "ExitCode"])
    roles = {type_: replica(draw(st.integers(1, 3)), program, policy=draw(policies)) for type_ in types}
    policy: dict[str, Any] = {}
    if (limit := draw(st.none() | st.integers(0, 3))) is not None:
        policy["backoffLimit"] = limit
    if (deadline := draw(st.none() | st.integers(1, 600))) is not None:
        policy["activeDeadlineSeconds"] = deadline
    training = started(kind, training_job(kind, policy=policy, **roles))
    training.polite = draw(st.booleans())
    return training


def happen(training: Training, what: str, which: int) -> None:
    """Let something happen to one of the pods that are not finished."""
    going = [p for p in training.pods if not p.is_finished]
    pod = going[which % len(going)]
    if pod.stopping:
        training.end(pod.name, 143)
    elif what == "verdict":
        training.change(pod.name, verdict="stopped early", stopping=True)
    elif what == "restart" and spec_of(training.job, training.kind).restarts_in_place(pod.role):
        training.restart(pod.name)
    elif what == "in use":
        training.end(pod.name, 1, in_use=True)
    else:
        training.end(pod.name, {"succeed": 0, "fail": 1}.get(what, 137), lost=what == "lose")


EVENTS = st.tuples(
    st.sampled_from(["succeed", "fail", "kill", "restart", "in use", "lose", "verdict"]),
    st.integers(0, 8),
    st.floats(0, 120),
)


@settings(max_examples=200, deadline=None)
@given(jobs(), st.lists(EVENTS, min_size=1, max_size=12))
def test_every_job_ends_and_never_has_more_pods_than_replicas(training: Training, events: list[Any]) -> None:
    wanted = Counter(f"j-{role}-{i}" for role, i in spec_of(training.job, training.kind).wanted)
    for number in range(ENOUGH):
        going = Counter(p.name for p in training.pods if not p.is_finished)
        assert going <= wanted
        if training.is_over:
            break
        if not going:  # only time can continue
            training.advance(600)
            continue
        what, which, seconds = events[number % len(events)]
        happen(training, what, which)
        training.advance(seconds)

    assert training.is_over
    assert all(p.is_finished for p in training.pods)
    ends = [c for c in training.status["conditions"] if c["type"] in {"Succeeded", "Failed"} and c["status"] == "True"]
    assert len(ends) == 1


@settings(max_examples=100, deadline=None)
@given(jobs(), st.lists(EVENTS, max_size=12))
def test_a_plan_that_was_followed_changes_nothing(training: Training, events: list[Any]) -> None:
    for what, which, seconds in events:
        if training.is_over or not any(not p.is_finished for p in training.pods):
            break
        happen(training, what, which)
        training.advance(seconds)

    decision = training.plan()

    assert (decision.start, decision.stop) == ((), ())
    assert decision.status == training.status


@settings(max_examples=100, deadline=None)
@given(jobs(), st.lists(EVENTS, max_size=12))
def test_the_end_is_final(training: Training, events: list[Any]) -> None:
    while not training.is_over:
        happen(training, "fail", 0)
        if not any(not p.is_finished for p in training.pods) and not training.is_over:
            training.advance(600)
    conditions = training.status["conditions"]

    for _, _, seconds in events:
        training.advance(seconds)

    assert training.status["conditions"] == conditions
    assert all(p.phase is not PodPhase.RUNNING for p in training.pods)
