"""Whole controllers over a real store: which objects exist once everything has come to rest?"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.controllers.ports import SuggestionsReply
from katib.engine.controllers.settings import FINISH_ANNOTATION, ControllerSettings
from katib.engine.controllers.suggestion.reconciler import LONG_HISTORY
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.errors import FieldError, InternalError, InvalidError, NotFoundError, UnavailableError
from katib.model.conditions import find_condition
from katib.model.features.repeats.feature import REPEATS
from katib.model.names import EXPERIMENT_LABEL, SERVICE_UNAVAILABLE
from katib.model.types import Experiment, Trial
from tests.support.controllers import JOB, NAMESPACE, FakeServices, JobEnd, World, a_reply, new_store
from tests.support.experiments import an_experiment
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.waiting import eventually, never


def last(conditions: Any) -> tuple[str, str]:
    return conditions[-1].type, conditions[-1].reason


def values(trials: list[Trial]) -> list[str]:
    return sorted(trial.spec.parameter_assignments[0].value for trial in trials)


def test_an_experiment_runs_exactly_its_budget_of_trials() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=7, parallelTrialCount=3))
        experiment = world.ended()

        assert last(experiment.status.conditions) == ("Succeeded", "ExperimentMaxTrialsReached")
        assert experiment.status.trials == experiment.status.trials_succeeded == 7
        assert len(set(values(world.trials()))) == 7
        assert world.suggestion().status.suggestion_count == 7


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(UnavailableError("database is locked"), "Failed to reconcile: database is locked", id="ours"),
        pytest.param(KeyError("x"), "Failed to reconcile: KeyError: 'x'", id="bug"),
    ],
)
def test_an_error_is_told_once_in_its_own_words_and_a_bug_with_its_class(error: Exception, message: str) -> None:
    errors = [error]

    def fail_once(call: Call) -> BaseException | None:
        return errors.pop() if errors and call.before and (call.verb, call.kind) == ("create", TRIAL) else None

    with World(through=lambda store: FaultyStore(store, fail_once)) as world:
        world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
        world.ended()

        assert [event for event in world.events.events if event[1] == "ReconcileError"] == [
            ("demo", "ReconcileError", message)
        ]


def test_labels_of_kueue_are_on_jobs_and_on_nothing_else() -> None:
    queue = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "low"}
    wanted = an_experiment(maxTrialCount=1, parallelTrialCount=1)
    with World() as world:
        world.submit({**wanted, "metadata": {**wanted["metadata"], "labels": {"team": "blue", **queue}}})
        (trial,) = eventually(world.trials)
        suggestion = world.suggestion()

    job = trial.spec.run_spec or {}
    assert queue.items() <= job["metadata"]["labels"].items()
    for made in (suggestion, trial):
        assert made.metadata.labels["team"] == "blue"
        assert not queue.keys() & made.metadata.labels.keys()


def test_conditions_tell_the_story_in_order() -> None:
    with World() as world:
        world.submit(an_experiment())
        experiment = world.ended()

    types = [(c.type, c.status) for c in experiment.status.conditions]
    assert types == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert experiment.status.completion_time is not None


def test_never_more_trials_run_than_the_parallelism_allows() -> None:
    most = 0

    def script(_trial: Trial) -> JobEnd:
        nonlocal most
        most = max(most, len([t for t in world.trials() if t.status.completion_time is None]))
        return JobEnd()

    with World(script=script) as world:
        world.submit(an_experiment(maxTrialCount=12, parallelTrialCount=4))
        world.ended()

    assert 1 <= most <= 4


def test_the_best_trial_is_the_one_with_the_lowest_loss() -> None:
    def script(trial: Trial) -> JobEnd:
        lr = float(trial.spec.parameter_assignments[0].value)
        return JobEnd(readings=(str(abs(lr - 0.013)),))

    with World(script=script) as world:
        world.submit(an_experiment(maxTrialCount=6))
        best = world.ended().status.current_optimal_trial

    assert best.parameter_assignments[0].value == "0.013"
    assert best.observation.metrics[0].name == "loss"


def test_the_goal_ends_the_experiment_and_stops_what_still_runs() -> None:
    def script(trial: Trial) -> JobEnd:
        first = trial.spec.parameter_assignments[0].value == "0.010"
        return JobEnd(readings=("0.001",)) if first else JobEnd(ends=False)

    with World(script=script) as world:
        objective = {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.01}
        world.submit(an_experiment(objective=objective, maxTrialCount=9, parallelTrialCount=3))

        assert last(world.ended().status.conditions) == ("Succeeded", "ExperimentGoalReached")
        eventually(lambda: world.experiment().status.trials_running + world.experiment().status.trials_pending == 0)
        assert world.experiment().status.trials_killed == len(world.trials()) - 1
        assert not world.store.list(JOB).items


def test_running_trials_may_finish_after_the_goal_when_asked_to() -> None:
    def script(trial: Trial) -> JobEnd:
        first = trial.spec.parameter_assignments[0].value == "0.010"
        return JobEnd(readings=("0.001",)) if first else JobEnd(ends=False)

    raw = an_experiment(objective={"type": "minimize", "objectiveMetricName": "loss", "goal": 0.01}, maxTrialCount=9)
    raw["metadata"]["annotations"] = {FINISH_ANNOTATION: "finish"}
    with World(script=script) as world:
        world.submit(raw)
        eventually(world.is_over)
        waiting = [t for t in world.trials() if t.status.completion_time is None]
        for trial in waiting:
            world.end_job(world.store.get(JOB, Key(NAMESPACE, trial.name)), trial, JobEnd(readings=("0.0001",)))
        experiment = world.ended()
        eventually(lambda: world.experiment().status.trials_running == 0)

        assert waiting
        assert world.experiment().status.trials_killed == 0
        assert experiment.status.conditions[-1].reason == "ExperimentGoalReached"


def test_too_many_failures_fail_the_experiment(golden: Golden) -> None:
    with World(script=lambda _: JobEnd(type="Failed", reason="BackoffLimitExceeded", message="exited with 1")) as world:
        world.submit(an_experiment(maxTrialCount=10, parallelTrialCount=1, maxFailedTrialCount=2))
        experiment = world.ended()

    assert last(experiment.status.conditions) == ("Failed", "ExperimentFailed")
    assert experiment.status.trials_failed == 2
    golden(world.trials()[0].status.conditions[-1].message)


def test_missing_metrics_end_the_trial_with_the_collectors_explanation_and_count_for_the_budget() -> None:
    report = '214 lines, none matched "loss"; nearest: "Loss: 0.21"'
    with World(script=lambda _: JobEnd(readings=(), report=report)) as world:
        world.submit(an_experiment(maxTrialCount=3, parallelTrialCount=2))
        experiment = world.ended()

    assert experiment.status.trial_metrics_unavailable == experiment.status.trials == 3
    condition = world.trials()[0].status.conditions[-1]
    assert (condition.type, condition.message) == ("MetricsUnavailable", f"Metrics are not available: {report}")


def test_metrics_that_nobody_ever_reports_are_not_waited_for_forever(golden: Golden) -> None:
    settings = ControllerSettings(metrics_timeout_seconds=0.05)
    with World(script=lambda _: JobEnd(readings=()), settings=settings) as world:
        world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
        world.ended()

    golden(world.trials()[0].status.conditions[-1].message)


def test_an_early_stopped_trial_keeps_its_observation_without_retaining_its_job() -> None:
    end = JobEnd(reason="EarlyStopped", message="loss 0.9 > 0.5 at reading 4", readings=("0.95", "0.9"))
    with World(script=lambda _: end) as world:
        world.submit(an_experiment(maxTrialCount=4, parallelTrialCount=2))
        experiment = world.ended()

    assert experiment.status.trials_early_stopped == 4
    assert world.trials()[0].status.observation.metrics[0].min == "0.9"  # type: ignore[union-attr]
    assert not world.store.list(JOB).items


def test_an_exhausted_search_space_ends_the_experiment_with_its_own_reason() -> None:
    def answer(first: int, count: int) -> SuggestionsReply:
        left = max(5 - first, 0)
        return SuggestionsReply(a_reply(first, min(count, left)).assignments, exhausted=left < count)

    with World(services=FakeServices(answer=answer)) as world:
        world.submit(an_experiment(maxTrialCount=20, parallelTrialCount=2))
        experiment = world.ended()

    assert last(experiment.status.conditions) == ("Succeeded", "ExperimentSuggestionEndReached")
    assert experiment.status.trials == 5


def test_a_refused_experiment_fails_with_the_words_of_the_service(golden: Golden) -> None:
    refusal = InvalidError([FieldError("spec.algorithm", "sigma must be positive", "raise it", "setting-range")])
    with World(services=FakeServices(refuse=refusal)) as world:
        world.submit(an_experiment())
        experiment = world.ended()
        eventually(lambda: set(world.services.released) == {"demo"})  # releasing twice is fine

    golden(experiment.status.conditions[-1].message)


def test_what_an_earlier_controller_left_unreleased_is_released_after_a_restart() -> None:
    with World() as world:
        world.submit(an_experiment())
        world.ended()
        eventually(lambda: world.suggestion().status.conditions[-1].type == "Succeeded")

    with World(world.store) as restarted:
        eventually(lambda: set(restarted.services.released) == {"demo"})


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        pytest.param(lambda first, _count: a_reply(first, 0), "0 assignments were given where 2", id="too few"),
        pytest.param(lambda first, count: a_reply(first, count + 1), "3 assignments were given where 2", id="too many"),
        pytest.param(lambda first, count: a_reply(first, count, ["momentum"]), "momentum", id="unknown name"),
        pytest.param(lambda first, count: a_reply(first + 5000, count), "5.01", id="out of range"),
    ],
)
def test_a_malformed_reply_is_refused_told_and_asked_for_again(bad: Any, words: str) -> None:
    calls = 0

    def answer(first: int, count: int) -> SuggestionsReply:
        nonlocal calls
        calls += 1
        return bad(first, count) if calls == 1 else a_reply(first, count)

    with World(services=FakeServices(answer=answer)) as world:
        world.submit(an_experiment(maxTrialCount=4))
        experiment = world.ended()

    assert experiment.status.trials_succeeded == 4
    assert any(words in message for _, reason, message in world.events.events if reason == "SuggestionServiceFailed")


def test_a_service_that_keeps_failing_fails_the_experiment_at_last(golden: Golden) -> None:
    def answer(_first: int, _count: int) -> SuggestionsReply:
        raise InternalError("division by zero")

    settings = ControllerSettings(service_attempts=2, service_patience_seconds=0.0)
    with World(services=FakeServices(answer=answer), settings=settings) as world:
        world.submit(an_experiment())
        experiment = world.ended()

    golden(experiment.status.conditions[-1].message)


def test_a_service_that_is_away_is_waited_for_and_the_experiment_says_so_until_it_answers(golden: Golden) -> None:
    away = True

    def answer(first: int, count: int) -> SuggestionsReply:
        if away:
            raise UnavailableError("did not answer within 60 s")
        return a_reply(first, count)

    def condition(world: World) -> Any:
        return find_condition(world.experiment().status.conditions, "Running")

    impatient = ControllerSettings(service_attempts=2, service_patience_seconds=0.0)
    with World(services=FakeServices(answer=answer), settings=impatient) as world:
        world.submit(an_experiment(maxTrialCount=4))
        eventually(lambda: condition(world) is not None)
        waiting = condition(world)
        away = False
        experiment = world.ended()

    assert (waiting.status, waiting.reason) == ("False", SERVICE_UNAVAILABLE)
    golden(waiting.message)
    assert [reason for _, reason, _ in world.events.events].count(SERVICE_UNAVAILABLE) == 1
    assert experiment.status.trials_succeeded == 4
    assert condition(world).reason == "ExperimentRunning"


def test_a_service_whose_first_answer_is_empty_is_asked_again_and_fails_the_experiment_at_last(golden: Golden) -> None:
    answers = [SuggestionsReply((), (), exhausted=True)] * 2
    patient = FakeServices(answer=lambda first, count: answers.pop() if answers else a_reply(first, count))
    with World(services=patient) as world:
        world.submit(an_experiment(maxTrialCount=4))
        recovered = world.ended()
    settings = ControllerSettings(service_attempts=2, service_patience_seconds=0.0)
    empty = FakeServices(answer=lambda *_: SuggestionsReply((), (), exhausted=True))
    with World(services=empty, settings=settings) as world:
        world.submit(an_experiment())
        given_up = world.ended()

    assert recovered.status.trials_succeeded == 4
    assert last(given_up.status.conditions)[0] == "Failed"
    golden(given_up.status.conditions[-1].message)


@pytest.mark.parametrize(
    ("history", "shared"),
    [pytest.param(0, False, id="on-a-worker"), pytest.param(LONG_HISTORY, True, id="long-and-on-one-thread")],
)
def test_a_slow_preparation_of_one_question_delays_no_other_experiment(history: int, *, shared: bool) -> None:
    """As when a history of tens of thousands of trials is encoded for the first time."""
    slow, entered = threading.Event(), threading.Event()

    class Services(FakeServices):
        def get_suggestions(self, experiment: Experiment, *arguments: Any, **numbers: int) -> Any:
            if experiment.name == "slow":
                entered.set()
                assert slow.wait(60)
            return super().get_suggestions(experiment, *arguments, **numbers)

    store, clock = new_store(), SystemClock()
    for number in range(history):
        ended = ended_trial(f"old-{number}", "slow")
        store.update_status({**store.create(ended), "status": ended["status"]})
    thread = SharedThread("shared", clock) if shared else None
    if thread is not None:
        thread.start()
    with World(
        store,
        services=Services(),
        caches_of=lambda store, clock: Caches.of(store, [JOB], clock, thread=thread),
        thread=thread,
    ) as world:
        world.submit(an_experiment(name="slow", maxTrialCount=history + 2))
        assert entered.wait(60)
        try:
            world.submit(an_experiment(name="quick", maxTrialCount=4))
            eventually(lambda: world.is_over("quick"))
            quick = world.experiment("quick")
        finally:
            slow.set()
        world.ended("slow")
    if thread is not None:
        thread.stop()

    assert quick.status.trials_succeeded == 4


def ended_trial(name: str, experiment: str) -> Object:
    labels = {EXPERIMENT_LABEL: experiment}
    times = {"startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:00:01Z"}
    condition = {"type": "Succeeded", "status": "True", "reason": "TrialSucceeded", "message": "Trial has succeeded"}
    return {
        "apiVersion": TRIAL.api_version,
        "kind": TRIAL.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {},
        "status": {**times, "conditions": [condition]},
    }


def test_what_a_service_waits_for_is_told_until_it_is_ready(golden: Golden) -> None:
    services = FakeServices(waits="pod demo-random-x: Unschedulable: 0/1 nodes")
    with World(services=services) as world:
        world.submit(an_experiment())
        eventually(lambda: "SuggestionServiceWaiting" in world.events.reasons())
        condition = find_condition(world.suggestion().status.conditions, "DeploymentReady")
        assert condition is not None
        golden(condition.message)

        services.waits = None
        world.wake("demo")
        world.ended()

    assert [reason for _, reason, _ in world.events.events].count("SuggestionServiceWaiting") == 1


@pytest.mark.parametrize("retain", [False, True], ids=["removed", "retained"])
def test_the_events_of_a_trial_tell_what_becomes_of_its_job_as_in_katib(retain: bool) -> None:
    raw = an_experiment(maxTrialCount=1, parallelTrialCount=1)
    raw["spec"]["trialTemplate"]["retain"] = retain
    with World() as world:
        world.submit(raw)
        eventually(world.is_over)
        (trial,) = world.trials()

        def told() -> list[str]:
            """Return what was said of the job; a stale cache may make the controller say a thing again."""
            mine = {f"{reason}: {message}" for name, reason, message in world.events.events if name == trial.name}
            return sorted(mine)

        job = f"Job {trial.name}"
        story = [f"JobCreated: {job} has been created"]  # it was over before anybody saw it run
        story += [] if retain else [f"JobDeleted: {job} has been deleted"]
        eventually(lambda: told() == sorted([*story, f"JobSucceeded: {job} has succeeded"]))


def test_raising_the_budget_of_a_long_running_experiment_goes_on() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=2, resumePolicy="LongRunning"))
        first = world.ended()
        obj = dict(world.store.get(EXPERIMENT, Key(NAMESPACE, "demo")))
        world.store.update({**obj, "spec": {**obj["spec"], "maxTrialCount": 5}})
        eventually(lambda: world.experiment().status.trials == 5 and world.is_over() and world.at_rest())

    assert first.status.trials == 2
    assert len(set(values(world.trials()))) == 5


def test_a_finished_experiment_with_policy_never_stays_finished() -> None:
    with World() as world:
        world.submit(an_experiment(maxTrialCount=2))
        world.ended()
        eventually(lambda: world.services.released)
        conditions = [(c.type, c.status) for c in world.suggestion().status.conditions]

    assert ("Succeeded", "True") in conditions
    assert ("Running", "False") in conditions


def test_deleting_an_experiment_takes_everything_with_it() -> None:
    with World(script=lambda _: JobEnd(ends=False)) as world:
        world.submit(an_experiment(parallelTrialCount=3))
        eventually(lambda: len(world.store.list(JOB).items) == 3)
        names = [trial.name for trial in world.trials()]
        world.store.delete(EXPERIMENT, Key(NAMESPACE, "demo"))
        eventually(lambda: not world.trials() and not world.store.list(JOB).items)
        eventually(lambda: not world.store.list(SUGGESTION).items)

    assert len(names) == 3
    assert all(world.observations.summarize(name, ["loss"]) is None for name in names)
    with pytest.raises(NotFoundError):
        world.suggestion()


def test_two_experiments_do_not_mix() -> None:
    with World() as world:
        world.submit(an_experiment(name="one", maxTrialCount=4))
        world.submit(an_experiment(name="two", maxTrialCount=5))
        one, two = world.ended("one"), world.ended("two")

    assert (one.status.trials, two.status.trials) == (4, 5)


def test_coming_to_rest_again_changes_nothing() -> None:
    store = new_store()
    with World(store) as world:
        world.submit(an_experiment(maxTrialCount=3))
        world.ended()
        eventually(lambda: world.services.released)
    before = {key: store.list(key).items for key in (EXPERIMENT, TRIAL, JOB)}
    for _ in range(2):
        with World(store, observations=world.observations) as again:
            assert again.is_over()

    assert {key: store.list(key).items for key in (EXPERIMENT, TRIAL, JOB)} == before


class _CrashError(UnavailableError):
    """Stands for the end of the process: every later write fails too."""


class _CrashingStore:
    """Lets a number of writes through, then none; with `lose_answer` the last one happens but its answer is lost."""

    def __init__(self, inner: ObjectStore, writes: int, *, lose_answer: bool) -> None:
        self._inner = inner
        self._left = writes
        self._lose_answer = lose_answer
        self.crashed = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return self._counted(method) if name in {"create", "update", "update_status", "delete"} else method

    def _counted(self, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Object:
            self._left -= 1
            if self._left < 0:
                self.crashed = True
                if self._left == -1 and self._lose_answer:
                    method(*args, **kwargs)
                raise _CrashError("the process ended")
            result: Object = method(*args, **kwargs)
            return result

        return call


@pytest.mark.parametrize("lose_answer", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize(
    ("repeats", "wanted"),
    [(1, ["0.010", "0.011", "0.012", "0.013"]), (2, ["0.010", "0.010", "0.011", "0.011"])],
    ids=["one run", "repeats"],
)
@pytest.mark.parametrize("writes", range(40))
def test_a_crash_between_any_two_writes_loses_and_doubles_nothing(
    writes: int, repeats: int, wanted: list[str], *, lose_answer: bool
) -> None:
    store = new_store()
    crashing = _CrashingStore(store, writes, lose_answer=lose_answer)
    with World(store, through=lambda _inner: crashing) as first:
        made = an_experiment(maxTrialCount=4, parallelTrialCount=2)
        made["metadata"]["annotations"] = REPEATS.write(repeats)
        first.submit(made)
        eventually(lambda: crashing.crashed or (first.is_over() and first.at_rest()))
    with World(store, observations=first.observations) as second:
        experiment = second.ended()

    assert experiment.status.trials == experiment.status.trials_succeeded == 4
    assert values(second.trials()) == wanted


def _rungs_of_two(world: World) -> FakeServices:
    """Return a service that gives two assignments, and two more only when those trials have ended."""

    def answer(first: int, count: int) -> SuggestionsReply:
        ended = sum(trial.status.completion_time is not None for trial in world.trials())
        allowed = max(min(count, 2 - first % 2 if first % 2 else 2 * (first <= ended)), 0)
        given = a_reply(first, allowed)
        return replace(given, waits=allowed < count, explanation="demo waits for 2 trials of rung 0")

    return FakeServices(answer=answer)


def test_a_service_that_waits_for_trials_is_asked_when_one_has_ended_and_never_in_a_loop() -> None:
    with World() as world:
        world.services.answer = _rungs_of_two(world).answer
        world.submit(an_experiment(maxTrialCount=8, parallelTrialCount=4))
        experiment = world.ended()

        assert last(experiment.status.conditions) == ("Succeeded", "ExperimentMaxTrialsReached")
        assert experiment.status.trials_succeeded == 8
        assert len(world.services.requests) <= 8 + 8
        assert find_condition(world.suggestion().status.conditions, "WaitingForTrials") is None


def test_a_restarted_controller_finds_out_that_the_service_waits_and_goes_on(golden: Golden) -> None:
    with World(script=lambda _trial: JobEnd(ends=False)) as held:
        held.services.answer = _rungs_of_two(held).answer
        held.submit(an_experiment(maxTrialCount=4, parallelTrialCount=4))
        eventually(lambda: "WaitingForTrials" in str(held.store.list(SUGGESTION).items))
        condition = find_condition(held.suggestion().status.conditions, "WaitingForTrials")
        asked = len(held.services.requests)
        never(lambda: len(held.services.requests) > asked + 2, seconds=0.5)

        assert condition is not None
        golden(condition.message)
    again = World(held.store, observations=held.observations)
    with again:
        again.services.answer = _rungs_of_two(again).answer

        assert again.ended().status.trials_succeeded == 4


def test_a_service_that_waits_while_nothing_runs_is_told_and_in_the_end_fails_the_experiment(golden: Golden) -> None:
    impatient = ControllerSettings(service_attempts=3, service_patience_seconds=0.2)
    services = FakeServices(answer=lambda first, _count: replace(a_reply(first, 0), waits=True))
    with World(services=services, settings=impatient) as world:
        world.submit(an_experiment())
        experiment = world.ended()

        assert last(experiment.status.conditions) == ("Failed", "ExperimentFailed")
        golden(experiment.status.conditions[-1].message)
        assert "SuggestionServiceFailed" in world.events.reasons()
