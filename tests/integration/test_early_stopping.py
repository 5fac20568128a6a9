"""Early stopping on one machine: real services, real programs, a real database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from katib.service.tuning.service import TuningService
from katib.service.tuning.states import last_condition, objective_value, state_of
from katib.wire.rpc._generated import api_pb2 as pb
from tests.integration.test_engine import NS, count, ended, submit
from tests.support.engines import working
from tests.support.experiments import an_experiment
from tests.support.services import ScriptedEarlyStopping, serving
from tests.support.waiting import eventually

BOUND = {"algorithmName": "threshold", "algorithmSettings": [{"name": "bound", "value": "0.5"}]}

# The first program ends well; every other one reports a hopeless value and would continue for a minute.
RACE = "mkdir {mark} 2>/dev/null && echo loss=0.1 && exit; echo loss=0.9; {then}; echo done"


def race(directory: Path, then: str = "sleep 60", **spec: Any) -> dict[str, Any]:
    command = RACE.format(mark=directory / "first", then=then) + " # ${trialParameters.learningRate}"
    return an_experiment(command=command, earlyStopping=BOUND, **{"maxTrialCount": 4, "parallelTrialCount": 2, **spec})


def with_grace(raw: dict[str, Any], seconds: int = 1) -> dict[str, Any]:
    """Return the experiment whose programs have so long to end."""
    pod = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]
    pod["spec"]["terminationGracePeriodSeconds"] = seconds
    return raw


def test_hopeless_programs_are_stopped_while_they_run_and_make_room(service: TuningService, tmp_path: Path) -> None:
    submit(service, race(tmp_path))
    experiment = ended(service)
    trials = service.trials(NS, "demo").items
    stopped = [trial for trial in trials if state_of(trial) == "EarlyStopped"]

    assert experiment.status.trials_succeeded == 1
    assert len(stopped) == experiment.status.trials_early_stopped == 3
    for trial in stopped:
        condition = last_condition(trial)
        assert condition.reason == "TrialEarlyStopped"
        assert "loss 0.9 at reading 1" in condition.message
        assert objective_value(trial) == "0.9"
        assert not trial.spec.early_stopping_rules
        assert b"".join(service.logs(NS, trial.name)) == b"loss=0.9\n"
    assert " 3 of 4 trials" in service.why(NS, "demo").savings
    assert "worse than 0.5" in service.why(NS, stopped[0].name).verdict


def test_a_program_that_ignores_the_polite_request_is_ended_by_force(service: TuningService, tmp_path: Path) -> None:
    deaf = "trap '' TERM; touch {mark}; while :; do sleep 0.05; done".format(mark=tmp_path / "deaf")
    submit(service, with_grace(race(tmp_path, deaf, maxTrialCount=2)))
    ended(service)
    (stopped,) = service.trials(NS, "demo", states=("EarlyStopped",)).items

    assert (tmp_path / "deaf").exists()
    assert objective_value(stopped) == "0.9"


def test_readings_of_the_grace_period_are_kept(service: TuningService, tmp_path: Path) -> None:
    says_more = "trap 'echo loss=0.7; exit' TERM; while :; do sleep 0.05; done"
    submit(service, race(tmp_path, says_more, maxTrialCount=2))
    ended(service)
    (stopped,) = service.trials(NS, "demo", states=("EarlyStopped",)).items

    assert [reading.value for reading in service.metrics(NS, stopped.name)] == ["0.9", "0.7"]
    assert objective_value(stopped) == "0.7"


PUSHES_ON = "import katib, time; katib.report(loss=0.9); time.sleep(60)"


def a_pusher(**spec: Any) -> dict[str, Any]:
    return an_experiment(
        command=f'{sys.executable} -c "{PUSHES_ON}" # ${{trialParameters.learningRate}}',
        metricsCollectorSpec={"collector": {"kind": "Push"}},
        **{"earlyStopping": BOUND, "maxTrialCount": 1, "parallelTrialCount": 1, **spec},
    )


def test_a_trial_that_pushes_is_stopped_as_well(service: TuningService) -> None:
    submit(service, a_pusher())
    ended(service)
    (trial,) = service.trials(NS, "demo").items

    assert state_of(trial) == "EarlyStopped"
    assert objective_value(trial) == "0.9"


PUSHED_BESIDE = (
    "import os, signal, threading; from datetime import UTC, datetime; "
    "from katib.model.metrics import MetricLog; from katib.wire.rpc.credentials import DbManagerCredentials; "
    "from katib.wire.rpc.db_manager_client import DbManagerClient; "
    "ended = threading.Event(); signal.signal(signal.SIGTERM, lambda *_: ended.set()); "
    "log = DbManagerClient(os.environ['KATIB_DB_MANAGER_ADDRESS'], credentials=DbManagerCredentials.of(os.environ)); "
    "log.report(os.environ['KATIB_TRIAL_NAME'], [MetricLog(datetime.now(UTC), 'loss', '0.9')]); "
    "ended.wait(60)"
)


def test_what_a_collector_of_the_users_pushes_is_judged_too(service: TuningService) -> None:
    custom = {"name": "mine", "image": "mine:1", "command": [sys.executable, "-c", PUSHED_BESIDE]}
    raw = an_experiment(
        command="sleep 60 # ${trialParameters.learningRate}",
        metricsCollectorSpec={"collector": {"kind": "Custom", "customCollector": custom}},
        earlyStopping=BOUND,
        maxTrialCount=1,
        parallelTrialCount=1,
    )
    submit(service, raw)
    ended(service)
    (trial,) = service.trials(NS, "demo").items

    assert state_of(trial) == "EarlyStopped"
    assert objective_value(trial) == "0.9"
    assert "worse than 0.5" in last_condition(trial).message


def test_a_service_that_gives_rules_only_stops_what_is_pushed_as_well(tmp_path: Path) -> None:
    rule = pb.EarlyStoppingRule(name="loss", value="0.5", comparison=pb.GREATER, start_step=1)
    service_of_katib = ScriptedEarlyStopping(lambda *_: pb.GetEarlyStoppingRulesReply(early_stopping_rules=[rule]))
    config = tmp_path / "services.yaml"
    with serving(None, service_of_katib) as address:
        entry = {"name": "katibs", "address": address, "earlyStopping": True}
        config.write_text(yaml.safe_dump({"algorithms": [entry]}))
        with working(tmp_path / "data", config) as service:
            submit(service, a_pusher(earlyStopping={"algorithmName": "katibs"}))
            ended(service)
            (trial,) = service.trials(NS, "demo").items

    assert [rule.value for rule in trial.spec.early_stopping_rules] == ["0.5"]
    assert state_of(trial) == "EarlyStopped"
    assert "is 0.9" in last_condition(trial).message


def test_an_engine_that_ends_while_trials_are_stopped_stops_nothing_twice(tmp_path: Path) -> None:
    raw = with_grace(race(tmp_path, "trap '' TERM; while :; do sleep 0.05; done", maxTrialCount=3))
    with working(tmp_path / "data") as service:
        submit(service, raw)
        eventually(lambda: stopping(service))
        before = stopping(service)
    with working(tmp_path / "data") as service:
        ended(service)
        trials = {trial.name: trial for trial in service.trials(NS, "demo").items}

        assert len(trials) == 3
        assert count(service, "Succeeded") == 1
        for name in before:
            assert state_of(trials[name]) == "EarlyStopped"
            assert [reading.value for reading in service.metrics(NS, name)] == ["0.9"]


def stopping(service: TuningService) -> set[str]:
    running = service.trials(NS, "demo", states=("Running",)).items
    return {trial.name for trial in running if last_condition(trial).reason == "TrialStopping"}
