"""Katib's official SDK against our controller on a real API server, as a program of its own.

Jobs are StandIn objects that end at once (tests/support/control_plane.py); no webhook is installed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.api_server import ApiServer
from tests.support.control_plane import EXPERIMENT, TRIAL, ControlPlane
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def test_the_official_sdk_runs_reads_resumes_and_deletes_experiments(api_server: ApiServer, tmp_path: Path) -> None:
    with ControlPlane(api_server, tmp_path) as plane:
        namespace = plane.namespace("official-sdk")
        plane.controller("sdk").start().await_work()
        program = [sys.executable, "-m", "tests.support.official_sdk"]
        done = subprocess.run(
            [*program, str(api_server.kubeconfig), namespace, plane.db_manager_address],
            cwd=ROOT,
            env=dict(plane.environment),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        eventually(lambda: not plane.store.list(EXPERIMENT, namespace).items)
        eventually(lambda: not plane.store.list(TRIAL, namespace).items, seconds=180)
        plane.server.delete_namespace(namespace)

    assert [told[word] for word in ("created", "succeeded", "failed", "running")] == [True, True, False, False]
    assert told["experiments"] == ["sdk"]
    assert len(told["trials"]) == told["suggested"] == 2
    assert told["details"] == told["trials"]
    assert told["best"][0] in told["trials"]
    assert told["best"][1:] == ["0.5", "lr"]
    assert told["state"] == "Succeeded"
    assert told["readings"] == ["0.5"]
    assert told["resumed"] == 3
    assert told["tuned"] == {"algorithm": "random", "collector": "StdOut", "parameters": ["a", "b"]}
