"""Opening a data directory: by several processes at once, of an earlier release, and only to read."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

import katib
from katib.doors.optuna_storage.translation import objective_of, parameter_of
from katib.doors.rest.door import open_door
from katib.engine.databases.migrations import upgrade
from katib.engine.databases.sqlite import open_database
from katib.engine.observations import SqlObservationLog
from katib.engine.stores.events import EventLog
from katib.engine.stores.sql import SqlStore
from katib.errors import InvalidError, TerminalError
from katib.model.names import name_of_title
from katib.model.types import TrialState
from katib.places.machine import open_engine, open_offline
from katib.places.machine.layout import Layout
from katib.service.tuning.service import TuningService
from katib.service.tuning.trial_pages import TRIAL_FACTS
from tests.support import observations
from tests.support.cli import katib_here
from tests.support.clock import VirtualClock
from tests.support.modes import bound_by_modes
from tests.support.processes import launching

DUMP = Path(observations.__file__).with_name("data_directory_0_1_0.sql")
"""What `katib run` of version 0.1.0 left, two trials long."""

ASHA = ("--early-stopping", "asha")
OPEN = """
import sys
from pathlib import Path
from katib.engine.databases.sqlite import open_database
from katib.engine.observations import SqlObservationLog
from katib.engine.runtime.clock import SystemClock
from katib.engine.stores.events import EventLog
from katib.service.tuning.trial_pages import TRIAL_FACTS
from katib.engine.stores.sql import SqlStore

print("ready", flush=True)
for line in sys.stdin:
    with open_database(Path(line.strip())) as database:
        EventLog(database, SystemClock())
        SqlStore(database, (), facts=TRIAL_FACTS)
        SqlObservationLog(database)
    print("opened", flush=True)
"""


def lay_out(path: Path) -> None:
    with open_database(path) as database:
        SqlStore(database, (), facts=TRIAL_FACTS)
        SqlObservationLog(database)
        EventLog(database, VirtualClock())


def schema(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    found = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"))
    connection.close()
    return found


def numbers(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    found = dict(connection.execute("SELECT room, version FROM schema_versions"))
    connection.close()
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory of version 0.1.0."""
    layout = Layout(tmp_path / "data")
    layout.create()
    connection = sqlite3.connect(layout.database)
    connection.executescript(DUMP.read_text())
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    return layout.root


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in [directory, *sorted(directory.rglob("*"))]
    }


def told(service: TuningService) -> tuple[list[str], list[str], list[str]]:
    """Return what can be read of the experiment: trials, readings, events."""
    trials = [trial.name for trial in service.trials("default", "old").items]
    values = [reading.value for trial in trials for reading in service.metrics("default", trial)]
    return trials, values, [event.reason for event in service.events("Experiment", "default", "old")]


TOLD = (["old-qpbkh7x6", "old-z7pbpmb7"], ["0.9555953605370416", "0.2973395683522827"], 11)


def summary(service: TuningService) -> tuple[list[str], list[str], int]:
    trials, values, events = told(service)
    return trials, values, len(events)


# --- several processes ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def openers() -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-c", OPEN]
    with launching() as launch:
        started = [launch(command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True) for _ in range(4)]
        assert [line_of(process) for process in started] == ["ready\n"] * len(started)
        yield started


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("before", ["nothing", "an earlier release"])
def test_processes_that_open_a_file_first_at_once_all_succeed(
    tmp_path: Path, directory: Path, before: str, openers: list[subprocess.Popen[str]]
) -> None:
    lay_out(tmp_path / "expected.db")
    for number in range(10):
        path = tmp_path / f"{number}.db"
        if before != "nothing":
            path.write_bytes(Layout(directory).database.read_bytes())
        for process in openers:
            assert process.stdin is not None
            process.stdin.write(f"{path}\n")
            process.stdin.flush()

        assert [line_of(process) for process in openers] == ["opened\n"] * len(openers)
        assert set(schema(tmp_path / "expected.db")) <= set(schema(path))


def test_an_upgrade_that_another_process_did_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    """The number is read before the lock is there, and the other process has it then."""
    path = tmp_path / "katib.db"
    lay_out(path)
    done: list[int] = []

    def adopted(_connection: object) -> int:
        if not done:
            done.append(0)
            with open_database(path) as other:
                upgrade(other, "room", 1, lambda _connection, found: done.append(found))
        return 0

    with open_database(path) as database:
        upgrade(database, "room", 1, lambda _connection, found: done.append(found), adopted=adopted)

        assert done == [0, 0]
        assert database.schema_version("room") == 1


# --- earlier releases -------------------------------------------------------------------------------------------------


def test_a_file_of_an_earlier_release_is_brought_up_to_date_and_keeps_everything(
    directory: Path, tmp_path: Path
) -> None:
    path = Layout(directory).database
    lay_out(path)
    lay_out(tmp_path / "fresh.db")
    taken_over, fresh = numbers(path), numbers(tmp_path / "fresh.db")

    assert summary(open_offline(directory)) == TOLD
    assert {room: taken_over[room] for room in ("objects", "events")} == {
        room: fresh[room] for room in ("objects", "events")
    }


# --- only to read -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["up to date", "an earlier release", "an earlier layout of the objects"])
def readable(request: pytest.FixtureRequest, directory: Path) -> Path:
    path = Layout(directory).database
    if request.param == "up to date":
        lay_out(path)
    elif request.param == "an earlier layout of the objects":
        connection = sqlite3.connect(path)
        connection.execute("DELETE FROM schema_versions WHERE room = 'events'")
        connection.execute("DROP TABLE events")
        connection.commit()
        connection.close()
    return directory


def test_reading_a_data_directory_leaves_its_file_as_it_is(readable: Path) -> None:
    before = contents(readable)
    trials, values, _ = summary(open_offline(readable))
    after = contents(readable)

    assert (trials, values) == TOLD[:2]
    assert {name: after[name] for name in before} == before
    assert {name for name in after if name not in before} <= {"katib.db-shm", "katib.db-wal"}
    assert after.get("katib.db-wal", (0, b""))[1] == b""


def test_a_directory_that_may_not_be_written_can_be_read(readable: Path) -> None:
    for path in readable.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    readable.chmod(0o555)
    before = contents(readable)

    with pytest.raises(PermissionError):
        bound_by_modes((readable / "new").touch)
    assert bound_by_modes(lambda: summary(open_offline(readable))[:2]) == TOLD[:2]
    assert contents(readable) == before


def test_readers_see_what_a_writer_stores_meanwhile(directory: Path) -> None:
    lay_out(Layout(directory).database)
    service = open_offline(directory)
    before = len(service.metrics("default", "old-qpbkh7x6"))
    with open_database(Layout(directory).database) as database:
        SqlObservationLog(database).report("old-qpbkh7x6", [observations.reading("1")])

        assert len(service.metrics("default", "old-qpbkh7x6")) == before + 1


def test_whoever_reads_changes_nothing(directory: Path) -> None:
    with pytest.raises(InvalidError) as caught:
        open_offline(directory).delete("default", "old")
    with (
        open_database(Layout(directory).database, read_only=True) as database,
        pytest.raises(TerminalError),
        database.write() as connection,
    ):
        connection.exec_driver_sql("DELETE FROM objects")

    assert [error.origin for error in caught.value.errors] == ["read-only"]
    assert summary(open_offline(directory)) == TOLD


def test_showing_objects_imports_neither_sqlalchemy_nor_pydantic(directory: Path) -> None:
    lay_out(Layout(directory).database)
    code = """
import sys
from katib.doors.cli import main
for command in (["trials", "old", "--sort", "objective"], ["best", "old"], ["get"], ["get", "trials", "-o", "name"]):
    assert main([*command, "--data-dir", sys.argv[1]]) == 0, command
sys.exit(str({"sqlalchemy", "pydantic", "yaml", "asyncio", "httpx"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=False)

    assert done.stderr.strip() == "set()"


def test_an_experiment_is_found_in_the_namespace_that_all_are_in(tmp_path: Path) -> None:
    space = {"lr": katib.search.double(0, 1)}
    with katib.create("mine", space, max_trials=1, data_dir=tmp_path, namespace="team") as experiment:
        for trial in experiment.ask_until_done():
            trial.tell(trial.parameters["lr"])

    opened = katib.open("mine", data_dir=tmp_path)
    assert (opened.place.namespace, len(opened.trials)) == ("team", 1)
    assert katib.plots.history("mine", data_dir=tmp_path).data
    assert opened.plots.history().data


def test_a_study_is_found_by_its_title_as_by_its_name(tmp_path: Path) -> None:
    title, data_dir = "My Study", tmp_path / ".katib"
    with open_engine(data_dir=data_dir, own_process=False) as engine:
        engine.start()
        study = engine.chosen_trials.create(title, objective_of([0]), "")
        trial = engine.chosen_trials.create_trial(study)
        distribution = {"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 1.0}}
        engine.chosen_trials.choose(study, trial, *parameter_of("x", 0.5, json.dumps(distribution)))
        engine.chosen_trials.turn(study, trial, TrialState.SUCCEEDED, [2.0])
        with open_door(engine.service, data_dir):
            stopped = katib_here("stop", title, cwd=tmp_path)
            resumed = katib_here("resume", title, cwd=tmp_path)

    name = name_of_title(title)
    assert stopped.stdout.startswith(f"experiment/{name}: stopped after "), stopped.stderr
    assert resumed.stdout == f"experiment/{name}: resumed\n", resumed.stderr
    assert katib.open(title, data_dir=data_dir).best.name == f"{name}-0"
    for command in (("get", "experiments"), ("best",), ("trials",), ("why",), ("describe",), ("replay", *ASHA)):
        done = [katib_here(*command, one, cwd=tmp_path) for one in (title, name)]
        by_title, by_name = (re.sub(r"\b\d+s\b", "AGE", one.stdout) for one in done)
        assert by_title == by_name != "", done[0].stderr
        assert f'"{title}s"' in katib_here(*command, f"{title}s", cwd=tmp_path).stderr.replace("/", '"')
    assert katib_here("delete", title, cwd=tmp_path).stdout == f"experiment/{name} deleted\n"
