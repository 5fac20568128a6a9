"""Experiments that had ended before a server started: it does not read them, and they change as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import a_server, katib, katib_here, katib_json
from tests.support.experiments import a_double, an_experiment
from tests.support.waiting import eventually


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    raw = an_experiment(maxTrialCount=3, parallelTrialCount=2, resumePolicy="FromVolume")
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(raw))
    assert katib("run", "demo.yaml", "-q", cwd=tmp_path).returncode == 0
    return tmp_path


def ended(directory: Path, url: str) -> Any:
    experiment = katib_json("get", "experiment", "demo", "--server", url, cwd=directory)
    return experiment["status"] if experiment["status"]["conditions"][-1]["type"] == "Succeeded" else None


def test_it_goes_on_with_a_larger_budget_and_can_be_deleted(directory: Path) -> None:
    with a_server(directory) as server:
        assert ended(directory, server.url)["trialsSucceeded"] == 3
        changed = katib_here("budget", "demo", "--max-trials", "5", "--server", server.url, cwd=directory)
        assert changed.returncode == 0, changed.stderr
        eventually(
            lambda: (ended(directory, server.url) or {}).get("trialsSucceeded") == 5, "five trials have succeeded"
        )
        deleted = katib_here("delete", "demo", "--server", server.url, cwd=directory)
        left = katib_json("get", "trials", "--server", server.url, cwd=directory)["items"]

    assert deleted.returncode == 0, deleted.stderr
    assert left == []


def test_auto_learns_from_it_and_does_so_when_it_goes_on_itself(tmp_path: Path) -> None:
    for name, most, low in (("first", 10, "0.01"), ("other", 10, "0.5"), ("second", 6, "0.01")):
        raw = an_experiment(
            name=name,
            maxTrialCount=most,
            parallelTrialCount=1,
            algorithm={"algorithmName": "auto"},
            parameters=[a_double("lr", low=low, high="0.9")],
        )
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(raw))
    runs = [katib("run", f"{name}.yaml", cwd=tmp_path) for name in ("first", "other")]
    runs.append(katib("run", "second.yaml", "--learn-from", "none", "-q", cwd=tmp_path))
    alone = katib_json("get", "experiment", "second", cwd=tmp_path)["metadata"]["annotations"]
    runs.append(katib("run", "second.yaml", "--restart", cwd=tmp_path))
    noted = katib_json("get", "experiment", "second", cwd=tmp_path)["metadata"]["annotations"]
    runs.append(katib("run", "second.yaml", "--more", "2", "-q", cwd=tmp_path))
    why = katib("why", "second", cwd=tmp_path).stdout
    described = katib("describe", "second", cwd=tmp_path).stdout

    assert [done.returncode for done in runs] == [0] * 5
    assert all("auto learns" not in done.stderr for done in runs[:3])
    assert "auto learns from" in runs[3].stderr
    assert alone["katib.kubeflow.org/learns-from"] == "none"
    assert "first" in noted["katib.kubeflow.org/learns-from"].split(",")
    assert " of first (" in why
    assert "earlier trials" in described
