"""Trials that behave badly, through the command line and with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.model.names import REMEDY
from tests.support.cli import (
    KATIB,
    ServerProcess,
    a_server,
    environment,
    katib_here,
    katib_json,
    marked_processes,
    rows,
)
from tests.support.experiments import a_job, a_template, an_experiment
from tests.support.processes import Launch
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

LR = "# ${trialParameters.learningRate}"


def one_trial(command: str, *, job: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return an experiment of one trial that is never retried."""
    job_spec = {"backoffLimit": 0} if job is None else job
    template = a_template(trialSpec=a_job(f"{command}\n{LR}", **job_spec))
    return an_experiment(**{"trialTemplate": template, "maxTrialCount": 1, "parallelTrialCount": 1, **spec})


def containers(*items: dict[str, Any], **pod_spec: Any) -> dict[str, Any]:
    """Return an experiment of one trial with these containers."""
    job = a_job(backoffLimit=0)
    job["spec"]["template"]["spec"].update(containers=list(items), **pod_spec)
    return one_trial("", trialTemplate=a_template(trialSpec=job))


def a_container(command: str, name: str = "training", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", f"{command}\n{LR}"], **fields}


def run(directory: Path, *documents: dict[str, Any], **env: str) -> tuple[int, str]:
    """Run an experiment to its end; return the exit code and what was printed."""
    (directory / "x.yaml").write_text(yaml.safe_dump_all(documents))
    done = katib_here("run", "x.yaml", cwd=directory, **env)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def trials(directory: Path, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = katib_json("trials", "demo", *more, cwd=directory)["items"]
    return found


def readings(directory: Path) -> list[str]:
    """Return the stored values in the order in which they were stored."""
    return [value for (value,) in rows(directory / ".katib", "select value from observation_logs order by id")]


def last_condition(trial: dict[str, Any]) -> dict[str, Any]:
    true = [c for c in trial["status"]["conditions"] if c["status"] == "True"]
    last: dict[str, Any] = true[-1]
    return last


OUTPUTS = {
    "binary junk": ("head -c 300000 /dev/urandom; echo; echo loss=0.5", ["0.5"]),
    "no newline at the end": ("printf 'loss=0.7\\nloss=0.5'", ["0.7", "0.5"]),
    "closes its output early": ("echo loss=0.5; exec >&- 2>&-; sleep 0.3", ["0.5"]),
    "a line of 100 MB": ("head -c 100000000 /dev/zero | tr '\\0' x; echo; echo loss=0.5", ["0.5"]),
    "carriage returns": ("printf 'step 1\\rstep 2\\rloss=0.5\\r\\n'", ["0.5"]),
}


@pytest.mark.parametrize(("command", "values"), OUTPUTS.values(), ids=OUTPUTS)
def test_metrics_are_found_in_output_that(tmp_path: Path, command: str, values: list[str]) -> None:
    code, printed = run(tmp_path, one_trial(command))

    assert code == 0, printed
    assert readings(tmp_path) == values


@pytest.mark.slow
def test_ten_million_lines_are_read_with_flat_memory(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        assert server.process is not None
        apply(server, one_trial("yes | head -10000000; echo loss=0.5"))
        eventually(lambda: state(server) == "Succeeded")
        peak_kb = next(
            int(line.split()[1])
            for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )

    assert readings(tmp_path) == ["0.5"]
    assert peak_kb < 300_000


# As in Kubernetes, `$$` in a command is one `$`.
FAILURES = {
    "exits with 3": ("echo loss=1; echo no such data; exit 3", "no such data", "(exit code 3)"),
    "exits by a signal": ("kill -SEGV $$$$; sleep 5", "its program was killed by", "SIGSEGV"),
    "prints another name": ("echo Loss: 0.21; seq 2", "3 lines, none matched", 'nearest: "Loss: 0.21"'),
    "prints nothing": ("true", "Metrics are not available", "loss"),
}


@pytest.mark.parametrize(("command", "what", "why"), FAILURES.values(), ids=FAILURES)
def test_the_message_says_why_a_trial_was_lost_that(tmp_path: Path, command: str, what: str, why: str) -> None:
    code, printed = run(tmp_path, one_trial(command, maxFailedTrialCount=0))

    assert code == 1, printed
    message = last_condition(trials(tmp_path)[0])["message"].partition(REMEDY)[0]
    assert what in message
    assert why in message
    assert message.removeprefix("Trial has failed: ").removeprefix("Metrics are not available: ") in printed


def test_environment_comes_from_objects_of_the_same_file_and_from_the_pod(tmp_path: Path) -> None:
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "b"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    raw = containers(a_container('test -n "$POD" && echo loss=0.$A$B', env=env))
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "12"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"b": "34"}}

    code, printed = run(tmp_path, config_map, secret, raw)

    assert code == 0, printed
    assert readings(tmp_path) == ["0.1234"]


def test_a_hopeless_trial_is_stopped_early_and_keeps_its_observation(tmp_path: Path) -> None:
    # Trials are told apart by a counter: the first two are good, the third is bad and would never end.
    command = (
        f"mkdir {tmp_path}/1 2>/dev/null || mkdir {tmp_path}/2 2>/dev/null || bad=1; "
        "if test $bad; then echo loss=9; echo loss=9; trap '' TERM; sleep 60; sleep 60; "
        "else for i in 1 2 3; do echo loss=0.$i; sleep 0.02; done; fi"
    )
    stopping = {
        "algorithmName": "medianstop",
        "algorithmSettings": [{"name": "min_trials_required", "value": "2"}, {"name": "start_step", "value": "1"}],
    }
    raw = one_trial(command, maxTrialCount=3, earlyStopping=stopping)
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    marker = f"test-{os.urandom(8).hex()}"

    code, printed = run(tmp_path, raw, TEST_MARKER=marker)

    assert code == 0, printed
    stopped = trials(tmp_path)[-1]
    assert last_condition(stopped)["type"] == "EarlyStopped"
    assert stopped["status"]["observation"]["metrics"][0]["latest"] == "9"
    assert not marked_processes(f"TEST_MARKER={marker}")


GOAL = {"type": "minimize", "objectiveMetricName": "loss", "goal": 0.5}


def racing(directory: Path, slow: str) -> dict[str, Any]:
    """Return an experiment of two trials: one reaches the goal while the other runs."""
    command = f"if mkdir {directory}/first 2>/dev/null; then {slow}; else sleep 0.3; echo loss=0.1; fi"
    return one_trial(command, maxTrialCount=2, parallelTrialCount=2, objective=GOAL)


def test_what_still_runs_may_finish_when_the_experiment_says_so(tmp_path: Path) -> None:
    raw = racing(tmp_path, "sleep 1; echo loss=7")
    raw["metadata"]["annotations"] = {"katib.kubeflow.org/running-trials-on-completion": "finish"}

    code, printed = run(tmp_path, raw)

    assert code == 0, printed
    assert sorted(readings(tmp_path)) == ["0.1", "7"]
    assert {last_condition(t)["type"] for t in trials(tmp_path)} == {"Succeeded"}


@pytest.mark.slow
def test_a_retained_job_goes_when_its_time_is_over(tmp_path: Path) -> None:
    job = a_job(f"echo loss=1; {LR}", backoffLimit=0, ttlSecondsAfterFinished=1)
    with a_server(tmp_path) as server:
        apply(server, one_trial("", trialTemplate=a_template(trialSpec=job, retain=True)))
        eventually(lambda: state(server) == "Succeeded")
        eventually(lambda: not rows(tmp_path / ".katib", "select 1 from objects where kind = 'Job'"))


STUBBORN = "trap '' TERM INT; echo loss=1; while :; do sleep 1; done"


def stubborn() -> dict[str, Any]:
    raw = one_trial(STUBBORN)
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    return raw


def test_deleting_ends_a_trial_that_ignores_sigterm(tmp_path: Path) -> None:
    with a_server(tmp_path) as server:
        apply(server, stubborn())
        eventually(lambda: any("trap" in c for c in server.descendants()))

        done = katib_here("delete", "demo", "--server", server.url, cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        eventually(lambda: not any("trap" in c for c in server.descendants()))


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_a_trial_that_ignores_sigterm(tmp_path: Path, launch: Launch, presses: int) -> None:
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(stubborn()))
    marker = f"test-{os.urandom(8).hex()}"
    process = launch(
        [*KATIB, "run", "x.yaml"],
        cwd=tmp_path,
        env=environment(TEST_MARKER=marker),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    eventually(lambda: any("trap" in c for _, c in marked_processes(f"TEST_MARKER={marker}")))
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)

    _, errors = process.communicate(timeout=180)

    assert process.returncode == 130, errors
    if presses == 1:
        assert errors.splitlines()[-1].startswith("interrupted: 0 of 1")
        assert "`katib run x.yaml`" in errors.splitlines()[-1]
    eventually(lambda: not marked_processes(f"TEST_MARKER={marker}"))


def apply(server: ServerProcess, raw: dict[str, Any]) -> None:
    path = server.directory / f"{raw['metadata']['name']}.yaml"
    path.write_text(yaml.safe_dump(raw))
    done = katib_here("apply", path, "--server", server.url, cwd=server.directory)
    assert done.returncode == 0, done.stderr


def state(server: ServerProcess, name: str = "demo") -> str:
    """Return the newest condition of an experiment."""
    raw = katib_json("get", "experiment", name, "--server", server.url, cwd=server.directory)
    conditions = [c["type"] for c in raw.get("status", {}).get("conditions", []) if c["status"] == "True"]
    return conditions[-1] if conditions else ""
