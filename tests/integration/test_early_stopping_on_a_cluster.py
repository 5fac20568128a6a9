"""Early stopping by a controller over a real API server: jobs are StandIn objects, the service is a real one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from katib.engine.runtime.objects import Object
from katib.model.metrics import ZERO_TIME, MetricLog
from tests.support.api_server import ApiServer
from tests.support.control_plane import STAND_IN, ControlPlane, ended
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NS = "hopeless"
BOUND = {"algorithmName": "threshold", "algorithmSettings": [{"name": "bound", "value": "0.5"}]}
KILLS = 5


class Jobs:
    """Every fourth job ends well; the others report a hopeless value and continue until they are deleted."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._seen: dict[str, bool] = {}

    def __call__(self, job: Object) -> str | None:
        name = job["metadata"]["name"]
        if name not in self._seen:
            self._seen[name] = len(self._seen) % 4 == 0
            if not self._seen[name]:
                self._plane.log.report(name, [MetricLog(ZERO_TIME, "loss", "0.9")])
        return "0.1" if self._seen[name] else None


@pytest.fixture
def plane(api_server: ApiServer, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(api_server, tmp_path) as made, ExitStack() as stack:
        made.serve_early_stopping(stack, "threshold")
        made.namespace(NS)
        made.stand_ins.outcome = Jobs(made)
        yield made
        api_server.delete_namespace(NS)


def conditions(trial: Object) -> dict[str, Any]:
    found = (trial.get("status") or {}).get("conditions") or ()
    return {condition["type"]: condition for condition in found if condition["status"] == "True"}


def test_hopeless_jobs_are_deleted_and_a_killed_controller_stops_nothing_twice(plane: ControlPlane) -> None:
    moments = random.Random(3)
    plane.submit("demo", NS, maxTrialCount=24, parallelTrialCount=3, earlyStopping=BOUND)
    for number in range(KILLS):
        controller = plane.controller(f"killed-{number}").start()
        with suppress(AssertionError):
            controller.await_work(seconds=20)
        time.sleep(moments.uniform(0.2, 0.8))
        controller.kill()
        if ended(plane.experiment("demo", NS)):
            break
    last = plane.controller("survivor").start()
    try:
        plane.wait_for_end("demo", NS)
        eventually(lambda: not plane.store.list(STAND_IN, NS).items)
        status = plane.experiment("demo", NS)["status"]
    finally:
        last.stop()

    trials = plane.trials(NS)
    stopped = [trial for trial in trials if "EarlyStopped" in conditions(trial)]
    assert status["trials"] == len(trials) == 24
    assert status["trialsEarlyStopped"] == len(stopped) == 18
    assert status["trialsSucceeded"] == 6
    assert {plane.stand_ins.runs[trial["metadata"]["name"]] for trial in trials} == {1}
    for trial in stopped:
        assert "worse than 0.5" in conditions(trial)["EarlyStopped"]["message"]
        assert trial["status"]["observation"]["metrics"][0]["latest"] == "0.9"
        assert not trial["spec"].get("earlyStoppingRules")
