"""What is refused before Slurm is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from katib.engine.runtime.objects import Kind
from katib.model.types import ExperimentSpec
from katib.places.machine.slurm.admission import SlurmGate
from katib.places.machine.slurm.commands import Slurm
from katib.places.machine.slurm.script import GeneralOptions
from tests.support.experiments import an_experiment, load_experiment

JOB, TORCH, MPI = (
    Kind("batch/v1", "Job"),
    Kind("kubeflow.org/v1", "PyTorchJob"),
    Kind("kubeflow.org/v2beta1", "MPIJob"),
)


def spec(collector: str) -> ExperimentSpec:
    raw = an_experiment(metricsCollectorSpec={"collector": {"kind": collector}})
    return load_experiment(json.dumps(raw), "x", "default").experiment.spec


@pytest.mark.parametrize(
    ("kind", "collector", "allocation", "origins"),
    [
        (JOB, "StdOut", "7", []),
        (JOB, "Push", "", ["slurm-collector"]),
        (JOB, "Custom", "7", ["slurm-collector"]),
        (MPI, "StdOut", "7", []),
        (TORCH, "StdOut", "7", []),
    ],
)
def test_what_cannot_run_in_slurm_is_refused(
    kind: Kind, collector: str, allocation: str, origins: list[str], tmp_path: Path
) -> None:
    gate = SlurmGate(Slurm({"PATH": str(tmp_path)}), GeneralOptions(), allocation)
    (program := tmp_path / "srun").write_text("#!/bin/sh\n")
    program.chmod(0o755)
    errors, _ = gate.check(kind, [({"spec": {}}, 1)], "spec.trialTemplate.trialSpec", spec(collector))

    assert [error.origin for error in errors] == origins
