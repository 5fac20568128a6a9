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


def one_trial(command: str, **spec: Any) -> dict[str, Any]:
    """Return an experiment of one trial that is never retried."""
    template = a_template(trialSpec=a_job(f"{command}\n{LR}", backoffLimit=0))
    return an_experiment(**{"trialTemplate": template, "maxTrialCount": 1, "parallelTrialCount": 1, **spec})


def run(directory: Path, *documents: dict[str, Any], **env: str) -> tuple[int, str]:
    """Run an experiment to its end; return the exit code and what was printed."""
    (directory / "x.yaml").write_text(yaml.safe_dump_all(documents))
    done = katib_here("run", "x.yaml", cwd=directory, **env)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def readings(directory: Path) -> list[str]:
    """Return the stored values in the order in which they were stored."""
    return [value for (value,) in rows(directory / ".katib", "select value from observation_logs order by id")]


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


def test_environment_comes_from_objects_of_the_same_file_and_from_the_pod(tmp_path: Path) -> None:
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "b"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    raw = one_trial('test -n "$POD" && echo loss=0.$A$B')
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]["env"] = env
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "12"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"b": "34"}}

    code, printed = run(tmp_path, config_map, secret, raw)

    assert code == 0, printed
    assert readings(tmp_path) == ["0.1234"]


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
