"""Experiments whose trials run in their images, by podman: as a user has them."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from katib.places.machine.containers.choice import OWNER_LABEL, owner_of
from katib.places.machine.processes import proc
from tests.support import podman
from tests.support.cli import KATIB, environment, katib, katib_json
from tests.support.runtimes import WITH_NETWORKS, Installed, installed
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "support" / "katib_examples"


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> Installed:
    try:
        return installed(getattr(request, "param", "podman"))
    except LookupError as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, runtime: Installed) -> Iterator[None]:
    yield
    assert runtime.containers(_mine(tmp_path)) == []


def _mine(directory: Path) -> str:
    return f"label={OWNER_LABEL}={owner_of(directory / '.katib')}"


def example(name: str, directory: Path) -> Path:
    """Write an example of Katib with another image, fewer trials, and a goal that none of them reaches."""
    text = (EXAMPLES / name).read_text().replace("goal: 0.99", "goal: 2")
    text = re.sub(r"example\.com/[\w.-]+:latest", podman.IMAGE, text)
    path = directory / Path(name).name
    path.write_text(text.replace("maxTrialCount: 12", "maxTrialCount: 3").replace('memory: "1Gi"', 'memory: "64Mi"'))
    return path


@pytest.mark.parametrize("name", ["hp-tuning/random.yaml", "metrics-collector/file-metrics-collector.yaml"])
def test_an_example_of_katib_runs_with_another_image_and_nothing_else_changed(
    tmp_path: Path, runtime: Installed, name: str
) -> None:
    if not podman.has_python():
        pytest.skip("the image has no Python, since Debian's is not installed here")
    file = example(name, tmp_path)

    done = katib("run", file, "--containers", "podman", "-o", "json", cwd=tmp_path, timeout=120, **runtime.variables)

    assert done.returncode == 0, done.stderr
    assert '"trialsSucceeded": 3' in done.stdout


def test_without_containers_the_same_file_is_refused_with_an_offer(tmp_path: Path) -> None:
    done = katib("run", example("hp-tuning/random.yaml", tmp_path), cwd=tmp_path)

    assert done.returncode == 2
    assert "--containers auto" in done.stderr


SLEEPING = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: sleeping}
spec:
  objective: {type: minimize, objectiveMetricName: loss}
  algorithm: {algorithmName: random}
  maxTrialCount: 2
  parallelTrialCount: 2
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
              args: [/bin/sh, -c, 'echo loss=${trialParameters.x}; [ -e GATE ] || exec sleep 1000']
"""


TOGETHER = """
      apiVersion: kubeflow.org/v1
      kind: PyTorchJob
      spec:
        pytorchReplicaSpecs:
          Master: &replica
            replicas: 1
            template:
              spec:
                containers:
                - name: pytorch
                  image: IMAGE
                  args: [/bin/sh, -c, 'echo loss=${trialParameters.x}; [ -e GATE ] || exec sleep 1000']
          Worker: *replica
"""


def together() -> str:
    """Return the experiment with trials that are jobs of two containers."""
    head, at, _ = SLEEPING.replace("primaryContainerName: main", "primaryContainerName: pytorch").partition(
        "trialSpec:"
    )
    return head + at + TOGETHER


@pytest.mark.networks
@pytest.mark.timeout(300)
@pytest.mark.parametrize("runtime", WITH_NETWORKS, indirect=True)
def test_containers_and_networks_are_gone_seconds_after_the_engine_was_killed(
    tmp_path: Path, runtime: Installed
) -> None:
    file = tmp_path / "sleeping.yaml"
    file.write_text(together().replace("IMAGE", podman.IMAGE).replace("GATE", "/nothing"))
    command = ["run", file.name, "-q", "--containers", runtime.program]
    engine = subprocess.Popen([*KATIB, *command], cwd=tmp_path, env=environment(**runtime.variables))
    eventually(lambda: len(runtime.running(_mine(tmp_path))) == 4, "two jobs of two containers run", seconds=60)
    assert len(runtime.networks(_mine(tmp_path))) == 2

    engine.send_signal(signal.SIGKILL)
    engine.wait()

    eventually(lambda: not runtime.running(_mine(tmp_path)), "no container runs", seconds=10)
    eventually(lambda: not runtime.containers(_mine(tmp_path)), "no container is left", seconds=20)
    eventually(lambda: not runtime.networks(_mine(tmp_path)), "no network is left", seconds=20)


@pytest.mark.parametrize("job", ["one container", pytest.param("several with a network", marks=pytest.mark.networks)])
@pytest.mark.timeout(300)
@pytest.mark.parametrize("whole_group", [False, True], ids=["engine", "engine and guard"])
def test_nothing_is_left_when_the_engine_is_killed_and_the_next_one_finishes_the_trials(
    tmp_path: Path, runtime: Installed, whole_group: bool, job: str
) -> None:
    gate, file, text, count = tmp_path / "gate", tmp_path / "sleeping.yaml", SLEEPING, 2
    if job != "one container":
        text, count = together(), 4
    file.write_text(text.replace("IMAGE", podman.IMAGE).replace("GATE", str(gate)))
    command = ["run", file.name, "-q", "--containers", "podman"]
    engine = subprocess.Popen([*KATIB, *command], cwd=tmp_path, env=environment(**runtime.variables))
    eventually(lambda: len(runtime.running(_mine(tmp_path))) == count, "all containers run", seconds=60)
    guards = proc.children(engine.pid)

    engine.send_signal(signal.SIGKILL)
    for pid in guards if whole_group else ():
        proc.kill(pid)
    engine.wait()
    gate.touch()
    done = katib(*command, cwd=tmp_path, timeout=120, **runtime.variables)

    assert done.returncode == 0, done.stderr
    assert runtime.networks(_mine(tmp_path)) == []
    trials = katib_json("trials", "sleeping", "--data-dir", ".katib", cwd=tmp_path)
    assert len(trials["items"] if isinstance(trials, dict) else trials) == 2
