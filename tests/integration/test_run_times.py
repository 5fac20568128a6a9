"""Budgets and durations count the time in which programs of trials ran: with real engines, killed and started again."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from katib.engine.controllers.kinds import EXPERIMENT, POD, TRIAL
from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.clock import SystemClock
from katib.engine.stores.sql import SqlStore
from katib.model.types import Experiment, Trial, format_time
from katib.places.machine.data import STATUS_KINDS
from katib.places.machine.layout import Layout
from katib.service.tuning.reading import seconds_run
from katib.service.tuning.trial_pages import TRIAL_FACTS
from tests.support.cli import KATIB, environment, katib_json
from tests.support.processes import Launch
from tests.support.scripts import program, run, write
from tests.support.waiting import eventually

WAITING = """
import os, pathlib, signal, sys, time

def stop(*_):
    time.sleep(float(os.environ.get("GRACE", "0")))
    sys.exit(1)

signal.signal(signal.SIGTERM, stop)
folder = pathlib.Path(os.environ.get("KATIB_CHECKPOINT_DIR", "."))
if not (folder / "first").exists():
    print("loss=0.5", flush=True)
    (folder / "first").touch()
while not os.path.exists("go"):
    time.sleep(0.05)
time.sleep(0.2)
print("loss=0.25", flush=True)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path, maxTrialCount=1)
    program(tmp_path, WAITING)
    return tmp_path


def stored(directory: Path) -> tuple[Experiment, list[Trial]]:
    """Return the experiment and its trials."""
    trials = katib_json("trials", "demo", cwd=directory)["items"]
    return Experiment.decode(katib_json("get", "experiment", "demo", cwd=directory)), list(map(Trial.decode, trials))


def noted(directory: Path) -> float:
    """Return the longest time that is noted beside the statuses."""
    try:
        return max(json.loads((directory / ".katib/run/run-times.json").read_text())["seconds"].values(), default=0.0)
    except FileNotFoundError:
        return 0.0


def let_a_night_pass(directory: Path) -> None:
    """Move what is stored of the past back by eight hours."""
    with open_database(directory / ".katib/katib.db") as database:
        store = SqlStore(database, STATUS_KINDS, uid_kinds=(POD,), facts=TRIAL_FACTS, clock=SystemClock())
        for kind, model in ((EXPERIMENT, Experiment), (TRIAL, Trial)):
            for obj in store.list(kind, "default").items:
                start = model.decode(obj).status.start_time
                assert start is not None
                earlier = format_time(start - timedelta(hours=8))
                store.update_status({**obj, "status": {**obj["status"], "startTime": earlier}})


def test_the_night_after_a_kill_is_no_running(directory: Path, launch: Launch) -> None:
    """A time of a second or two is lost at most; what ran before counts."""
    engine = launch([*KATIB, "run", "demo.yaml", "--budget", "1h"], cwd=directory, env=environment())
    eventually(lambda: noted(directory) > 0.5, "a note of how long it has run")
    engine.kill()
    engine.wait()
    eventually(lambda: not Layout(directory / ".katib").has_programs(), "the end of its programs")
    before = noted(directory)
    let_a_night_pass(directory)
    experiment, (trial,) = stored(directory)
    resting = [seconds_run(obj, SystemClock().now()) for obj in (experiment, trial)]
    (directory / "go").touch()
    done = run(directory, "--budget", "1h")

    assert resting == [pytest.approx(before, abs=1), pytest.approx(before, abs=1)]
    assert done.returncode == 0, done.stdout + done.stderr
    experiment, (trial,) = stored(directory)
    now = SystemClock().now()
    ran = seconds_run(trial, now)
    assert ran is not None
    assert before <= ran < 3600
    assert before <= (seconds_run(experiment, now) or 0) < 3600
    assert trial.status.start_time is not None
    assert trial.status.completion_time is not None
    assert trial.status.completion_time - trial.status.start_time < timedelta(hours=1)
    assert before - 0.01 <= 3600 * float(experiment.status.budget_usage[0].used) < 3600


@pytest.mark.slow
def test_readings_of_a_trial_that_the_budget_ends_count_and_a_larger_one_goes_on_from_its_checkpoint(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRACE", "1")
    spent = run(directory, "--checkpoint", "--budget", "6s")
    experiment, (cut,) = stored(directory)

    assert spent.returncode == 0, spent.stdout + spent.stderr
    assert (cut.status.conditions[-1].type, cut.status.conditions[-1].reason) == ("EarlyStopped", "TrialBudgetSpent")
    assert experiment.status.current_optimal_trial.best_trial_name == cut.name
    assert (cut.status.run_seconds or 0) >= 7  # the grace period is spent, too
    assert float(experiment.status.budget_usage[0].used) * 3600 >= 7

    (directory / "go").touch()
    done = run(directory, "--checkpoint", "--budget", "1h")
    experiment, (over,) = stored(directory)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (over.name, over.status.conditions[-1].type) == (cut.name, "Succeeded")
    assert (over.status.run_seconds or 0) > (cut.status.run_seconds or 0)
    assert [reading["value"] for reading in katib_json("metrics", cut.name, cwd=directory)] == ["0.5", "0.25"]


def test_what_trials_have_used_that_run_again_stays_used(directory: Path) -> None:
    program(directory, "import sys, time\ntime.sleep(0.5)\nsys.exit(1)\n")
    options = ("--budget", "$5000", "--price", "trial=3600")  # a dollar for a second
    run(directory, *options)
    before = float(stored(directory)[0].status.budget_usage[0].used)
    program(directory, "print('loss=0.5')\n")
    done = run(directory, *options, "--retry-failed")
    after = float(stored(directory)[0].status.budget_usage[0].used)

    assert done.returncode == 0, done.stdout + done.stderr
    assert before >= 0.5
    assert after > before
