"""Katib's example files on one machine, with an image that stands for theirs, and fewer trials."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from katib.errors import InvalidError
from katib.places.machine import open_catalog
from katib.places.machine.admission import HostCapacity
from katib.places.machine.admission.host import GIB
from katib.places.machine.submission import LocalHome
from katib.service.tuning.submission import Gate, StoredObjects
from tests.support import podman
from tests.support.cli import katib, katib_json
from tests.support.runtimes import Installed, installed

EXAMPLES = Path(__file__).parents[1] / "support" / "katib_examples"
ALL = sorted(str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.yaml"))
REFUSED = {
    "argo/argo-workflow": "spec.trialTemplate.trialSpec.kind: kind Workflow needs a cluster",
    "fpga/xgboost-example": "needs 1 xilinx.com/fpga-shell, this machine has 0",
    "hp-tuning/simple-pbt": "spec.maxFailedTrialCount: 3 is above maxTrialCount 2",
    "tekton/pipeline-run": "spec.trialTemplate.trialSpec.kind: kind PipelineRun needs a cluster",
}
WITH_CARDS = {"nas/darts-gpu", "nas/enas-gpu"}
NO_CARD = "needs 1 GPU, this machine has 0"
WITHOUT_IMAGES = "trial-template/trial-configmap-source"
"""Its template came with the package and needs no more than Python."""
NO_STAND_IN = {*WITH_CARDS, "metrics-collector/custom-metrics-collector"}
"""They need cards, and a collector that speaks to the database."""


def refusal(name: str, cards: int) -> str:
    """Return why an example cannot run on a machine with podman; empty when it can."""
    host = HostCapacity(cpus=8, memory_bytes=16 * GIB, search_path="", gpus=cards, runs_images=True, names_pods=True)
    gate = Gate(open_catalog(), LocalHome(host), StoredObjects(None))
    try:
        gate.check((EXAMPLES / f"{name}.yaml").read_text(), source=name, namespace="default")
    except InvalidError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("cards", [0, 1])
def test_all_examples_are_valid_but_for_four_and_each_of_them_is_told_why(cards: int) -> None:
    expected = REFUSED if cards else {**REFUSED, **dict.fromkeys(WITH_CARDS, NO_CARD)}
    found = {name: why for name in ALL if (why := refusal(name, cards))}

    assert (len(ALL), len(ALL) - len(found)) == (33, 29 if cards else 27)
    assert found.keys() == expected.keys()
    assert {name: part for name, part in expected.items() if part not in found[name]} == {}


@pytest.fixture(scope="module")
def runtime() -> Installed:
    try:
        found = installed("podman")
        podman.make_image_of_examples(found.program)
    except LookupError as reason:
        pytest.skip(str(reason))
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.networks if name.startswith("kubeflow-") else ())
        for name in ALL
        if name not in {*REFUSED, *NO_STAND_IN, WITHOUT_IMAGES}
    ],
)
def test_an_example_runs(tmp_path: Path, runtime: Installed, name: str) -> None:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    text = podman.with_stand_in(text).replace('memory: "1Gi"', 'memory: "64Mi"')
    (tmp_path / "example.yaml").write_text(re.sub(r"maxTrialCount: 1\d", "maxTrialCount: 4", text))

    done = katib("run", "example.yaml", "-q", "--containers", "podman", cwd=tmp_path, timeout=280, **runtime.variables)

    trials = katib_json("get", "trials", "-A", "--data-dir", ".katib", cwd=tmp_path)["items"]
    ends = {trial["status"]["conditions"][-1]["type"] for trial in trials}
    assert done.returncode == 0, done.stderr
    assert trials
    assert ends <= {"Succeeded", "EarlyStopped", "Killed"}  # the last when another trial has reached the goal
    assert "Succeeded" in ends


def test_the_example_of_a_template_in_a_config_map_runs_without_images(tmp_path: Path) -> None:
    (tmp_path / "example.yaml").write_text((EXAMPLES / f"{WITHOUT_IMAGES}.yaml").read_text())

    done = katib("run", "example.yaml", "-q", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert len(katib_json("get", "trials", "-A", "--data-dir", ".katib", cwd=tmp_path)["items"]) == 10
