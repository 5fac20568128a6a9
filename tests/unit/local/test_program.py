"""The files of a program, without those that its trials write."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from katib.model.names import WORKSPACE_ANNOTATION
from katib.model.types import Experiment
from katib.places.machine.program import changed_files, program_annotations, program_now
from tests.support.cli import katib_here
from tests.support.experiments import an_experiment, load_experiment

START, END = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
BEFORE, DURING, AFTER = (datetime(2026, 1, 1, hour, 30, tzinfo=UTC).timestamp() for hour in (11, 12, 13))


def put(path: Path, text: str, moment: float) -> None:
    path.write_text(text)
    os.utime(path, (moment, moment))


def an_ended_experiment(workspace: Path) -> Experiment:
    text = json.dumps(an_experiment(command="python train.py --data data.csv --config c.yaml > train.log"))
    experiment = load_experiment(text, "x.yaml", "default").experiment
    metadata = structs.replace(experiment.metadata, annotations={WORKSPACE_ANNOTATION: str(workspace)})
    status = structs.replace(experiment.status, start_time=START, completion_time=END)
    return structs.replace(experiment, metadata=metadata, status=status)


@pytest.mark.parametrize(
    ("name", "moment", "is_change"),
    [
        pytest.param("train.log", DURING, False, id="a log that trials write"),
        pytest.param("data.csv", DURING, False, id="data that trials write"),
        pytest.param("data.csv", AFTER, True, id="data that the user changed"),
        pytest.param("train.py", DURING, True, id="a script"),
        pytest.param("c.yaml", DURING, True, id="a configuration"),
    ],
)
@pytest.mark.parametrize("was_there", [True, False])
def test_a_file_that_trials_write_is_no_program(
    tmp_path: Path, name: str, moment: float, is_change: bool, was_there: bool
) -> None:
    for file in {"train.py", "data.csv", "c.yaml", "train.log"} - (set() if was_there else {name}):
        put(tmp_path / file, "before", BEFORE)
    experiment = an_ended_experiment(tmp_path)
    assert experiment.spec.trial_template is not None
    [kept] = program_annotations(experiment.spec.trial_template.trial_spec, experiment).values()

    put(tmp_path / name, "after", moment)

    assert changed_files(kept, program_now(experiment)) == ([name] if is_change else [])


@pytest.mark.parametrize("folder", ["sub", "sub/deeper", "../elsewhere"])
def test_a_file_that_is_saved_in_another_folder_works_where_it_was_drafted(tmp_path: Path, folder: str) -> None:
    work = tmp_path / "work"
    (work / folder).mkdir(parents=True)
    (work / "train.sh").write_text('echo "loss=$1"\n')
    saved = f"{folder}/x.yaml"
    line = ("--minimize", "loss", "--trials", "1", "--save", saved, "--dry-run", "--", "sh", "train.sh", "{lr}")

    assert katib_here("tune", "-p", "lr=1..2", *line, cwd=work).returncode == 0

    ran = katib_here("run", saved, cwd=work)

    assert ran.returncode == 0, ran.stdout + ran.stderr
