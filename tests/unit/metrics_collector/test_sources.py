from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from metrics_collector.sources.file_tail import CHUNK_BYTES, FileTail
from tests.support.golden import Golden


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.log"


@pytest.fixture
def tail(path: Path) -> Iterator[FileTail]:
    tail = FileTail(path)
    yield tail
    tail.close()


def polled(tail: FileTail) -> bytes:
    return b"".join(tail.poll())


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_file_may_appear_late(tail: FileTail, path: Path) -> None:
    assert polled(tail) == b""

    path.write_bytes(b"loss=1\n")

    assert polled(tail) == b"loss=1\n"
    assert polled(tail) == b""


def test_only_what_is_new_is_read(tail: FileTail, path: Path) -> None:
    append(path, b"loss=1\nlo")
    assert polled(tail) == b"loss=1\nlo"

    append(path, b"ss=2\n")

    assert polled(tail) == b"ss=2\n"


def test_a_truncated_file_is_read_from_its_start(tail: FileTail, path: Path) -> None:
    append(path, b"loss=1\nloss=2\n")
    polled(tail)

    path.write_bytes(b"loss=3\n")

    assert polled(tail) == b"loss=3\n"


def test_the_old_file_is_read_to_its_end_before_the_one_that_replaced_it(tail: FileTail, path: Path) -> None:
    append(path, b"loss=1\n")
    polled(tail)
    append(path, b"loss=2\n")
    path.rename(path.with_suffix(".1"))
    path.write_bytes(b"loss=3\n")

    assert polled(tail) == b"loss=2\nloss=3\n"


def test_half_a_line_of_the_old_file_is_not_joined_to_the_new_one(tail: FileTail, path: Path) -> None:
    append(path, b"loss=1")
    polled(tail)
    path.unlink()
    path.write_bytes(b"2\n")

    assert polled(tail) == b"\n2\n"


def test_half_a_line_before_a_truncation_is_not_joined_either(tail: FileTail, path: Path) -> None:
    append(path, b"some loss=1")
    polled(tail)
    path.write_bytes(b"2\n")

    assert polled(tail) == b"\n2\n"


def test_a_deleted_file_is_followed_while_somebody_writes_to_it(tail: FileTail, path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(b"loss=1\n")
        polled(tail)
        path.unlink()
        file.write(b"loss=2\n")

        assert polled(tail) == b"loss=2\n"

    path.write_bytes(b"loss=3\n")
    assert polled(tail) == b"loss=3\n"


def test_a_large_file_comes_in_chunks_and_may_be_left_in_between(tail: FileTail, path: Path) -> None:
    path.write_bytes(b"x" * (3 * CHUNK_BYTES + 1))

    assert len(next(tail.poll())) == CHUNK_BYTES
    assert [len(chunk) for chunk in tail.poll()] == [CHUNK_BYTES, CHUNK_BYTES, 1]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "named pipe"])
def test_what_is_no_regular_file_is_a_problem_and_does_not_block(
    tail: FileTail, path: Path, make: object, golden: Golden
) -> None:
    make(path)  # type: ignore[operator]  # either takes a path

    assert polled(tail) == b""
    golden(tail.problem)


def test_a_path_through_a_file_is_a_problem_that_may_pass(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "out").write_bytes(b"")
    tail = FileTail(tmp_path / "out" / "metrics.log")

    assert polled(tail) == b""
    golden(tail.problem)

    (tmp_path / "out").unlink()
    (tmp_path / "out").mkdir()
    append(tail.path, b"loss=1\n")
    assert polled(tail) == b"loss=1\n"
    assert tail.problem == ""
    tail.close()
