from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from katib.doors.cli.run.live import LiveTable
from katib.model.metrics import PROGRESS, MetricLog
from katib.model.types import Experiment, Trial
from katib.service.explaining.lines import header, moment_line
from katib.service.explaining.progress import (
    BestChanged,
    IdenticalFailures,
    RunProgress,
    TrialEnded,
    TrialStarted,
    with_remedy,
)
from katib.service.tuning.service import Change, Diagnosis
from tests.support.golden import Golden
from tests.support.tuning import (
    START,
    MemoryTuningService,
    condition,
    make_experiment,
    make_pareto_experiment,
    make_trial,
    patched,
    stamp,
)

RUNNING = condition("Running")


def test_one_trial_is_one() -> None:
    assert "loss, 1 trial, " in header(patched(make_experiment("demo", RUNNING), spec={"maxTrialCount": 1}))


def see(progress: RunProgress, obj: Experiment | Trial, type_: str = "MODIFIED") -> list[str]:
    return [moment_line(moment, progress) for moment in progress.observe(Change(type_, obj.encode()))]


@pytest.fixture
def progress() -> RunProgress:
    return RunProgress(make_experiment(), START)


def test_a_trial_is_told_once_when_it_starts_and_once_when_it_ends(progress: RunProgress, golden: Golden) -> None:
    done = make_trial("t", RUNNING, condition("Succeeded"), loss="0.2", x="1")

    assert see(progress, make_trial("t", condition("Created"), x="1")) == []
    assert see(progress, make_trial("t", RUNNING, x="1")) == ["t started: x=1"]
    assert see(progress, make_trial("t", RUNNING, x="1")) == []
    golden(see(progress, done))
    assert see(progress, done) == []


@pytest.mark.parametrize("state", ["Failed", "EarlyStopped", "MetricsUnavailable", "Killed"])
def test_a_trial_that_did_not_succeed_says_why(progress: RunProgress, state: str, golden: Golden) -> None:
    golden(see(progress, make_trial("t", condition(state, message="exit code 1"), x="1")))


@pytest.mark.parametrize(
    ("reason", "status", "message"),
    [
        pytest.param("TrialWaiting", "True", "Trial is running: image nosuch:1 cannot be pulled", id="no image"),
        pytest.param("JobKindNotInstalled", "False", "Trial cannot run: there is no such kind", id="no kind"),
    ],
)
def test_what_a_trial_waits_for_is_told_once(progress: RunProgress, reason: str, status: str, message: str) -> None:
    running = {**condition("Running", reason, message), "status": status}
    trial = make_trial("demo-1", condition("Created"), running)
    told = [line for _ in range(2) for line in see(progress, trial)]

    assert [line for line in told if "has to wait" in line] == [f"demo-1 has to wait: {message.partition(': ')[2]}"]


def test_a_wait_of_the_experiment_is_told_once(progress: RunProgress, golden: Golden) -> None:
    words = "Experiment waits for its trial template: ConfigMap team/x is not found; create it"
    waiting = make_experiment("demo", condition("Running", "TrialTemplateMissing", words))
    told = [see(progress, experiment) for experiment in (waiting, waiting, make_experiment("demo"), waiting)]

    line = "demo waits for its trial template: ConfigMap team/x is not found; create it"
    assert told == [[line], [], [], [line]]

    progress = RunProgress(make_experiment("demo"), START)
    words = 'Experiment waits for its algorithm: suggestion service "tpe" was killed by SIGKILL'
    waiting = make_experiment("demo", condition("Running", "SuggestionServiceUnavailable", words))

    told = [line for _ in range(3) for line in see(progress, waiting)]

    golden(told)


def test_trials_that_ended_before_this_run_are_not_told_and_no_part_of_the_estimate() -> None:
    progress = RunProgress(make_experiment(), START + timedelta(hours=1))

    assert see(progress, make_trial("old", condition("Succeeded"), loss="1"), "ADDED") == []
    assert progress.done == 1
    assert progress.seconds_left(10) is None

    progress = RunProgress(make_experiment(), START + timedelta(hours=1))
    see(progress, make_trial("old", condition("Succeeded"), loss="1"), "ADDED")
    see(progress, make_trial("new", condition("Succeeded"), loss="1", index=400))

    assert progress.seconds_left(10) == 100


def test_a_better_trial_is_told_when_the_experiment_says_so(progress: RunProgress, golden: Golden) -> None:
    metrics = [{"name": "loss", "min": "0.1", "max": "0.4", "latest": "0.3"}]
    best = {"bestTrialName": "t", "observation": {"metrics": metrics}}

    golden(see(progress, make_experiment("demo", RUNNING, currentOptimalTrial=best)))
    assert see(progress, make_experiment("demo", RUNNING, currentOptimalTrial=best)) == []


def test_a_better_trial_is_told_after_its_own_start_and_end(progress: RunProgress, golden: Golden) -> None:
    metrics = [{"name": "loss", "min": "0.1", "max": "0.4", "latest": "0.3"}]
    best = {"bestTrialName": "t", "observation": {"metrics": metrics}}

    assert see(progress, make_experiment("demo", RUNNING, currentOptimalTrial=best, trialsSucceeded=1)) == []
    assert see(progress, make_trial("t", RUNNING, x="1")) == ["t started: x=1"]
    golden(see(progress, make_trial("t", condition("Succeeded"), loss="0.1", x="1")))


def test_a_run_is_finished_only_when_nothing_runs_any_more_or_it_was_deleted(progress: RunProgress) -> None:
    see(progress, make_experiment("demo", condition("Succeeded"), trialsRunning=1))
    assert progress.completed
    assert not progress.finished

    see(progress, make_experiment("demo", condition("Succeeded")))
    assert progress.finished

    see(progress, make_experiment(), "DELETED")

    assert progress.finished


def test_an_end_that_a_larger_budget_has_overtaken_does_not_finish_the_run(progress: RunProgress) -> None:
    ended = patched(
        make_experiment("demo", condition("Succeeded", "ExperimentMaxTrialsReached"), trials=2),
        spec={"maxTrialCount": 3, "resumePolicy": "FromVolume"},
    )
    see(progress, ended, "ADDED")
    assert not progress.finished

    see(progress, patched(ended, status={"trials": 3}))
    assert progress.finished


def test_trials_that_the_experiment_counts_but_nobody_saw_are_still_to_come(progress: RunProgress) -> None:
    see(progress, make_experiment("demo", condition("Succeeded"), trialsSucceeded=1))
    assert not progress.all_reported

    see(progress, make_trial("t", condition("Succeeded"), loss="1"))
    assert progress.all_reported


def test_moments_carry_what_they_are_about(progress: RunProgress) -> None:
    trial = make_trial("t", RUNNING)

    assert list(progress.observe(Change("ADDED", trial.encode()))) == [TrialStarted(trial)]
    assert TrialEnded(trial, 1) != BestChanged("t", "1")


def test_the_table_shows_what_programs_say_is_done(service: MemoryTuningService, progress: RunProgress) -> None:
    see(progress, make_trial("demo-0", condition("Running")))
    service.put(make_trial("demo-0", condition("Running")))
    console = Console(file=StringIO(), width=120)
    for shown, reading in (("demo-0", MetricLog(START, "loss", "0.5")), ("45 %", MetricLog(START, PROGRESS, "45"))):
        service.store_readings("demo-0", reading)
        table = LiveTable(progress, service, console)
        table.tick()
        with console.capture() as drawn:
            console.print(table._draw())
        assert shown in drawn.get()
        assert ("done" in drawn.get()) == (reading.name == PROGRESS)


def failed(name: str, cause: str, *, index: int = 0) -> Trial:
    return make_trial(name, condition("Failed", message=f"Trial has failed: {cause}"), index=index)


def alike(progress: RunProgress, *trials: Trial) -> list[IdenticalFailures]:
    moments = [moment for trial in trials for moment in progress.observe(Change("MODIFIED", trial.encode()))]
    return [moment for moment in moments if isinstance(moment, IdenticalFailures)]


def test_first_trials_that_fail_the_same_way_are_told_once(progress: RunProgress) -> None:
    told = alike(progress, *(failed(name, f"KeyError: <f at 0x7{name}> (exit code 1)") for name in "abc"))

    assert [(moment.count, moment.cause) for moment in told] == [(2, "KeyError: <f at 0x7b> (exit code 1)")]


@pytest.mark.parametrize(
    "trials",
    [
        pytest.param([failed("a", "KeyError: 3"), failed("b", "KeyError: 4")], id="different causes"),
        pytest.param([make_trial("a", condition("Succeeded"), loss="1"), *map(failed, "bc", "xx")], id="one succeeded"),
        pytest.param([failed("a", "KeyError: 3")], id="only one so far"),
    ],
)
def test_failures_that_may_be_accidents_are_not_told_together(progress: RunProgress, trials: list[Trial]) -> None:
    assert alike(progress, *trials) == []


def test_failures_are_told_together_when_they_are_alike_or_the_only_one(progress: RunProgress) -> None:
    late = [patched(failed(name, "x"), status={"completionTime": stamp(600)}) for name in "ab"]

    assert alike(progress, *late) == []

    experiment = patched(make_experiment(), spec={"maxFailedTrialCount": 1})

    assert [moment.count for moment in alike(RunProgress(experiment, START), failed("a", "x"))] == [1]


def test_what_fails_every_trial_is_told_with_its_remedy(service: MemoryTuningService, golden: Golden) -> None:
    trial = failed("a", "No module named 'x'")
    service.put(trial)
    service.explain("default", Diagnosis("Trial", "a", "Failed", "a failed.", remedies=("Install it.", "Or not.")))
    moment = with_remedy(IdenticalFailures(trial, 2, "No module named 'x'"), service)

    golden(moment_line(moment, RunProgress(make_experiment(), START)))


# --- several objectives and constraints -------------------------------------------------------------------------------


def test_of_several_objectives_best_so_far_is_a_hypervolume_that_has_grown() -> None:
    progress, first = RunProgress(make_pareto_experiment(), START), make_pareto_experiment()
    line = "best so far: 3 trials that no other beats, hypervolume"

    def changed(volume: float, *, newcomer: bool) -> Experiment:
        made = make_pareto_experiment()
        first, second = made.encode()["status"]["paretoSet"]["trials"]
        trials = [first, {**second, "bestTrialName": f"t{volume:g}"} if newcomer else second]
        return patched(made, status={"paretoSet": {"hypervolume": volume, "trials": trials}})

    assert see(progress, first) == [f"{line} 12.5"]
    assert see(progress, first) == []
    assert see(progress, changed(13, newcomer=False)) == []  # the reference point moved
    assert see(progress, changed(12, newcomer=True)) == []
    assert see(progress, changed(14, newcomer=True)) == [f"{line} 14"]


def test_a_trial_outside_the_constraints_is_told_so(golden: Golden) -> None:
    experiment = make_pareto_experiment()
    trial = patched(
        make_trial("t", RUNNING, condition("Succeeded"), x="1"),
        spec={"objective": experiment.encode()["spec"]["objective"]},
    )
    values = {"accuracy": "0.9", "seconds": "3", "memory": "9"}
    trial = patched(trial, status={"observation": {"metrics": [{"name": n, "latest": v} for n, v in values.items()]}})

    (line,) = see(RunProgress(experiment, START), trial)

    golden(line)
