"""What goes while it works: an experiment whose processes take their time, a job, a specification."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.objects import Key
from katib.errors import AlreadyExistsError
from katib.model.types import Experiment
from katib.places.machine.engine import Engine
from katib.places.machine.jobs.batch.job import JOB
from katib.service.tuning.service import SubmittedExperiment
from katib.service.tuning.states import is_completed, state_of
from tests.support.experiments import an_experiment
from tests.support.waiting import eventually

NS = "default"
LAST_WORDS = (
    "trap 'sleep 0.5; echo loss=0.0001; touch {mark}; exit 0' TERM; "
    "echo ${{trialParameters.learningRate}} loss=5; while true; do sleep 0.02; done"
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "data") as engine:
        engine.start()
        yield engine


def submit(engine: Engine, **changes: Any) -> SubmittedExperiment:
    return engine.service.submit(json.dumps(an_experiment(**changes)), source="demo.yaml")


def names(engine: Engine) -> list[str]:
    return [trial.name for trial in engine.service.trials(NS, "demo").items]


def values(engine: Engine, trial: str) -> list[str]:
    return [reading.value for reading in engine.service.metrics(NS, trial)]


def has_ended(engine: Engine) -> bool:
    return is_completed(engine.service.get(Experiment, NS, "demo"))


def test_deleting_waits_for_the_processes_and_leaves_the_next_of_that_name_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    mark = tmp_path / "last-words-spoken"
    submit(engine, command=LAST_WORDS.format(mark=mark), maxTrialCount=1, parallelTrialCount=1)
    eventually(lambda: any(values(engine, name) for name in names(engine)))
    old = names(engine)

    engine.service.delete(NS, "demo")

    assert mark.exists()
    assert not (tmp_path / "data" / "trials" / NS / old[0]).exists()
    submit(engine, command="echo ${trialParameters.learningRate} loss=7", maxTrialCount=1, parallelTrialCount=1)
    eventually(lambda: has_ended(engine))
    assert names(engine) == old
    assert values(engine, old[0]) == ["7"]


def test_one_who_submits_while_another_still_deletes_gets_a_run_of_his_own(engine: Engine, tmp_path: Path) -> None:
    mark = tmp_path / "last-words-spoken"
    submit(engine, command=LAST_WORDS.format(mark=mark), maxTrialCount=1, parallelTrialCount=1)
    eventually(lambda: any(values(engine, name) for name in names(engine)))
    trial = names(engine)[0]

    deleting = threading.Thread(target=engine.service.delete, args=(NS, "demo"))
    deleting.start()
    eventually(lambda: _is_being_deleted(engine, trial))
    again = {"command": "echo ${trialParameters.learningRate} loss=7", "maxTrialCount": 1, "parallelTrialCount": 1}
    eventually(lambda: _is_taken(engine, **again))
    deleting.join(60)
    eventually(lambda: has_ended(engine))

    assert not deleting.is_alive()
    assert [state_of(t) for t in engine.service.trials(NS, "demo").items] == ["Succeeded"]
    assert values(engine, names(engine)[0]) == ["7"]
    assert (tmp_path / "data" / "trials" / NS / names(engine)[0]).exists()


def _is_taken(engine: Engine, **changes: Any) -> bool:
    with suppress(AlreadyExistsError):
        return submit(engine, **changes).outcome == "created"
    return False


def _is_being_deleted(engine: Engine, trial: str) -> bool:
    found = [t for t in engine._parts.data.store.list(TRIAL).items if t["metadata"]["name"] == trial]
    return not found or "deletionTimestamp" in found[0]["metadata"]


def test_a_job_deleted_by_hand_runs_again_without_the_readings_of_its_first_run(engine: Engine, tmp_path: Path) -> None:
    mark = tmp_path / "second"
    command = f"echo ${{trialParameters.learningRate}} loss=5; test -e {mark} || sleep 60; echo loss=4"
    submit(engine, command=command, maxTrialCount=1, parallelTrialCount=1)
    eventually(lambda: any(values(engine, name) for name in names(engine)))
    trial = names(engine)[0]

    mark.touch()
    engine._parts.data.store.delete(JOB, Key(NS, trial))
    eventually(lambda: has_ended(engine))

    assert values(engine, trial) == ["5", "4"]


def test_an_experiment_can_be_updated_while_its_status_changes_all_the_time(engine: Engine) -> None:
    command = "sleep 0.02; echo ${trialParameters.learningRate} loss=7"
    submit(engine, command=command, maxTrialCount=60, parallelTrialCount=2)
    outcomes = {
        submit(engine, command=command, maxTrialCount=60, parallelTrialCount=1 + turn % 3).outcome for turn in range(60)
    }
    eventually(lambda: has_ended(engine))

    assert outcomes == {"updated"}
    assert engine.service.trials(NS, "demo").total == 60
