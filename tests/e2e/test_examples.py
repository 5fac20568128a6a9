"""What `make demo` runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import katib, katib_json

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_the_demo_finds_a_good_network_within_a_minute(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "digits", tmp_path / "digits")

    done = katib("run", "digits/experiment.yaml", cwd=tmp_path, timeout=60)
    experiment = katib_json("get", "experiment", "digits", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Best trial: digits-" in done.stdout
    status = experiment["status"]
    assert status["trials"] == status["trialsSucceeded"] + status["trialsEarlyStopped"] == 16
    best = {metric["name"]: float(metric["max"]) for metric in status["currentOptimalTrial"]["observation"]["metrics"]}
    assert best["accuracy"] > 0.95
