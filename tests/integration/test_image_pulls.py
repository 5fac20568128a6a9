"""What people see while an image is fetched, with a podman that is slow to do it: until a file appears."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from katib.places.machine.processes import proc
from tests.support import podman
from tests.support.boxes import boxes, home_of_boxes
from tests.support.cli import KATIB, environment, katib
from tests.support.local_jobs import Home, job
from tests.support.processes import launching
from tests.support.runtimes import Installed, installed
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

SLOW = """#!/bin/sh
if [ "$1" = pull ]; then
    echo $$ >> {directory}/pulls
    while [ ! -e {directory}/gate ]; do sleep 0.05; done
    [ ! -e {directory}/broken ] || {{ echo "Error: initializing source: no such registry" >&2; exit 125; }}
    exec {podman} tag {image} {wanted}
fi
exec {podman} "$@"
"""


class Slow:
    """A podman in a directory of its own; `gate` lets it finish, `broken` lets it fail."""

    def __init__(self, directory: Path, real: Installed) -> None:
        self.directory = directory
        self.wanted = f"localhost/katib-tests-slow:{os.getpid()}"
        found = shutil.which("podman", path=real.variables.get("PATH"))
        text = SLOW.format(directory=directory, podman=found, image=podman.IMAGE, wanted=self.wanted)
        (directory / "podman").write_text(text)
        (directory / "podman").chmod(0o755)
        path = f"{directory}:{real.variables.get('PATH') or os.environ['PATH']}"
        self.runtime = Installed("podman", {**real.variables, "PATH": path})

    def pulls(self) -> list[int]:
        """Return the processes that fetched or do."""
        file = self.directory / "pulls"
        return [int(word) for word in file.read_text().split()] if file.exists() else []

    def finish(self) -> None:
        (self.directory / "gate").touch()

    def container(self, *words: str, **fields: Any) -> dict[str, Any]:
        return {**boxes(*words, **fields), "image": self.wanted}


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    try:
        real = installed("podman")
    except LookupError as reason:
        pytest.skip(str(reason))
    (tmp_path / "bin").mkdir()
    found = Slow(tmp_path / "bin", real)
    yield found
    real.run("rmi", found.wanted)


@pytest.fixture
def boxed(tmp_path: Path, slow: Slow) -> Iterator[Home]:
    with home_of_boxes(tmp_path, slow.runtime) as opened:
        yield opened


def test_pods_that_need_the_same_image_wait_for_one_fetch_and_it_is_fetched_once(boxed: Home, slow: Slow) -> None:
    for name in ("a", "b"):
        boxed.submit(job(slow.container("/bin/echo", "ran"), name=name))
    eventually(slow.pulls, "a fetch")

    slow.finish()

    assert [boxed.wait_for_end(name)["type"] for name in ("a", "b")] == ["Complete"] * 2
    assert boxed.run(job(slow.container("/bin/echo", "ran"), name="c"))["type"] == "Complete"
    assert len(slow.pulls()) == 1


def test_an_image_that_is_always_pulled_is_fetched_for_each_start(boxed: Home, slow: Slow) -> None:
    slow.finish()
    for name in ("a", "b"):
        boxed.run(job(slow.container("/bin/echo", "ran", imagePullPolicy="Always"), name=name))

    assert len(slow.pulls()) == 2


def test_a_fetch_ends_with_the_last_job_that_waits_for_it(boxed: Home, slow: Slow) -> None:
    keys = [boxed.submit(job(slow.container("/bin/echo"), name=name))["metadata"]["name"] for name in ("a", "b")]
    (process,) = eventually(slow.pulls, "a fetch")

    boxed.store.delete(*_key(keys[0]))
    eventually(lambda: not boxed.runner.runs(_key(keys[0])[1]))
    assert proc.is_running(process)

    boxed.store.delete(*_key(keys[1]))
    eventually(lambda: not boxed.runner.runs(_key(keys[1])[1]))
    eventually(lambda: not proc.is_running(process), "the fetch ends")


def test_an_image_that_cannot_be_fetched_fails_the_job_with_what_the_runtime_says(boxed: Home, slow: Slow) -> None:
    (slow.directory / "broken").touch()
    slow.finish()

    end = boxed.run(job(slow.container("/bin/echo")))

    assert f'image "{slow.wanted}" ' in end["message"]
    assert "no such registry" in end["message"]


def test_an_image_that_is_here_runs_as_the_refused_policy_of_another_fetch_says(boxed: Home, slow: Slow) -> None:
    slow.finish()
    boxed.run(job(slow.container("/bin/echo", "ran"), name="first"))
    (slow.directory / "broken").touch()

    refused = boxed.run(job(slow.container("/bin/echo", imagePullPolicy="Always"), name="always"))
    followed = boxed.run(job(slow.container("/bin/echo", imagePullPolicy="IfNotPresent"), name="remedy"))

    assert "imagePullPolicy Always" in refused["message"]
    assert "write imagePullPolicy: IfNotPresent" in refused["message"]
    assert followed["type"] == "Complete"


def _key(name: str) -> Any:
    from katib.engine.runtime.objects import Key
    from katib.places.machine.jobs.batch.job import JOB

    return JOB, Key("ns", name)


EXPERIMENT = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: pulls}
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  algorithm: {algorithmName: random}
  maxTrialCount: 1
  parallelTrialCount: 1
  parameters:
  - {name: x, parameterType: double, feasibleSpace: {min: "0", max: "1"}}
  trialTemplate:
    primaryContainerName: main
    trialParameters: [{name: x, reference: x}]
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        template:
          spec:
            restartPolicy: Never
            containers:
            - name: main
              image: IMAGE
              args: [/bin/echo, 'loss=${trialParameters.x}']
"""


def test_a_run_describe_and_why_say_that_an_image_is_pulled_and_afterwards_how_long_it_took(
    tmp_path: Path, slow: Slow
) -> None:
    (tmp_path / "pulls.yaml").write_text(EXPERIMENT.replace("IMAGE", slow.wanted))
    said, pulling = tmp_path / "said", f'pulling image "{slow.wanted}"'

    def ask(*words: str) -> str:
        return katib(*words, "--data-dir", ".katib", cwd=tmp_path, **slow.runtime.variables).stdout

    with launching() as launch, said.open("w") as output:
        command = [*KATIB, "run", "pulls.yaml", "--containers", "podman"]
        variables = environment(**slow.runtime.variables)
        run = launch(command, cwd=tmp_path, env=variables, stdout=output, stderr=subprocess.STDOUT)
        eventually(lambda: f"has to wait: {pulling}" in said.read_text(), "the run says it", picture=said.read_text)
        trial = next(line.split()[0] for line in ask("trials", "pulls").splitlines() if line.startswith("pulls-"))

        eventually(
            lambda: f"has to wait: its job is {pulling}" in ask("why", trial), "why", picture=lambda: ask("why", trial)
        )
        assert "a large image" in ask("why", trial)
        assert pulling in ask("describe", trial)
        assert f'Pulling image "{slow.wanted}"' in ask("describe", trial)

        slow.finish()
        assert run.wait(60) == 0, said.read_text()

    described = ask("describe", trial)
    assert f'Successfully pulled image "{slow.wanted}" in ' in described
    assert f"Trial waits: {pulling}" not in described
