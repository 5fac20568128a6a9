"""An experiment is deleted and another of its name is submitted at once: nothing of the old one reaches the new one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from katib.engine.controllers.freshness import Freshness
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.controllers.ports import SuggestionService, SuggestionsReply
from katib.engine.runtime.objects import Key
from katib.errors import NotFoundError
from katib.model.types import Experiment, Trial
from tests.support.controllers import NAMESPACE, FakeServices, JobEnd, World, a_reply
from tests.support.experiments import an_experiment
from tests.support.planning import experiment
from tests.support.waiting import eventually

DEMO = Key(NAMESPACE, "demo")
HOLD = "a-colleague-still-needs-it"


def hold(world: World, trial: Trial) -> None:
    """Keep a trial from going, as a job does that takes its time to end."""
    key = Key(NAMESPACE, trial.name)

    def held() -> bool:
        obj = world.store.get(TRIAL, key)
        metadata = {**obj["metadata"], "finalizers": [*obj["metadata"]["finalizers"], HOLD]}
        return HOLD in world.store.update({**obj, "metadata": metadata})["metadata"]["finalizers"]

    eventually(held)


def let_go(world: World, trial: Trial) -> None:
    obj = world.store.get(TRIAL, Key(NAMESPACE, trial.name))
    finalizers = [f for f in obj["metadata"]["finalizers"] if f != HOLD]
    world.store.update({**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}})


def release(world: World) -> None:
    """Let the experiment go before its trials, as somebody does who has removed the controller."""
    eventually(lambda: all(trial.metadata.deletion_timestamp for trial in world.trials()))
    world.store.patch(world.store.get(EXPERIMENT, DEMO), {"metadata": {"finalizers": None}})


def is_gone(world: World, uid: str) -> bool:
    try:
        return world.store.get(EXPERIMENT, DEMO)["metadata"]["uid"] != uid
    except NotFoundError:
        return True


def test_trials_of_a_deleted_namesake_count_for_nothing_and_are_waited_for() -> None:
    """The old trials reached the goal of the new experiment, whose own do not."""
    readings = "0.5"
    with World(script=lambda _trial: JobEnd(readings=(readings,))) as world:
        old = world.submit(an_experiment(maxTrialCount=2))
        world.ended()
        trial = world.trials()[0]
        hold(world, trial)
        world.store.delete(EXPERIMENT, DEMO)
        release(world)
        eventually(lambda: is_gone(world, old.metadata.uid))

        readings = "0.9"
        goal = {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.6}
        new = world.submit(an_experiment(maxTrialCount=3, objective=goal))
        eventually(lambda: bool(world.experiment().metadata.finalizers))
        let_go(world, trial)
        ended = world.ended()
        trials = world.trials()

    assert ended.status.conditions[-1].reason == "ExperimentMaxTrialsReached"
    assert ended.status.trials == 3
    assert {t.metadata.owner_references[0].uid for t in trials} == {new.metadata.uid}


@dataclass
class SlowServices(FakeServices):
    """Calls are answered when the test says so, with what the experiment that asked is called by its algorithm."""

    calls: list[tuple[str, int, int, Future[Any]]] = field(default_factory=list)

    def service_for(self, _experiment: Experiment) -> SuggestionService | None:
        return self

    def get_suggestions(
        self, experiment: Experiment, trials: Any, *, current_request: int, total_request: int, earlier: Any = ()
    ) -> Future[SuggestionsReply]:
        del trials, earlier
        future: Future[SuggestionsReply] = Future()
        future.set_running_or_notify_cancel()
        self.calls.append((experiment.metadata.uid, total_request - current_request, current_request, future))
        return future


def test_an_answer_to_a_deleted_namesake_is_not_given_to_the_new_experiment() -> None:
    services = SlowServices()
    with World(services=services) as world:
        old = world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
        eventually(lambda: len(services.calls) == 1)
        world.store.delete(EXPERIMENT, DEMO)
        eventually(lambda: is_gone(world, old.metadata.uid))
        new = world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
        eventually(lambda: world.suggestion().spec.requests == 1 if _has_suggestion(world) else False)
        services.calls[0][3].set_result(a_reply(50, 1))
        eventually(lambda: len(services.calls) == 2)
        services.calls[1][3].set_result(a_reply(0, 1))
        world.ended()
        trials = world.trials()

    assert services.calls[1][0] == new.metadata.uid
    assert [t.spec.parameter_assignments[0].value for t in trials] == ["0.010"]


def _has_suggestion(world: World) -> bool:
    try:
        world.suggestion()
    except NotFoundError:
        return False
    return True


def test_an_answer_is_used_though_more_is_asked_for_by_now() -> None:
    services = SlowServices()
    with World(script=lambda _trial: JobEnd(ends=False), services=services) as world:
        world.submit(an_experiment(maxTrialCount=9, parallelTrialCount=1))
        eventually(lambda: len(services.calls) == 1)
        stored = world.experiment()
        spec = structs.replace(stored.spec, parallel_trial_count=3)
        world.store.update(structs.replace(stored, spec=spec).encode())
        eventually(lambda: world.suggestion().spec.requests == 3)
        services.calls[0][3].set_result(a_reply(0, 1))
        eventually(lambda: len(services.calls) == 2)
        services.calls[1][3].set_result(a_reply(1, 2))
        eventually(lambda: len(world.trials()) == 3)
        values = sorted(t.spec.parameter_assignments[0].value for t in world.trials())

    assert [(base, count) for _, base, count, _ in services.calls] == [(0, 1), (1, 2)]
    assert values == ["0.010", "0.011", "0.012"]


def test_an_answer_that_breaks_us_is_asked_for_again_and_not_kept_for_ever() -> None:
    services = SlowServices()
    with World(services=services) as world:
        world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
        eventually(lambda: len(services.calls) == 1)
        services.calls[0][3].set_exception(ZeroDivisionError("a bug in a converter"))
        eventually(lambda: len(services.calls) == 2)
        services.calls[1][3].set_result(a_reply(0, 1))
        assert world.ended().status.trials == 1


def test_a_suggestion_that_goes_while_it_is_written_is_no_error() -> None:
    services = SlowServices()
    with World(services=services) as world:
        old = world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
        eventually(lambda: len(services.calls) == 1)
        world.store.delete(EXPERIMENT, DEMO)
        services.calls[0][3].set_result(a_reply(0, 1))
        eventually(lambda: is_gone(world, old.metadata.uid))

    assert "ReconcileError" not in world.events.reasons()


def test_a_write_that_changed_nothing_leaves_no_object_behind_as_stale() -> None:
    fresh = Freshness()
    seen = experiment()

    fresh.wrote(seen, {"metadata": {"resourceVersion": seen.metadata.resource_version}})
    assert not fresh.is_stale(seen)
    fresh.wrote(seen, {"metadata": {"resourceVersion": "2"}})
    assert fresh.is_stale(seen)


def test_a_conflict_while_acceptance_is_stored_is_no_failure_of_the_service() -> None:
    services = SlowValidation()
    with World(services=services) as world:
        world.submit(an_experiment(maxTrialCount=1, parallelTrialCount=1))
        eventually(lambda: bool(services.validations))
        services.before_answer = lambda: _touch(world)
        services.validations[0].set_result(None)
        world.ended()

    assert "SuggestionServiceFailed" not in world.events.reasons()


@dataclass
class SlowValidation(FakeServices):
    """Accepts when the test says so; calls the test back while the answer is being taken."""

    validations: list[Future[None]] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None

    def service_for(self, experiment: Experiment) -> SuggestionService | None:
        del experiment
        if self.validations and self.validations[0].done():
            call, self.before_answer = self.before_answer, lambda: None
            call()  # the reconcile has read the Suggestion and not yet written it
        return self

    def validate(self, _experiment: Experiment) -> Future[None]:
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        self.validations.append(future)
        return future


def _touch(world: World) -> None:
    obj = world.store.get(SUGGESTION, DEMO)
    world.store.update({**obj, "metadata": {**obj["metadata"], "labels": {"touched": "yes"}}})
