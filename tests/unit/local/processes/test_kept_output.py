"""What a guard does with kept programs, part by part and in this process: pipes, logs, the door of the next engine."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from katib.places.machine.processes import keeping, wire
from katib.places.machine.processes.keeping import KeptProgram, KeptPrograms
from katib.places.machine.processes.peek import PipePeeker

LONG = 1 << 20


class Output:
    """A pipe into which a program prints, and the program."""

    def __init__(self, log: Path, limit: int = LONG, group: str = "job") -> None:
        reading, self.writing = os.pipe()
        os.set_blocking(reading, False)
        self.reading = reading
        self.program = KeptProgram(group, ("pod", "main"), str(log), limit, [reading])

    def close(self) -> None:
        os.close(self.writing)


@pytest.fixture
def poll() -> select.poll:
    return select.poll()


@pytest.fixture
def kept(poll: select.poll) -> Iterator[KeptPrograms]:
    made = KeptPrograms(poll)
    yield made
    made.close()


def door(kept: KeptPrograms, path: Path) -> None:
    """Give the keeper a socket at which engines knock."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    receiver = SimpleNamespace(take_fds=lambda: [listening.detach()])
    kept.handle(("listen",), cast("wire.Receiver", receiver))


def ready(poll: select.poll) -> set[int]:
    return {descriptor for descriptor, _ in poll.poll(1000)}


def test_output_moves_to_the_end_of_the_log_until_the_pipe_ends(tmp_path: Path) -> None:
    log = tmp_path / "main.log"
    log.write_text("before\n")
    output = Output(log)
    os.write(output.writing, b"after\n")
    moved, nothing = output.program.pump(output.reading), output.program.pump(output.reading)
    output.close()
    ended = output.program.pump(output.reading)
    output.program.close_log()
    output.program.close_log()

    assert (moved, nothing, ended) == (True, True, None)
    assert log.read_text() == "before\nafter\n"


def test_lines_of_two_pipes_are_not_mixed_without_an_engine(tmp_path: Path) -> None:
    log = tmp_path / "main.log"
    pipes = [os.pipe(), os.pipe()]
    program = KeptProgram("job", ("pod", "main"), str(log), LONG, [reading for reading, _ in pipes])
    (out, to_out), (err, to_err) = pipes
    for pipe in (out, err):
        os.set_blocking(pipe, False)
    with closing(PipePeeker()) as peek:
        for pipe, data in (
            (to_out, b"accuracy=0.6"),
            (to_err, b"2026 saved\n"),
            (to_out, b"25\naccuracy=0.7"),
            (to_err, b"2026 "),
        ):
            os.write(pipe, data)
            moved = [program.pump(out, peek), program.pump(err, peek)]

    assert moved == [False, False]
    assert log.read_bytes() == b"2026 saved\naccuracy=0.625\n"

    for pipe in (out, err):  # all programs have ended
        program.pump(pipe)

    assert log.read_bytes() == b"2026 saved\naccuracy=0.625\naccuracy=0.7\n2026 "
    program.close_log()
    for pair in pipes:
        for descriptor in pair:
            os.close(descriptor)


def test_what_could_not_be_moved_is_tried_again_after_a_pause(
    tmp_path: Path, kept: KeptPrograms, poll: select.poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = SimpleNamespace(now=100.0)
    monkeypatch.setattr(keeping, "time", SimpleNamespace(monotonic=lambda: moment.now))
    log = tmp_path / "later" / "main.log"
    output = Output(log)
    door(kept, tmp_path / "door")
    kept.add(1, output.program)
    kept.handle(("note", "job", b"note"), cast("wire.Receiver", None))
    kept.handle(("grace", 60.0), cast("wire.Receiver", None))
    needed = kept.is_needed
    kept.begin()
    os.write(output.writing, b"line\n")
    kept.turn(ready(poll))  # stuck, and at once put back for the first try
    kept.turn(ready(poll))
    due = kept.look_at
    log.parent.mkdir()
    kept.turn(set())
    waits = not log.exists()
    moment.now = 101.0
    kept.turn(set())
    kept.turn(ready(poll))

    assert needed
    assert (due, waits, kept.look_at) == (100.1, True, None)
    assert log.read_text() == "line\n"
    output.close()
    kept.turn(ready(poll))  # the pipe has ended: it is not looked at any more
    assert output.reading not in {descriptor for descriptor, _ in poll.poll(0)}
    kept.end()
    kept.drop(1)


def test_a_group_without_a_note_is_not_kept_and_one_that_is_forgotten_is_dropped(
    tmp_path: Path, kept: KeptPrograms
) -> None:
    receiver = cast("wire.Receiver", None)
    outputs = [Output(tmp_path / "a.log"), Output(tmp_path / "b.log", group="other")]
    for key, output in enumerate(outputs):
        kept.add(key, output.program)
    kept.handle(("note", "job", b"note"), receiver)
    kept.handle(("grace", 60.0), receiver)
    before = [kept.keeps(0), kept.keeps(1), kept.keeps(2)]
    is_needed = kept.is_needed  # without a door no engine can come
    door(kept, tmp_path / "door")
    kept.begin()
    after_begin = kept.count
    kept.end()
    kept.handle(("forget", "job"), receiver)
    kept.drop(0)  # dropping what is not known is nothing

    assert before == [True, False, False]
    assert not is_needed
    assert (after_begin, kept.count, kept.is_needed) == (1, 0, False)
    for output in outputs:
        with pytest.raises(BrokenPipeError):
            os.write(output.writing, b"x")
        output.close()


def test_an_engine_that_knocks_is_let_in_unless_it_is_of_another_account(
    tmp_path: Path, kept: KeptPrograms, poll: select.poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    door(kept, tmp_path / "old")
    door(kept, tmp_path / "door")  # in place of the one before
    kept.begin()
    silence = kept.accept(set())
    gone = kept.accept(set(range(1000)))  # it is said to be ready, and nothing knocks
    with socket.socket(socket.AF_UNIX) as mine:
        mine.connect(str(tmp_path / "door"))
        accepted = kept.accept(ready(poll))
        assert accepted is not None
        accepted.close()
    monkeypatch.setattr(keeping, "peer", lambda _engine: (1, os.getuid() + 1))
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(tmp_path / "door"))
        refused = kept.accept(ready(poll))
        hung_up = other.recv(1)
    kept.end()
    kept.close()
    kept.close()

    assert (silence, gone, refused, hung_up) == (None, None, None, b"")
