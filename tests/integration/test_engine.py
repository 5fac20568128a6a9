"""The whole engine in this process, on a directory of its own: real database, services and trial processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.engine.controllers.settings import ControllerSettings
from katib.errors import InvalidError, NotFoundError, TerminalError
from katib.model.types import Experiment
from katib.places.machine import open_engine, open_offline
from katib.places.machine.engine import Engine
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import Change, SubmittedExperiment, TuningService
from katib.service.tuning.states import is_completed, last_condition, objective_value, state_of
from tests.support.engines import working
from tests.support.experiments import a_job, a_template, an_experiment
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.waiting import eventually

NS = "default"


def submit(service: TuningService, *documents: dict[str, Any], source: str = "demo.yaml") -> SubmittedExperiment:
    return service.submit(yaml.safe_dump_all(documents), source=source)


def ended(service: TuningService, name: str = "demo", within_seconds: float = 30) -> Experiment:
    """Return the experiment once it is over."""
    for change in service.changes(NS, name, timeout_seconds=within_seconds):
        if isinstance(change.object, Experiment) and is_completed(change.object):
            return change.object
    raise AssertionError(service.why(NS, name))


def printed(service: TuningService, name: str = "demo") -> list[str]:
    return [b"".join(service.logs(NS, t.name)).decode() for t in service.trials(NS, name).items]


def count(service: TuningService, state: str, name: str = "demo") -> int:
    return service.trials(NS, name, states=(state,)).total


def test_an_experiment_runs_and_leaves_everything_behind(service: TuningService) -> None:
    assert submit(service, an_experiment(maxTrialCount=5)).outcome == "created"
    experiment = ended(service)
    trials = service.trials(NS, "demo").items
    best = service.best(NS, "demo")
    losses = [float(objective_value(trial) or "nan") for trial in trials]

    assert last_condition(experiment).reason == "ExperimentMaxTrialsReached"
    assert [state_of(trial) for trial in trials] == ["Succeeded"] * 5
    assert losses == [float(assignments_of(trial)["lr"]) for trial in trials]
    assert best is not None
    assert float(objective_value(best) or "nan") == min(losses)
    assert printed(service) == [f"loss={assignments_of(trial)['lr']}\n" for trial in trials]
    assert "5 trials" in service.why(NS, "demo").verdict


@pytest.mark.slow  # the pause of the kubelet before another try
@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_the_value_of_a_trial_is_that_of_the_try_that_ended_it(
    restart: str, service: TuningService, tmp_path: Path
) -> None:
    script = f"[ -e {tmp_path}/seen ] && exec echo loss=0.5; touch {tmp_path}/seen; echo loss=0.0001; exit 3"
    job = a_job(f": ${{trialParameters.learningRate}}; {script}", backoffLimit=2)
    job["spec"]["template"]["spec"]["restartPolicy"] = restart
    submit(
        service, an_experiment(trialTemplate={**a_template(), "trialSpec": job}, maxTrialCount=1, parallelTrialCount=1)
    )
    ended(service, within_seconds=60)
    best = service.best(NS, "demo")

    assert best is not None
    assert objective_value(best) == "0.5"
    assert [reading.value for reading in service.metrics(NS, f"{best.name}.1")] == ["0.0001"]


def test_stopping_in_the_middle_and_starting_again_finishes_the_budget(tmp_path: Path) -> None:
    mark = tmp_path / "go"
    command = f"test -e {mark} || sleep 60; echo loss=${{trialParameters.learningRate}}"
    with working(tmp_path / "data") as service:
        submit(service, an_experiment(command=command, maxTrialCount=4))
        eventually(lambda: count(service, "Running") == 2)
        first = [trial.name for trial in service.trials(NS, "demo").items]
    mark.touch()
    with working(tmp_path / "data") as service:
        ended(service)
        trials = service.trials(NS, "demo").items
        reasons = {event.reason for event in service.events("Experiment", NS, "demo")}

        assert [trial.name for trial in trials][:2] == first
        assert [state_of(trial) for trial in trials] == ["Succeeded"] * 4
        assert all(len(service.metrics(NS, trial.name)) == 1 for trial in trials)
        assert "Resumed" in reasons


def test_an_engine_may_be_stopped_before_it_was_started_and_twice(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        engine.stop()
        engine.start()
        engine.start()
        engine.stop()
        engine.stop()


def test_two_engines_never_work_on_one_directory(tmp_path: Path, golden: Golden) -> None:
    with working(tmp_path) as service:
        with golden.raises(TerminalError), open_engine(tmp_path):
            pass
        submit(service, an_experiment())
        assert last_condition(ended(service)).type == "Succeeded"
    with open_engine(tmp_path):
        pass


def test_a_configuration_that_is_wrong_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("algorithms: [{name: mine}]")

    with pytest.raises(InvalidError, match="neither command nor address"):
        Engine(tmp_path / "data", config)
    assert not (tmp_path / "data").exists()


def test_changes_can_be_followed_again_from_any_cursor(service: TuningService) -> None:
    submit(service, an_experiment(maxTrialCount=3))
    ended(service)
    changes = list(service.changes(NS, "demo", timeout_seconds=0.2))
    cursor = next(change.cursor for change in reversed(changes) if change.cursor)
    submit(service, an_experiment(name="other", maxTrialCount=1, parallelTrialCount=1))
    ended(service, "other")

    later = list(service.changes(NS, "demo", timeout_seconds=0.2, since=cursor))
    assert [change for change in later if change.type != "BOOKMARK"] == []
    found = service.changes(NS, "demo", timeout_seconds=120, since=cursor)
    seen: list[Change] = []
    reader = threading.Thread(target=lambda: seen.extend(found))
    reader.start()
    service.delete(NS, "demo")
    reader.join(60)

    assert (seen[-1].type, seen[-1].document["kind"]) == ("DELETED", "Experiment")
    assert {change.object.name for change in seen if change.type == "DELETED"} >= {"demo"}


def test_going_on_from_the_cursor_of_each_change_shows_all_later_ones(service: TuningService) -> None:
    submit(service, an_experiment(maxTrialCount=3, parallelTrialCount=1))
    changes = service.changes(NS, "demo", timeout_seconds=30)
    seen: list[Change] = []
    for change in changes:
        seen.append(change)
        if isinstance(change.object, Experiment) and is_completed(change.object):
            break
    final = _versions(seen)
    assert len([change for change in seen if change.cursor]) > 3
    for i, change in enumerate(seen):
        if change.cursor:
            known = seen[: i + 1]
            later = iter(service.changes(NS, "demo", timeout_seconds=180, since=change.cursor))
            while any(_versions(known).get(name, 0) < version for name, version in final.items()):
                known.append(next(later))  # there is none left when one was not shown


def _versions(changes: list[Change]) -> dict[str, int]:
    """Return the newest revision of each object."""
    return {change.object.name: int(change.document["metadata"]["resourceVersion"]) for change in changes}


def test_a_directory_is_read_without_an_engine_and_nothing_can_be_changed(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds no experiments"):
        open_offline(tmp_path)
    with working(tmp_path) as service:
        submit(service, an_experiment())
        ended(service)
        whole = (service.trials(NS, "demo"), service.best(NS, "demo"), printed(service))
    offline = open_offline(tmp_path)

    assert (offline.trials(NS, "demo"), offline.best(NS, "demo"), printed(offline)) == whole
    assert offline.events("Experiment", NS, "demo")
    assert offline.why(NS, "demo").verdict
    for change in (lambda: offline.delete(NS, "demo"), lambda: submit(offline, an_experiment(name="new"))):
        with pytest.raises(InvalidError, match="for reading only"):
            change()


def test_a_template_may_come_from_a_config_map_of_the_same_file(service: TuningService) -> None:
    reference = {"configMapName": "templates", "configMapNamespace": NS, "templatePath": "trial.yaml"}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "templates", "namespace": NS},
        "data": {"trial.yaml": yaml.safe_dump(a_job())},
    }
    conditions = {
        "successCondition": 'status.conditions.#(type=="Complete")#|#(status=="True")#',
        "failureCondition": 'status.conditions.#(type=="Failed")#|#(status=="True")#',
    }
    template = a_template(trialSpec=None, configMap=reference, **conditions)
    submit(service, config_map, an_experiment(trialTemplate=template, maxTrialCount=2))

    assert last_condition(ended(service)).reason == "ExperimentMaxTrialsReached"


def test_a_secret_of_the_file_reaches_the_environment_of_trials(service: TuningService) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"key": "s3cret"}}
    job = a_job("echo key=$KEY in $KATIB_TRIAL_NAME; echo loss=${trialParameters.learningRate}")
    source = {"secretKeyRef": {"name": "token", "key": "key"}}
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "KEY", "valueFrom": source}]
    submit(
        service, secret, an_experiment(trialTemplate=a_template(trialSpec=job), maxTrialCount=1, parallelTrialCount=1)
    )
    ended(service)
    trial = service.trials(NS, "demo").items[0].name

    assert f"key=s3cret in {trial}\n" in printed(service)[0]


def test_commands_start_in_the_directory_of_the_file(service: TuningService, tmp_path: Path) -> None:
    home = tmp_path / "mine"
    home.mkdir()
    (home / "value.txt").write_text("0.125")
    file = home / "demo.yaml"
    file.write_text(yaml.safe_dump(an_experiment(command="echo loss=$(cat value.txt)${trialParameters.learningRate}")))
    service.submit(file.read_text(), source=str(file))
    ended(service)

    assert all(text.startswith("loss=0.125") for text in printed(service))


def test_a_metrics_file_of_each_trial_is_its_own(tmp_path: Path) -> None:
    collector = {
        "collector": {"kind": "File"},
        "source": {"fileSystemPath": {"path": "/var/log/katib/metrics.log", "kind": "File"}},
    }
    command = "echo loss=${trialParameters.learningRate} >> /var/log/katib/metrics.log"
    with working(tmp_path) as service:
        submit(service, an_experiment(command=command, metricsCollectorSpec=collector))
        ended(service)
        trials = service.trials(NS, "demo").items

        assert [objective_value(trial) for trial in trials] == [assignments_of(trial)["lr"] for trial in trials]
    assert not Path("/var/log/katib/metrics.log").exists()


@pytest.mark.parametrize(
    ("command", "state", "words"),
    [
        pytest.param("echo oh no; exit 3", "Failed", "exit", id="a failing program"),
        pytest.param("echo Loss is 0.5", "MetricsUnavailable", "Loss is 0.5", id="a metric of another name"),
        pytest.param(":", "MetricsUnavailable", "no output", id="no output"),
    ],
)
def test_what_goes_wrong_is_explained_by_the_condition_and_by_why(
    command: str, state: str, words: str, service: TuningService
) -> None:
    job = a_job(f"{command}; : ${{trialParameters.learningRate}}", backoffLimit=0)
    if state == "Failed":
        job = a_job(f": ${{trialParameters.learningRate}}; {command}", backoffLimit=0)
    raw = an_experiment(trialTemplate=a_template(trialSpec=job), maxTrialCount=1, parallelTrialCount=1)
    submit(service, raw)
    ended(service)
    (trial,) = service.trials(NS, "demo").items
    diagnosis = service.why(NS, trial.name)

    assert state_of(trial) == state
    assert words in last_condition(trial).message
    assert state in str(diagnosis) or words in str(diagnosis)


REPORTS = "import katib; [katib.report(loss=1 / n, step=n) for n in (1, 2, 4)]"
CALLS_KUBEFLOW = "from kubeflow.katib import report_metrics; report_metrics({'loss': 0.25})"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        pytest.param("Push", REPORTS, id="by katib.report"),
        pytest.param("File", REPORTS, id="beside a file"),
        pytest.param("Push", CALLS_KUBEFLOW, id="by Kubeflow's SDK", marks=pytest.mark.slow),
    ],
)
def test_a_trial_may_push_its_metrics(kind: str, code: str, service: TuningService) -> None:
    source = {"source": {"fileSystemPath": {"path": "/var/log/metrics.log", "kind": "File", "format": "TEXT"}}}
    raw = an_experiment(
        command=f'{sys.executable} -W ignore -c "{code}" # ${{trialParameters.learningRate}}',
        metricsCollectorSpec={"collector": {"kind": kind}, **(source if kind == "File" else {})},
        maxTrialCount=1,
        parallelTrialCount=1,
    )
    submit(service, raw)
    ended(service, within_seconds=180)
    (trial,) = service.trials(NS, "demo").items

    assert objective_value(trial) == "0.25"
    assert printed(service) == [""]


def test_a_push_of_a_trial_that_has_ended_is_refused(service: TuningService, tmp_path: Path) -> None:
    keep = f"env | grep KATIB_ > {tmp_path / 'variables'}"
    raw = an_experiment(
        command=f"{keep}; {sys.executable} -c 'import katib; katib.report(loss=1)' # ${{trialParameters.learningRate}}",
        metricsCollectorSpec={"collector": {"kind": "Push"}},
        maxTrialCount=1,
        parallelTrialCount=1,
    )
    submit(service, raw)
    ended(service)
    variables = dict(line.split("=", 1) for line in (tmp_path / "variables").read_text().splitlines())
    late = subprocess.run(
        [sys.executable, "-c", "import katib; katib.report(loss=0)"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )

    assert "it has ended" in late.stderr
    assert [reading.value for reading in service.metrics(NS, variables["KATIB_TRIAL_NAME"])] == ["1.0"]


def test_a_trial_without_reports_does_not_wait_longer_than_told(tmp_path: Path) -> None:
    settings = ControllerSettings(metrics_timeout_seconds=0.1)
    raw = an_experiment(metricsCollectorSpec={"collector": {"kind": "Push"}}, maxTrialCount=1, parallelTrialCount=1)
    with Engine(tmp_path, settings=settings) as engine:
        submit(engine.service, raw)
        engine.start()
        ended(engine.service)
        (trial,) = engine.service.trials(NS, "demo").items

        assert "report_metrics" in last_condition(trial).message


def test_the_goal_stops_what_still_runs(service: TuningService, tmp_path: Path) -> None:
    mark = tmp_path / "first"
    command = f"mkdir {mark} 2>/dev/null && echo loss=0 && exit; sleep 60; echo loss=${{trialParameters.learningRate}}"
    objective = {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.001}
    submit(service, an_experiment(command=command, objective=objective, maxTrialCount=9, parallelTrialCount=2))
    experiment = ended(service)
    eventually(lambda: count(service, "Running") == 0 and count(service, "Killed") >= 1)

    assert last_condition(experiment).reason == "ExperimentGoalReached"


@pytest.fixture(autouse=True)
def _interpreter_as_before() -> Iterator[None]:
    """An engine tunes the interpreter; the tests after it want it as it was."""
    import gc
    import sys

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_is_admitted_before_the_engine_opens_is_stored_as_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    engine = open_engine(directory)
    admitted = engine.admit(yaml.safe_dump(an_experiment()), source="demo.yaml")
    assert not directory.exists()

    with engine:
        assert engine.service.take(admitted).outcome == "created"
        assert engine.service.get(Experiment, NS, "demo").spec == admitted.experiment.spec
        assert engine.service.take(admitted).outcome == "unchanged"


def test_a_wrong_file_leaves_no_new_directory_though_images_would_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").write_text("""#!/bin/sh\necho '{"version": {"Version": "4.3.1"}}'\n""")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    raw = an_experiment(warmStart={"experiments": ["earlier"]}, algorithm={"algorithmName": "tpe"})

    with refused("warm-start-experiment"):
        open_engine(tmp_path / "new", containers="podman").admit(yaml.safe_dump(raw), source="demo.yaml")
    assert not (tmp_path / "new").exists()
