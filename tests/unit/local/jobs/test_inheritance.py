"""What one engine leaves for the next one about a job, and what the next one makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from katib.engine.runtime.objects import Key, Kind
from katib.places.machine.admission import HostCapacity
from katib.places.machine.jobs.run import RunNote, decoded, is_plain
from katib.places.machine.pods.environment import inherited_environment
from katib.places.machine.pods.pod import MachinePods, by_pod
from katib.places.machine.pods.tools import PodTools
from katib.places.machine.processes.connection import KeptProcess
from katib.wire.rpc import keep_connections_quiet

NOTE = RunNote("batch/v1", "Job", "team", "demo-1", "u1", 12.5, {"tries": 1}, (("w", "p", 80),), (), frozenset({"a"}))


class Inherited:
    """Stands for the processes of an engine that took some over; ends them at once."""

    def __init__(self, notes: dict[str, bytes], *programs: Any) -> None:
        self.inherited: SimpleNamespace | None = SimpleNamespace(notes=notes, programs=programs)
        self.ended: list[object] = []
        self.forgotten: list[str] = []

    def attach(self, program: Any, _on_exit: object) -> Any:
        return program

    def kill_tree(self, program: Any) -> Future[None]:
        self.ended.append(program.key)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def forget(self, group: str) -> None:
        self.forgotten.append(group)

    def is_kept(self, group: str) -> bool:
        return group not in self.forgotten

    def note(self, group: str, data: bytes) -> None:
        raise NotImplementedError


def program(key: int, group: str, pod: str = "pod", container: str = "main") -> KeptProcess:
    return cast("KeptProcess", SimpleNamespace(key=key, group=group, name=(pod, container, 0), outputs=()))


def pods(processes: Inherited) -> MachinePods:
    return MachinePods(cast("PodTools", SimpleNamespace(processes=processes)))


def test_a_note_comes_back_as_it_was_left_and_one_that_cannot_be_read_is_none() -> None:
    assert decoded(NOTE.encode()) == NOTE
    assert (NOTE.key, NOTE.job_kind) == (Key("team", "demo-1"), Kind("batch/v1", "Job"))
    unreadable = [b"", b"\xc1", msgspec.msgpack.encode({"uid": 1}), msgspec.msgpack.encode([1])]
    assert list(map(decoded, unreadable)) == [None] * 4


def test_fields_of_another_version_are_ignored_and_missing_ones_have_their_default() -> None:
    fields = msgspec.msgpack.decode(NOTE.encode())
    del fields["stopped"]
    note = decoded(msgspec.msgpack.encode({**fields, "colour": "red"}))

    assert note is not None
    assert (note.uid, note.stopped) == ("u1", frozenset())


def test_programs_are_found_by_group_pod_and_container_the_oldest_first() -> None:
    kept = [program(3, "b", "p2"), program(2, "a", "p1"), program(1, "a", "p1"), program(4, "a", "p1", "side")]
    found = list(pods(Inherited({"a": b"note", "empty": b"note"}, *kept)).kept())
    of_first = by_pod(found[0].programs)
    first = {pod: {name: [p.key for p in of] for name, of in by.items()} for pod, by in of_first.items()}

    assert [(run.group, run.note) for run in found] == [("a", b"note"), ("empty", b""), ("b", b"")]
    assert first == {"p1": {"main": [1, 2], "side": [4]}}


def test_an_engine_without_a_predecessor_finds_nothing() -> None:
    processes = Inherited({})
    processes.inherited = None

    assert list(pods(processes).kept()) == []


def test_programs_of_no_job_end_and_their_pipes_are_closed() -> None:
    reading, writing = os.pipe()
    processes = Inherited({}, SimpleNamespace(key=7, group="gone", name=("p", "c", 0), outputs=(reading,)))
    pods(processes).end(pods(processes).kept())
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")
    os.close(writing)

    assert (processes.ended, processes.forgotten) == ([7], ["gone"])


@pytest.mark.parametrize(
    ("memory", "plain"),
    [({}, True), ({"a": 1, "b": "x", "c": None, "d": False}, True), ({"a": 1.5}, False), ({"a": Path()}, False)],
)
def test_what_a_kind_remembers_is_left_only_where_it_is_plain(memory: dict[str, object], plain: bool) -> None:
    assert is_plain(memory) is plain


PREFIX = "import sys; print(sys.prefix)"


def prefix_of(command: str, environment: dict[str, str]) -> str:
    program = shutil.which(command, path=environment["PATH"])
    assert program is not None
    return subprocess.run([program, "-c", PREFIX], env=environment, text=True, capture_output=True, check=True).stdout


@pytest.mark.parametrize("command", ["python", "python3"])
@pytest.mark.parametrize("virtual", [True, False], ids=["a virtual environment", "a plain installation"])
def test_python_is_the_one_that_runs_katib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, virtual: bool
) -> None:
    if not virtual:
        monkeypatch.setattr(sys, "executable", getattr(sys, "_base_executable", sys.executable))
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    environment = inherited_environment({"PATH": "/usr/bin:/bin"}, tmp_path / "links")

    assert prefix_of(command, environment).strip() == sys.prefix
    assert environment["PATH"].endswith(":/usr/bin:/bin")


def test_a_plain_installation_brings_nothing_but_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    first = inherited_environment({"PATH": "/usr/bin"}, tmp_path / "links")["PATH"].split(":")[0]

    assert {path.name for path in Path(first).iterdir()} == {"python", "python3"}


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_python_that_the_user_has_chosen_stays(tmp_path: Path, variable: str) -> None:
    chosen = {"PATH": "/opt/mine/bin:/usr/bin", variable: "/opt/mine"}

    assert inherited_environment(chosen, tmp_path / "links") == chosen


def test_trials_inherit_neither_tokens_nor_what_is_of_the_trial_that_their_engine_runs_in(tmp_path: Path) -> None:
    of_another = {"KATIB_DB_MANAGER_ADDRESS": "db:1", "KATIB_DB_MANAGER_TOKEN": "t", "KATIB_DB_MANAGER_CA": "c"}
    of_another |= {"KATIB_ENGINE_ID": "x", "KATIB_PROCESS_ID": "x.1"}
    given = {"KATIB_TOKEN": "secret", "HOME": "/home/me", **of_another}
    environment = inherited_environment(given, tmp_path / "links")

    assert {name: environment[name] for name in environment.keys() & given.keys()} == {"HOME": "/home/me"}


def test_python_need_not_be_on_the_path_to_be_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)

    assert HostCapacity.detect().provided == {"python", "python3"}


@pytest.mark.parametrize("chosen", [{}, {"GRPC_VERBOSITY": "DEBUG"}], ids=["by default", "by the user"])
def test_how_much_grpc_prints_in_the_engine_is_no_matter_of_trials(tmp_path: Path, chosen: dict[str, str]) -> None:
    environ = {"VIRTUAL_ENV": "/env", **chosen}

    keep_connections_quiet(environ)

    assert environ["GRPC_VERBOSITY"] == chosen.get("GRPC_VERBOSITY", "ERROR")
    assert inherited_environment(environ, tmp_path) == {"VIRTUAL_ENV": "/env", **chosen}
