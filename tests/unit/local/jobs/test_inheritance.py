"""What one engine leaves for the next one about a job, and what the next one makes of it."""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from katib.engine.runtime.objects import Key, Kind
from katib.places.machine.jobs.run import RunNote, decoded, is_plain
from katib.places.machine.pods.pod import MachinePods, by_pod
from katib.places.machine.pods.tools import PodTools
from katib.places.machine.processes.connection import KeptProcess

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
