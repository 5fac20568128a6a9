"""`examples/optuna`: programs of Optuna in which the storage is the only line that is ours.

`make test-optuna` and `make test-doors` run those whose libraries they install.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf.runtime_version", reason="`make test-optuna` installs it")

import katib
from katib.doors.optuna_storage.server import StorageServer
from katib.places.machine import open_engine

EXAMPLES = Path(__file__).parents[2] / "examples" / "optuna"
LIBRARIES = {"scikit_learn": "sklearn", "gradient_boosting": "xgboost", "lightning_network": "lightning"}
STUDIES = {"scikit_learn": "scikit-learn", "gradient_boosting": "xgboost", "lightning_network": "lightning"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_and_its_study_is_here(tmp_path: Path, name: str) -> None:
    pytest.importorskip(LIBRARIES[name], reason=f"{LIBRARIES[name]} is not installed", exc_type=ImportError)
    program = (EXAMPLES / f"{name}.py").read_text()
    with open_engine(data_dir=tmp_path, own_process=False) as engine:
        engine.start()
        with StorageServer(engine.chosen_trials, tmp_path):
            done = subprocess.run(
                [sys.executable, "-c", program.replace("storage()", f"storage({str(tmp_path)!r})")],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
    result = katib.open(STUDIES[name], data_dir=tmp_path)

    assert done.returncode == 0, done.stderr
    assert str(result.best.value)[:6] in done.stdout
    assert {trial.state for trial in result.trials} <= {"Succeeded", "EarlyStopped"}
    assert len(result.trials) == (8 if name == "lightning_network" else 12)
