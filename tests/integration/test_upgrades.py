"""State that version 0.2.0 wrote, in tests/support/state_0_2_0: this version reads it, and ends all it left undone.

Its server was killed with -9 while programs of `cut` and `held` ran and a trial of `held` was suspended; the program
that evaluated a trial of `told` had died. Its controller was killed with two of six trials running,
and the same objects stand for those that Katib's controller leaves.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import katib
from katib.engine.databases import address_of, open_sql_server
from katib.engine.observations import SqlObservationLog
from katib.errors import ForbiddenError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.places.machine.layout import Layout
from katib.wire.rpc.db_manager_client import DbManagerClient
from tests.support import observations
from tests.support.api_server import ApiServer
from tests.support.cli import a_server, katib_here, katib_json
from tests.support.control_plane import STAND_IN, ControlPlane
from tests.support.sql_servers import USER, postgresql
from tests.support.waiting import eventually
from tests.unit.observations.test_schema import KATIB_TABLE

STATE = Path(observations.__file__).with_name("state_0_2_0")

CUT = {"cut-7wzvcdbp": 0.3979, "cut-bz6nl6kv": 0.3558}
ENDED = {
    "ended-w62b66pb": 0.7779,
    "ended-wqclm9qn": 0.4823,
    "ended-wc7gm77m": 0.4257,
    "ended-4h652szx": 0.3494,
    "ended-m9k9sv9z": 0.3737,
    "ended-d555rqnw": 0.3679,
    "ended-77hgqp88": 1.1141,
    "ended-gfjcts84": 1.3792,
}
ENDED_DEMO = {"demo-6nwm49nl": "0.3", "demo-7mmnxrhz": "0.5", "demo-hh9cz884": "0.4"}
KEPT = ("name", "namespace", "labels", "annotations")
HELD = {"held-gwxqkllq": 0.3678, "held-twq4rx4l": 0.4634}


def loss_of(trial: Mapping[str, Any]) -> float:
    """The loss that the program of these experiments prints last."""
    return (float(trial["spec"]["parameterAssignments"][0]["value"]) - 0.3) ** 2 + 1 / 3


def read(path: Path, folder: Path) -> str:
    return path.read_text().replace("@FOLDER@", str(folder)).replace("@PYTHON@", sys.executable)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose data directory 0.2.0 wrote."""
    layout = Layout(tmp_path / ".katib")
    layout.create()
    with closing(sqlite3.connect(layout.database)) as connection:
        connection.executescript(read(STATE / "data_directory.sql", tmp_path))
        connection.execute("PRAGMA journal_mode=WAL")
    for name, text in json.loads(read(STATE / "files.json", tmp_path)).items():
        path = layout.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def trials_of(folder: Path, experiment: str) -> list[dict[str, Any]]:
    return list(katib_json("trials", experiment, cwd=folder)["items"])


def values_of(folder: Path, experiment: str) -> dict[str, float]:
    return {
        trial["metadata"]["name"]: float(trial["status"]["observation"]["metrics"][0]["latest"])
        for trial in trials_of(folder, experiment)
        if trial["status"].get("observation")
    }


def states(folder: Path) -> list[list[str]]:
    lines = katib_here("get", "experiments", "--no-headers", cwd=folder).stdout.splitlines()
    return sorted(line.split()[:3] for line in lines)


def test_what_was_found_is_read_without_an_engine(folder: Path) -> None:
    assert states(folder) == [
        ["cut", "Interrupted", "2/5"],
        ["ended", "Succeeded", "8/8"],
        ["failed", "Failed", "2/3"],
        ["held", "Interrupted", "2/4"],
        ["told", "Running", "2/4"],
    ]
    assert values_of(folder, "ended") == ENDED
    assert values_of(folder, "cut") == CUT
    assert "out of luck" in katib_here("why", "failed", cwd=folder).stdout
    assert "2 of 8 trials" in katib_here("why", "ended", cwd=folder).stdout
    assert [reading["value"] for reading in katib_json("metrics", "ended-77hgqp88", cwd=folder)] == ["1.1141"]


def test_a_server_ends_what_was_left_in_the_middle(folder: Path) -> None:
    with a_server(folder):
        eventually(lambda: ["cut", "Succeeded", "5/5"] in states(folder), "the end of cut")
        eventually(lambda: ["held", "Running", "3/4"] in states(folder), "the trials of held that are not suspended")
        katib_here("resume", "held-4ghtgqgf", cwd=folder)
        eventually(lambda: ["held", "Succeeded", "4/4"] in states(folder), "the end of held")

    for name, before in {"cut": CUT, "held": HELD}.items():
        values = values_of(folder, name)
        assert before.items() <= values.items()
        for trial in trials_of(folder, name):
            assert values[trial["metadata"]["name"]] == pytest.approx(loss_of(trial), abs=1e-4)


def test_a_caller_goes_on_with_the_trial_of_one_that_died(folder: Path) -> None:
    experiment = katib.open("told", data_dir=folder / ".katib").resume()
    with closing(experiment):
        asked = []
        for trial in experiment.ask_until_done():
            asked.append(trial.name)
            trial.tell(acc=0.5, size=1)
        assert asked[0] == "told-nbcm2699"
        assert experiment.result().best.value == 0.75


@pytest.mark.slow
def test_readings_in_postgresql_are_all_there() -> None:
    server = postgresql()
    name = server.new_database()
    server.sql(f"SET ROLE {USER};\n{(STATE / 'postgresql.sql').read_text()}", name)
    with closing(open_sql_server(address_of(server.url(name)))) as database:
        log = SqlObservationLog(database)
        for trial, value in {**CUT, **ENDED, **HELD}.items():
            assert float(log.newest(trial, limit=1)[0].value) == value
        assert [reading.step for reading in log.read("told-wkh5wrlm", metric_name="acc")] == [1, 2, 2]
        log.delete("cut-7wzvcdbp")
        assert log.count("cut-7wzvcdbp") == 0


def put_objects(plane: ControlPlane, namespace: str) -> str:
    """Put the experiment `demo` into a new namespace as a controller left it: three trials ended, two running."""
    plane.namespace(namespace)
    uids: dict[str, str] = {}
    for obj in json.loads((STATE / "objects.json").read_text().replace('"upgraded"', f'"{namespace}"')):
        metadata = {key: obj["metadata"][key] for key in KEPT if key in obj["metadata"]}
        owners = [{**owner, "uid": uids[owner["uid"]]} for owner in obj["metadata"].get("ownerReferences", ())]
        made = plane.store.create({**obj, "metadata": {**metadata, "ownerReferences": owners}})
        uids[obj["metadata"]["uid"]] = made["metadata"]["uid"]
        if "status" in obj:
            plane.store.update_status({**made, "status": obj["status"]})
    return namespace


def values_at_the_end(plane: ControlPlane, namespace: str) -> dict[str, str]:
    plane.wait_for_end("demo", namespace)
    eventually(lambda: not plane.store.list(STAND_IN, namespace).items)
    return {
        trial["metadata"]["name"]: trial["status"]["observation"]["metrics"][0]["latest"]
        for trial in plane.trials(namespace)
    }


@pytest.mark.slow
@pytest.mark.cluster
def test_a_controller_ends_what_the_one_before_it_left(api_server: ApiServer, tmp_path: Path) -> None:
    with ControlPlane(api_server, tmp_path, lambda _job: "0.9") as plane:
        namespace = put_objects(plane, "after-0-2-0")
        plane.controller("new").start()

        values = values_at_the_end(plane, namespace)
        assert {**values, **ENDED_DEMO} == values
        assert sorted(values.values()) == ["0.3", "0.4", "0.5", "0.9", "0.9", "0.9"]


@pytest.mark.slow
@pytest.mark.cluster
def test_trials_that_katib_started_report_without_a_token_to_the_end(api_server: ApiServer, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "observations.db")) as katibs:
        katibs.execute(KATIB_TABLE)
    with ControlPlane(api_server, tmp_path, lambda _job: None) as plane:
        namespace = put_objects(plane, "after-katib")
        running = [job["metadata"]["name"] for job in plane.store.list(STAND_IN, namespace).items]
        collector = DbManagerClient(plane.db_manager_address)
        for name, value in zip(running, ("0.1", "0.2"), strict=True):
            collector.report(name, [MetricLog(ZERO_TIME, "loss", value)])
        plane.stand_ins.outcome = lambda job: None if job["metadata"]["name"] in running else "0.9"
        plane.controller("new").start()
        for job in plane.store.list(STAND_IN, namespace).items:
            if job["metadata"]["name"] in running:
                done = {"type": "Succeeded", "status": "True", "reason": "Done", "message": ""}
                plane.store.update_status({**job, "status": {"conditions": [done]}})

        values = values_at_the_end(plane, namespace)
        assert [values[name] for name in running] == ["0.1", "0.2"]
        assert sorted(values.values()) == ["0.1", "0.2", "0.3", "0.4", "0.5", "0.9"]
        begun_here = (values.keys() - ENDED_DEMO.keys() - set(running)).pop()
        with pytest.raises(ForbiddenError, match="a token is required to report"):
            collector.report(begun_here, [MetricLog(ZERO_TIME, "loss", "0")])
