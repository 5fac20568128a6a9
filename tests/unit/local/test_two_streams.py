"""The two pipes of a container: lines of standard output and standard error are never mixed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from katib.places.machine.pods.log_file import LogFile
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.output import Monitor, Output
from katib.places.machine.pods.tools import PodTools
from katib.places.machine.processes.peek import LINE_BYTES, PipePeeker
from metrics_collector.parsers import TextParser
from tests.support.waiting import eventually


class Container:
    """A log, what a monitor was fed, and the ends at which a program prints."""

    def __init__(self, directory: Path, loop: Loop, peek: PipePeeker | None) -> None:
        self.log = LogFile(directory / "main.log")
        self.log.open()
        self.fed = b""
        self.ended: list[bool] = []
        self._loop = loop
        self._tools = cast("PodTools", SimpleNamespace(loop=loop, peek=peek))

    def feed(self, data: bytes) -> None:
        self.fed += data

    def run(self, pipes: tuple[int, ...] = ()) -> None:
        monitor = cast("Monitor", SimpleNamespace(feed=self.feed, backlogged=False))
        self.output = Output(self._tools, self.log, monitor, lambda: None, is_kept=True, pipes=pipes)
        self.pipes = self.output.write_fds
        self._loop.call_soon(self.output.start)

    def print(self, stream: int, data: bytes, then: bytes | None = None) -> None:
        os.write(self.pipes[stream], data)
        if then is not None:
            eventually(lambda: self.fed.endswith(then), f"{then!r} at the monitor")

    def end(self) -> bytes:
        """End the run; return what stands in the log."""
        self._loop.call_soon(lambda: self.output.finish(lambda: self.ended.append(True)))
        eventually(lambda: self.ended, "the end of the output")
        for pipe in self.pipes:
            os.close(pipe)
        assert self.log.path.read_bytes() == self.fed
        return self.fed


@pytest.fixture(params=["bytes stay in the pipe", "bytes are read"])
def container(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Container]:
    loop = Loop()
    loop.start()
    with closing(PipePeeker()) as peek:
        made = Container(tmp_path, loop, peek if request.param == "bytes stay in the pipe" else None)
        yield made
        made.log.close()
        with suppress(OSError):
            loop.stop()


def test_a_line_that_has_not_ended_waits_while_the_other_stream_goes_on(container: Container) -> None:
    container.run()
    container.print(0, b"accuracy=0.6")
    container.print(1, b"2026 saved\n", then=b"2026 saved\n")
    container.print(0, b"25\n10%\r", then=b"accuracy=0.625\n10%\r")
    container.print(1, b"2026 saved\nWarning", then=b"\n2026 saved\n")
    container.print(0, b"accuracy=0.7")

    text = container.end()

    assert text == b"2026 saved\naccuracy=0.625\n10%\r\n2026 saved\naccuracy=0.7\nWarning"
    assert [log.value for log in TextParser(["accuracy"]).feed(text)] == ["0.625", "0.7"]


def test_an_error_stands_behind_what_was_printed_before(container: Container) -> None:
    container.run()
    for number in range(50):
        container.print(0, b"reads its data %d" % number)
        container.print(0, b"\n")
        container.print(1, b"ValueError %d\n" % number, then=b"ValueError %d\n" % number)

    lines = [line for number in range(50) for line in (b"reads its data %d\n" % number, b"ValueError %d\n" % number)]
    assert container.end() == b"".join(lines)


def test_a_run_does_not_continue_the_last_line_of_the_one_before(container: Container) -> None:
    container.run()
    container.print(0, b"accuracy=0.6")
    container.end()
    container.ended.clear()
    container.run()
    container.print(0, b"25\n")

    assert container.end() == b"accuracy=0.6\n25\n"


def test_a_very_long_line_goes_on_in_parts(container: Container) -> None:
    container.run()
    for _ in range(3):
        container.print(0, b"x" * LINE_BYTES)
    eventually(lambda: len(container.fed) >= 2 * LINE_BYTES, "the line")

    assert container.end() == b"x" * 3 * LINE_BYTES


def test_what_is_left_by_another_engine_is_read_before_both_pipes(container: Container) -> None:
    container.log.write(b"loss=1\n")
    pipes = [os.pipe(), os.pipe()]
    container.run(tuple(reading for reading, _ in pipes))
    container.pipes = [writing for _, writing in pipes]
    container.print(1, b"a log line\n", then=b"a log line\n")

    assert container.end() == b"loss=1\na log line\n"
