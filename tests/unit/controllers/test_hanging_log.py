"""An observation log across a network: whatever it does, only what needs it waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from katib.engine.controllers.kinds import TRIAL, key_of
from katib.engine.controllers.ports import TrialReport
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.trial import reconciler
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.objects import Key
from katib.errors import UnavailableError
from katib.model.metrics import MetricLog
from katib.model.trials import trial_state
from katib.model.types import Trial, TrialState
from tests.support.controllers import JOB, NAMESPACE, JobEnd, World
from tests.support.experiments import an_experiment
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog
from tests.support.waiting import eventually


class FarLog(TrialLogs):
    """A log whose calls hang while its gate is closed."""

    def __init__(self, log: MemoryObservationLog) -> None:
        super().__init__(log)
        self.gate = threading.Event()
        self.gate.set()
        self.calls: list[tuple[str, str]] = []
        self.refusal = ""
        self.refuses_to_end = False

    def begin(self, trial: Trial) -> None:
        self._pass("begin", trial)
        super().begin(trial)

    def summarize(self, trial: Trial, from_status: Sequence[MetricLog] = ()) -> TrialReport:
        self._pass("summarize", trial)
        return TrialReport(super().summarize(trial, from_status).observation, self.refusal)

    def end(self, trial: Trial) -> None:
        self._pass("end", trial)
        if self.refuses_to_end:
            self.refuses_to_end = False
            raise UnavailableError("the log is away")
        super().end(trial)

    def delete(self, trial: Trial) -> None:
        self._pass("delete", trial)
        super().delete(trial)

    def _pass(self, what: str, trial: Trial) -> None:
        self.calls.append((what, trial.name))
        assert self.gate.wait(60)


@pytest.fixture
def log() -> MemoryObservationLog:
    return MemoryObservationLog()


@pytest.fixture
def far(log: MemoryObservationLog) -> FarLog:
    return FarLog(log)


@pytest.fixture
def pool(far: FarLog) -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool
        far.gate.set()  # what still hangs would keep the pool's threads from ending


def named(name: str, **fields: object) -> dict[str, object]:
    raw = an_experiment(**fields)
    return {**raw, "metadata": {**raw["metadata"], "name": name}}


def jobs_of(world: World, experiment: str) -> int:
    return sum(job["metadata"]["name"].startswith(experiment) for job in world.store.list(JOB).items)


def test_a_log_that_hangs_holds_up_no_other_experiment(log: MemoryObservationLog, far: FarLog, pool: Executor) -> None:
    """More trials wait for their observation than there are workers, and more than there are threads in the pool."""

    def script(trial: Trial) -> JobEnd:
        return JobEnd(ends=trial.name.startswith("first"), readings=("0.5",))

    far.gate.clear()
    with World(script=script, observations=log, trial_logs=far, observation_pool=pool) as world:
        world.submit(named("first", maxTrialCount=6, parallelTrialCount=6))
        eventually(lambda: len(far.calls) == 2)
        world.submit(named("second", maxTrialCount=3, parallelTrialCount=3))

        eventually(lambda: jobs_of(world, "second") == 3)
        assert all(trial.status.observation is None for trial in world.trials())
        far.gate.set()
        eventually(lambda: world.is_over("first"))
        assert world.experiment("first").status.trials_succeeded == 6


def test_a_job_is_created_once_the_log_is_empty_and_not_before(
    log: MemoryObservationLog, far: FarLog, pool: Executor
) -> None:
    far.gate.clear()
    settings = ControllerSettings(discards_before_start=True)
    with World(observations=log, trial_logs=far, observation_pool=pool, settings=settings) as world:
        world.submit(an_experiment(maxTrialCount=1))
        eventually(lambda: len(far.calls) == 1)
        (trial,) = world.trials()

        assert world.store.list(JOB).items == ()
        far.gate.set()
        world.ended()
        eventually(lambda: len(far.calls) == 3)
        assert far.calls == [("begin", trial.name), ("summarize", trial.name), ("end", trial.name)]


def test_the_log_of_a_trial_takes_no_more_readings_once_its_end_is_stored(
    log: MemoryObservationLog, far: FarLog, pool: Executor
) -> None:
    ends: list[tuple[str, TrialState]] = []

    def end(trial: Trial) -> None:
        ends.append((trial.name, trial_state(Trial.decode(world.store.get(TRIAL, key_of(trial))))))

    with World(observations=log, trial_logs=far, observation_pool=pool) as world:
        far.end = end  # type: ignore[method-assign]
        world.submit(an_experiment(maxTrialCount=3))
        world.ended()
        eventually(lambda: len(ends) == 3)

        assert sorted(ends) == sorted((trial.name, TrialState.SUCCEEDED) for trial in world.trials())


def test_a_log_that_is_away_when_a_trial_ends_is_told_later(
    log: MemoryObservationLog, far: FarLog, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_CLOSE_RETRY_SECONDS", 0.01)
    far.refuses_to_end = True
    with World(observations=log, trial_logs=far, observation_pool=pool) as world:
        world.submit(an_experiment(maxTrialCount=1))
        world.ended()

        eventually(lambda: [what for what, _ in far.calls].count("end") == 2)
        assert world.experiment("demo").status.trials_succeeded == 1


def test_a_deleted_trial_does_not_wait_forever_for_a_log_that_hangs(
    log: MemoryObservationLog, far: FarLog, pool: Executor
) -> None:
    settings = ControllerSettings(deletion_patience_seconds=0.2)
    with World(observations=log, trial_logs=far, observation_pool=pool, settings=settings) as world:
        world.submit(an_experiment(maxTrialCount=1))
        world.ended()
        (trial,) = world.trials()
        eventually(lambda: ("end", trial.name) in far.calls)
        far.gate.clear()
        world.store.delete(TRIAL, Key(NAMESPACE, trial.name))

        eventually(lambda: "MetricsNotDeleted" in world.events.reasons())
        assert far.calls[-1] == ("delete", trial.name)


def test_a_log_that_refused_reports_is_the_reason_of_a_trial_without_metrics(
    log: MemoryObservationLog, far: FarLog, pool: Executor, golden: Golden
) -> None:
    far.refusal = "a token is required to report"
    with World(
        script=lambda _trial: JobEnd(readings=()), observations=log, trial_logs=far, observation_pool=pool
    ) as world:
        world.submit(an_experiment(maxTrialCount=1, maxFailedTrialCount=0))
        eventually(lambda: any(trial.status.completion_time for trial in world.trials()))
        condition = world.trials()[0].status.conditions[-1]

        assert condition.type == "MetricsUnavailable"
        golden(condition.message)
