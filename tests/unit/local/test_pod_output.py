"""What the log of a container tells about its failure."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from katib.places.machine.pods.log_file import LogFile, LogLimits, log_parts, read_end
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.output import Monitor, Output
from katib.places.machine.pods.tools import PodTools
from katib.places.machine.processes.peek import LINE_BYTES, PipePeeker
from metrics_collector.parsers import TextParser
from tests.support.golden import Golden
from tests.support.waiting import eventually

FRAME = "  [bt] ({}) /usr/lib/python3.11/lib-dynload/_ctypes.so(+0xbd9e) [0x7faad10e7d9e]\n"
TRACE = "".join(map(FRAME.format, range(9)))


def log_of(path: Path, text: str) -> LogFile:
    log = LogFile(path)
    log.open()
    log.write(text.encode())
    log.close()
    return log


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\nOSError: [Errno 98] Address already in use\n",
        "DistNetworkError: The server socket has failed to listen. code: -98, name: EADDRINUSE\n",
        "jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server\n",
        "UnknownError: Could not start gRPC server\n",
        "lightgbm.basic.LightGBMError: Binding port 47595 failed\n",
        f"xgboost: bind failed: Address already in use\n{TRACE}",
    ],
    ids=["python", "torch", "jax", "tensorflow", "lightgbm", "xgboost"],
)
def test_a_port_that_is_taken_is_recognized_in_what_frameworks_print(tmp_path: Path, text: str) -> None:
    assert log_of(tmp_path / "log", "epoch=1 loss=2\n" * 1000 + text).names_address_in_use()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: boom\n",
        "ConnectionRefusedError: [Errno 111] refused\n",
        "bind: Address already in use\n" + "epoch=1 loss=2\n" * 1000,
    ],
    ids=["silence", "error", "refused", "long before the end"],
)
def test_other_failures_are_not(tmp_path: Path, text: str) -> None:
    assert not log_of(tmp_path / "log", text).names_address_in_use()
    assert not LogFile(tmp_path / "missing" / "log").names_address_in_use()


def numbered(count: int, first: int = 0) -> bytes:
    return b"".join(b"line %06d\n" % number for number in range(first, first + count))  # 12 bytes each


def test_a_log_is_cut_at_line_ends_and_only_its_newest_files_are_kept(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "main.log", LogLimits(max_bytes=100, max_files=3))
    log.open()
    data = numbered(60)
    for start in range(0, len(data), 7):
        log.write(data[start : start + 7])
    log.close()

    parts = log_parts(tmp_path / "main.log")
    texts = [part.read_bytes() for part in parts]

    assert [part.name for part in parts] == ["main.log.6", "main.log.7", "main.log"]
    assert all(0 < len(text) <= 100 for text in texts)
    assert data.endswith(b"".join(texts))
    assert len(list(tmp_path.glob("main.log*"))) == len(list(tmp_path.glob("main.times.*"))) == 3


def test_large_chunks_are_cut_between_lines_and_a_line_longer_than_a_file_goes_on_in_the_next_one(
    tmp_path: Path,
) -> None:
    logs = [LogFile(tmp_path / name, LogLimits(max_bytes=100, max_files=n)) for name, n in (("many", 3), ("long", 5))]
    for log, chunks in zip(logs, ([numbered(3), numbered(1000, 3)], [b"a\n" + b"x" * 250 + b"\n"]), strict=True):
        log.open()
        for chunk in chunks:
            log.write(chunk)
        log.close()
    many, long = ([part.read_bytes() for part in log_parts(tmp_path / name)] for name in ("many", "long"))

    assert [part[-1:] for part in many] == [b"\n"] * 3
    assert b"".join(many) == numbered(1003)[-12 * (8 + 8 + 3) :]
    assert list(map(len, long)) == [2, 100, 100, 51]


def test_the_end_of_a_log_is_read_across_its_files(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "main.log", LogLimits(max_bytes=60, max_files=5))
    log.open()
    log.write(numbered(3))
    start = log.size
    log.write(numbered(9, 3))

    assert read_end(tmp_path / "main.log", 100) == numbered(12)[-100:]
    assert log.text_from(start).encode() == numbered(9, 3)
    assert log.last_line() == "line 000011"


def test_a_container_that_is_started_again_goes_on_with_the_numbers(tmp_path: Path) -> None:
    for run in range(2):
        log = LogFile(tmp_path / "main.log", LogLimits(max_bytes=24, max_files=9))
        log.open()
        log.write(numbered(3, 3 * run))
        log.close()

    assert b"".join(part.read_bytes() for part in log_parts(tmp_path / "main.log")) == numbered(6)


def test_a_log_that_filled_the_disk_keeps_its_end(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "main.log", LogLimits(max_bytes=100_000, max_files=3))
    log.open()
    log.write(numbered(20_000))
    log.close()

    log.shrink()

    assert log_parts(tmp_path / "main.log") == [tmp_path / "main.log"]
    mark = b"\n[katib] 223616 bytes of output are missing here: the disk was full\n"
    assert (tmp_path / "main.log").read_bytes() == mark + numbered(20_000)[-(1 << 14) :]


def test_output_that_found_no_room_is_counted_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    full: list[str] = []
    log = LogFile(tmp_path / "main.log", on_full=lambda: full.append("full"))
    log.open()
    log.write(b"before\n")

    def no_room(_fd: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_room)
        log.write(b"lost\n")
        log.write(b"lost too\n")
    log.write(b"after\n")

    mark = "\n[katib] 14 bytes of output are missing here: the disk was full\n"
    assert (tmp_path / "main.log").read_text() == f"before\n{mark}after\n"
    golden(log.problem)
    assert full == ["full", "full"]


def test_an_error_that_is_no_lack_of_room_ends_the_log(tmp_path: Path, golden: Golden) -> None:
    log = LogFile(tmp_path / "main.log", LogLimits(max_bytes=24))
    log.open()
    (tmp_path / "main.log").unlink()  # it cannot be renamed any more

    log.write(numbered(3))

    golden(log.problem)


@pytest.mark.parametrize("limit", [1 << 20, 40, 7], ids=["one file", "lines", "parts of lines"])
def test_bytes_move_from_a_pipe_to_the_log_as_if_they_were_written(tmp_path: Path, limit: int) -> None:
    limits = LogLimits(max_bytes=limit, max_files=1000)
    written, moved = LogFile(tmp_path / "written.log", limits), LogFile(tmp_path / "moved.log", limits)
    read, write = os.pipe()
    peek = PipePeeker()
    written.open()
    moved.open()
    for part in (numbered(3), b"no end ", b"of a line\n" + numbered(2), b"\n\n"):
        os.write(write, part + b"behind")
        data = peek.read(read, len(part))
        assert data == part
        moved.move(data, read)
        assert os.read(read, 100) == b"behind"
        written.write(part)
    os.close(write)
    assert peek.read(read, 10) == b""
    os.close(read)
    peek.close()

    contents = [[part.read_bytes() for part in log_parts(tmp_path / name)] for name in ("written.log", "moved.log")]
    assert contents[0] == contents[1]
    assert b"".join(LogFile(tmp_path / "moved.log", limits).contents()) == b"".join(contents[0])


def test_bytes_that_the_disk_does_not_take_are_taken_from_the_pipe_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "")

    log = LogFile(tmp_path / "main.log")
    log.open()
    read, write = os.pipe()
    os.write(write, b"lost\nkept\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, "splice", no_space)
        log.move(b"lost\n", read)
    log.move(b"kept\n", read)
    os.close(read)
    os.close(write)

    assert (
        tmp_path / "main.log"
    ).read_bytes() == b"\n[katib] 5 bytes of output are missing here: the disk was full\nkept\n"


def test_where_the_kernel_cannot_move_bytes_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object, **__: object) -> int:
        raise OSError(errno.EINVAL, "")

    monkeypatch.setattr(os, "splice", cannot)
    log = LogFile(tmp_path / "main.log")
    log.open()
    read, write = os.pipe()
    for line in (b"one\n", b"two\n"):
        os.write(write, line)
        log.move(line, read)
    os.close(write)

    assert os.read(read, 10) == b""
    assert (tmp_path / "main.log").read_bytes() == b"one\ntwo\n"
    os.close(read)


# --- The two pipes of a container: lines of standard output and standard error are never mixed ------------------------


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
