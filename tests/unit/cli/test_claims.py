"""Claims of volumes that `--claim` says are folders of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import katib_here
from tests.support.experiments import an_experiment

SPEC = "spec.trialTemplate.trialSpec.spec.template.spec"


def write(folder: Path, command: str) -> None:
    raw: dict[str, Any] = an_experiment(command=command, maxTrialCount=1, parallelTrialCount=1)
    pod = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "d", "mountPath": "/no/such/data"}]
    (folder / "run.yaml").write_text(yaml.safe_dump(raw))


def test_a_claim_is_refused_with_the_option_that_maps_it(tmp_path: Path) -> None:
    write(tmp_path, "echo loss=${trialParameters.learningRate}")
    refused = katib_here("validate", "run.yaml", cwd=tmp_path)

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"run.yaml: {SPEC}.volumes[0].persistentVolumeClaim: ")
    assert "--claim NAME=/folder" in refused.stderr


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("other=here", '--claim other: no volume has the claim "other"; choose from data'),
        ("data=nowhere", "is not on this machine; create it, or name another path"),
        ("data", "--claim data: write NAME=/folder"),
    ],
)
def test_a_wrong_mapping_says_why(tmp_path: Path, option: str, told: str) -> None:
    write(tmp_path, "echo loss=${trialParameters.learningRate}")
    refused = katib_here("validate", "run.yaml", "--claim", option, cwd=tmp_path)

    assert refused.returncode == 2
    assert told in refused.stderr


@pytest.mark.parametrize(
    ("command", "read"), [("cat /no/such/data/value", "0.5"), ("echo loss=${trialParameters.learningRate}", "0.0")]
)
def test_an_experiment_reads_the_folder_in_place_of_its_claim(tmp_path: Path, command: str, read: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "value").write_text("loss=0.5\n")
    write(tmp_path, f"{command} # ${{trialParameters.learningRate}}")
    ran = katib_here("run", "run.yaml", "--claim", "data=here", cwd=tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert f"with loss={read}" in ran.stdout
