"""An experiment whose trials run the script `train.py` beside its file, as a user edits and runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.cli import katib, katib_json
from tests.support.experiments import an_experiment

GOOD = "import sys\nprint(f'loss={float(sys.argv[1])}')\n"
LR = "${trialParameters.learningRate}"


def write(directory: Path, *, file: str = "demo.yaml", **spec: Any) -> None:
    """Write the experiment file, of four trials one after the other where `spec` says nothing else."""
    raw = an_experiment(**{"maxTrialCount": 4, "parallelTrialCount": 1, **spec})
    container = {"name": "training", "image": "python", "command": [sys.executable, "train.py", LR]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"] = {"template": template}
    (directory / file).write_text(yaml.safe_dump(raw))


def program(directory: Path, text: str) -> None:
    """Write the script."""
    (directory / "train.py").write_text(text)


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the experiment to its end."""
    return katib("run", "demo.yaml", *options, cwd=directory)


def experiments(directory: Path) -> dict[str, tuple[str, int]]:
    """Return how each experiment ended and how many trials it has, by name."""
    items = katib_json("get", cwd=directory)["items"]
    return {
        e["metadata"]["name"]: (e["status"]["conditions"][-1]["type"], int(e["status"].get("trials") or 0))
        for e in items
    }


def trials(directory: Path, name: str = "demo") -> dict[str, tuple[str, str]]:
    """Return the state and the value of the parameter of each trial, by name."""
    return {
        t["metadata"]["name"]: (t["status"]["conditions"][-1]["type"], t["spec"]["parameterAssignments"][0]["value"])
        for t in katib_json("trials", name, cwd=directory)["items"]
    }
