"""Time that counts is time that ran."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from katib.engine.controllers.run_times import RunTimes
from katib.model.types import OwnerReference, Trial
from tests.support.clock import VirtualClock
from tests.support.planning import experiment, trial

EXPERIMENT = experiment()


def of_demo(name: str, *conditions: str, **status: object) -> Trial:
    """Return a trial of EXPERIMENT."""
    owner = OwnerReference(api_version="", kind="Experiment", name="demo", uid=EXPERIMENT.metadata.uid, controller=True)
    made = trial(name, *conditions)
    metadata = structs.replace(made.metadata, owner_references=(owner,))
    return structs.replace(made, metadata=metadata, status=structs.replace(made.status, **status))


def test_only_time_that_passes_while_a_trial_runs_counts() -> None:
    clock = VirtualClock()
    times, made = RunTimes(clock), of_demo("a")

    assert times.see(made, runs=False) == 0
    clock.advance(100)
    assert times.see(made, runs=True) == 0
    clock.advance(6)
    clock.step(86_400)  # the clock is set, or the machine sleeps
    assert (times.of_trial(made), times.see(made, runs=False)) == (6, 6)
    clock.advance(3600)
    assert times.see(made, runs=True) == 6
    clock.advance(4)
    assert times.see(made, runs=False, late_seconds=3) == 7
    assert times.of_experiment(EXPERIMENT) == 7


def test_an_experiment_runs_while_any_of_its_trials_does() -> None:
    clock = VirtualClock()
    times, first, second = RunTimes(clock), of_demo("a"), of_demo("b")

    times.see(first, runs=True)
    clock.advance(2)
    times.see(second, runs=True)
    clock.advance(3)
    times.see(first, runs=False)
    clock.advance(5)
    times.forget(second)
    clock.advance(9)

    assert times.of_experiment(EXPERIMENT) == 10
    assert times.running() == []


@pytest.mark.parametrize(("seen", "seconds"), [(None, 0.25), (False, 0.0), (True, 0.25)])
def test_a_job_that_runs_at_once_has_been_running_since_it_was_created(seen: bool | None, seconds: float) -> None:
    clock = VirtualClock()
    times, made = RunTimes(clock), of_demo("a")

    times.job_created(made)
    clock.advance(0.25)
    times.see(made, runs=seen)

    assert times.ended(made) == seconds


def test_the_next_engine_goes_on_with_what_the_last_one_stored_and_not_with_the_night_between() -> None:
    clock = VirtualClock()
    made = of_demo("a", "Running", start_time=clock.now())
    before = RunTimes(clock, {})
    before.see(made, runs=True)
    before.of_experiment(EXPERIMENT)
    clock.advance(6)
    stored = before.totals()
    clock.advance(8 * 3600)
    after = RunTimes(clock, stored)
    after.keep({made.metadata.uid, EXPERIMENT.metadata.uid, "another"})

    assert (after.of_trial(made), after.of_experiment(EXPERIMENT)) == (6, 6)
    after.add(made, 60)  # its program ran on for a minute
    assert (after.of_trial(made), after.of_experiment(EXPERIMENT)) == (66, 66)


def test_a_cluster_goes_on_from_the_start_of_what_runs_and_from_the_statuses() -> None:
    clock = VirtualClock()
    times = RunTimes(clock)
    running = of_demo("a", "Running", start_time=clock.now() - timedelta(seconds=90))
    waiting = of_demo("b", start_time=clock.now() - timedelta(seconds=90), run_seconds=20.0)
    used = structs.replace(EXPERIMENT.status, run_seconds=1800.0)

    assert (times.of_trial(running), times.of_trial(waiting)) == (90, 20)
    assert times.of_experiment(structs.replace(EXPERIMENT, status=used)) == 1800


def test_a_trial_that_ended_before_it_was_measured_has_no_time_of_ours() -> None:
    times = RunTimes(VirtualClock())

    assert times.see(of_demo("a", "Succeeded"), runs=False) is None
    assert times.totals() == {}
