"""Whole controllers whose early stopping service judges running trials."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from katib.engine.controllers.early_stopping import plan
from katib.engine.controllers.early_stopping.plan import Asking
from katib.engine.controllers.ports import NO_UPDATE, PodUpdate, StopVerdict
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.shared_thread import SharedThread
from katib.errors import UnavailableError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.trials import objective_number, trial_state
from katib.model.types import EarlyStoppingRule, Trial, TrialState
from tests.support.controllers import JOB, FakeServices, JobEnd, World
from tests.support.experiments import an_experiment
from tests.support.observations import MemoryObservationLog
from tests.support.waiting import eventually

WHY = "loss 0.91 at step 4 is worse than 0.43, the best third of 27 trials"
MEDIANSTOP = {"algorithmName": "medianstop"}
RULE = EarlyStoppingRule(name="loss", value="0.5", comparison="greater", start_step=1)


def hopeless(trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
    """Return verdicts on all running trials but the first one."""
    return tuple(
        StopVerdict(trial.name, WHY) for trial in trials if trial_state(trial) is TrialState.RUNNING and is_slow(trial)
    )


def is_slow(trial: Trial) -> bool:
    return trial.spec.parameter_assignments[0].value != "0.010"


def script(trial: Trial) -> JobEnd:
    """The first trial ends by itself, the others never."""
    return JobEnd(ends=not is_slow(trial))


def states(world: World) -> list[str]:
    return sorted(trial_state(trial) for trial in world.trials())


def reported(log: MemoryObservationLog, world: World) -> None:
    """Have every trial with a job report one value."""
    for job in world.store.list(JOB).items:
        name = job["metadata"]["name"]
        if not log.count(name):
            log.report(name, [MetricLog(ZERO_TIME, "loss", "0.91")])


class ReportingServices(FakeServices):
    """Services that judge trials which have reported by then."""

    def __init__(self, log: MemoryObservationLog) -> None:
        super().__init__(rules=(RULE,))
        self.world: World | None = None
        self.judgment = self._judge
        self._log = log

    def _judge(self, trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        if self.world is not None:
            reported(self._log, self.world)
        return hopeless(trials)


@pytest.mark.parametrize("shared", [False, True], ids=["own threads", "one thread"])
def test_hopeless_trials_are_stopped_with_the_reason_and_make_room(*, shared: bool) -> None:
    log = MemoryObservationLog()
    services = ReportingServices(log)
    clock = SystemClock()
    thread = SharedThread("controllers", clock) if shared else None
    with World(script=script, services=services, observations=log, thread=thread) as world:
        if thread is not None:
            thread.start()
        services.world = world
        world.submit(an_experiment(maxTrialCount=5, parallelTrialCount=2, earlyStopping=MEDIANSTOP))
        experiment = world.ended()
        trials = world.trials()
        if thread is not None:
            thread.stop()

    stopped = [trial for trial in trials if is_slow(trial)]
    assert experiment.status.trials_early_stopped == len(stopped) == 4
    assert experiment.status.trials_succeeded == 1
    assert {trial.status.conditions[-1].message for trial in stopped} == {f"Trial is early stopped: {WHY}"}
    assert {objective_number(t.spec.objective, t.status.observation) for t in stopped} == {0.91}
    assert all(trial.spec.early_stopping_rules == () for trial in trials)


def test_a_service_that_does_not_judge_gives_rules_and_is_not_asked_over_and_over() -> None:
    services = FakeServices(rules=(RULE,))
    with World(services=services) as world:
        world.submit(an_experiment(maxTrialCount=6, parallelTrialCount=2, earlyStopping=MEDIANSTOP))
        world.ended()

        assert all(trial.spec.early_stopping_rules == (RULE,) for trial in world.trials())
        assert services.judged <= 1


def test_without_early_stopping_nobody_is_asked() -> None:
    services = FakeServices(judgment=hopeless)
    with World(services=services) as world:
        world.submit(an_experiment(maxTrialCount=3))
        world.ended()

    assert services.judged == 0


def test_a_service_that_fails_is_told_of_and_stops_nothing_else() -> None:
    struck = threading.Event()

    def fails(trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        if trials:
            raise UnavailableError("the service went away")
        return ()

    with World(script=lambda _trial: JobEnd(ends=struck.is_set()), services=FakeServices(judgment=fails)) as world:
        world.submit(an_experiment(maxTrialCount=3, parallelTrialCount=2, earlyStopping=MEDIANSTOP))
        eventually(lambda: "EarlyStoppingUnavailable" in world.events.reasons())
        struck.set()
        for job in world.store.list(JOB).items:
            (trial,) = [trial for trial in world.trials() if trial.name == job["metadata"]["name"]]
            world.end_job(job, trial, JobEnd())
        world.ended()

        assert states(world) == ["Succeeded"] * 3


class EndingPods:
    """Pods of deleted jobs that run until the test says otherwise."""

    def __init__(self, ending: threading.Event) -> None:
        self._ending = ending

    def update_of(self, _trial: Trial) -> PodUpdate:
        return NO_UPDATE

    def is_ending(self, _trial: Trial) -> bool:
        return self._ending.is_set()

    def has_queues(self) -> bool:
        return False


def test_a_place_is_free_when_the_programs_are_gone() -> None:
    ending = threading.Event()
    ending.set()
    services = FakeServices(judgment=hopeless)
    with World(script=script, services=services, pods=EndingPods(ending)) as world:
        world.submit(an_experiment(maxTrialCount=3, parallelTrialCount=2, earlyStopping=MEDIANSTOP))
        eventually(lambda: states(world) == ["Running", "Running", "Succeeded"] and not world.store.list(JOB).items)
        running = [trial for trial in world.trials() if trial_state(trial) is TrialState.RUNNING]
        ending.clear()
        for trial in running:
            world.wake_trial(trial.name)
        world.ended()

    assert {trial.status.conditions[-1].reason for trial in running} == {"TrialStopping"}


class OwnRules:
    """Rules that every trial but the first one meets at once. Fits `katib.engine.controllers.ports.GivenRules`."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def verdicts(self, trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        self.seen |= {trial.name for trial in trials}
        return hopeless(trials)


@pytest.mark.parametrize(("kind", "stopped"), [("Push", 2), ("StdOut", 0)])
def test_rules_that_no_collector_evaluates_are_evaluated_here(kind: str, stopped: int) -> None:
    rules = OwnRules()

    def slow(trial: Trial) -> JobEnd:
        return JobEnd(ends=kind == "StdOut" or not is_slow(trial))

    services = FakeServices(rules=(RULE,))
    collector = {"collector": {"kind": kind}}
    with World(script=slow, services=services, given_rules=rules) as world:
        world.submit(
            an_experiment(
                maxTrialCount=3, parallelTrialCount=2, earlyStopping=MEDIANSTOP, metricsCollectorSpec=collector
            )
        )
        experiment = world.ended()

    assert len(rules.seen) >= stopped
    assert experiment.status.trials_early_stopped == stopped


# --- When the next question about running trials may be put -----------------------------------------------------------


def answered(*, took: float = 0.001) -> Asking:
    asked = plan.before_question(Asking("u"), 100.0, readings=1)
    return plan.after_answer(asked, 100.0 + took)


def test_new_readings_are_asked_about_almost_at_once() -> None:
    asking = answered()

    assert plan.due_at(asking, readings=2) == 100.001 + plan.QUICK_SECONDS
    assert plan.due_at(asking, readings=1) == 100.001 + plan.LOOK_SECONDS


def test_questions_that_take_long_are_put_more_rarely() -> None:
    asking = answered(took=0.5)

    assert plan.due_at(asking, readings=2) == plan.due_at(asking, readings=1) == 100.5 + plan.SHARE * 0.5


def test_new_readings_do_not_shorten_the_pause_after_a_failure() -> None:
    asking = plan.after_failure(plan.before_question(Asking("u"), 100.0, readings=1), 100.0)

    assert plan.due_at(asking, readings=2) == asking.next_at > 100.0
