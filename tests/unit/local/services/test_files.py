from __future__ import annotations

import os
from pathlib import Path

import pytest

from katib.engine.algorithm_services.plan import ServiceId
from katib.places.machine.services.files import ServiceLog


def _write(log: ServiceLog, data: bytes) -> None:
    descriptor = log.open()
    os.write(descriptor, data)
    os.close(descriptor)


@pytest.fixture
def log(tmp_path: Path) -> ServiceLog:
    return ServiceLog(tmp_path / "services", ServiceId("tpe"))


@pytest.mark.parametrize(
    ("printed", "lines"),
    [(b"one\n\n  two\nthree\nfour", "two | three | four"), (b"", ""), (b"\xff\xfe done\n", "\ufffd\ufffd done")],
    ids=["lines", "silence", "no text"],
)
def test_the_last_lines_are_those_of_the_newest_process(log: ServiceLog, printed: bytes, lines: str) -> None:
    _write(log, b"old words\n")
    _write(log, printed)

    assert log.last_lines() == lines
    assert log.path.read_bytes().startswith(b"old words\n")


def test_a_long_output_costs_no_more_than_its_end(log: ServiceLog) -> None:
    _write(log, b"x" * 100_000)

    assert len(log.last_lines()) <= 4096


def test_a_large_log_is_set_aside_when_a_new_process_starts(log: ServiceLog) -> None:
    _write(log, b"x" * (1 << 21))
    _write(log, b"new\n")

    assert log.path.read_bytes() == b"new\n"
    assert log.path.with_name("suggestion-tpe.log.1").stat().st_size == 1 << 21
    assert log.last_lines() == "new"


def test_the_two_kinds_of_one_name_have_different_logs(tmp_path: Path) -> None:
    kinds = {ServiceLog(tmp_path, ServiceId("x", early_stopping=e)).path.name for e in (False, True)}

    assert kinds == {"suggestion-x.log", "early-stopping-x.log"}
