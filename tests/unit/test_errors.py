"""Errors: those that pass by themselves, pauses before another attempt, and the words of a wrong one."""

from __future__ import annotations

import errno
import os

import pytest

from katib.errors import Backoff, ConflictError, InternalError, code_of, shortage_in, shortage_of
from katib.model.wording import closest
from katib.places.machine.processes.handle import Command, spawn_error


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def import_error(words: str, cause: Exception | None = None) -> ImportError:
    error = ImportError(words)
    error.__cause__ = cause
    return error


MAP = "libscipy.so: failed to map segment from shared object"


@pytest.mark.parametrize(
    ("error", "lack", "words"),
    [
        (MemoryError(), "the machine has too little memory", "MemoryError"),
        (import_error(MAP), "the machine has too little memory", MAP),
        (import_error("PLEASE READ THIS", import_error(MAP)), "the machine has too little memory", MAP),
        (import_error("x.so: cannot open shared object file: Too many open files"), "too many files are open", "x.so"),
        (os_error(errno.ENOMEM), "the machine has too little memory", "Cannot allocate memory"),
        (BlockingIOError(errno.EAGAIN, "fork"), "no more processes or threads can be started", "fork"),
        (RuntimeError("can't start new thread"), "no more processes or threads can be started", "new thread"),
        (os_error(errno.EMFILE), "too many files are open", "Too many open files"),
        (os_error(errno.ENFILE), "too many files are open", "Too many open files in system"),
        (os_error(errno.ENOSPC), "the disk is full", "No space left on device"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_shortage_is_told_with_its_own_words(error: Exception, lack: str, words: str) -> None:
    shortage = shortage_of(error)

    assert shortage is not None
    assert str(shortage).startswith(f"{lack}: ")
    assert words in str(shortage)
    assert code_of(error).grpc_code == "UNAVAILABLE"


@pytest.mark.parametrize(
    "error",
    [
        ImportError("No module named 'skopt'"),
        ImportError("libgomp.so.1: cannot allocate memory in static TLS block"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        RuntimeError("a bug"),
        ValueError("MemoryError"),
        ConflictError("MemoryError"),
    ],
    ids=str,
)
def test_other_errors_are_no_shortage(error: Exception) -> None:
    assert shortage_of(error) is None


def test_the_words_of_a_shortage_that_another_process_told_are_not_wrapped_again() -> None:
    told = str(shortage_of(MemoryError()))

    assert str(shortage_in(told)) == told


def test_an_error_that_happened_while_a_shortage_was_handled_is_a_bug() -> None:
    error = KeyError("x")
    error.__context__ = MemoryError()

    assert code_of(error).reason == code_of(InternalError()).reason


def test_a_program_that_cannot_be_started_for_want_of_processes_may_be_started_later() -> None:
    error = spawn_error("fork", errno.EAGAIN, "", Command(["train"], {}))

    assert shortage_of(error) is error
    assert str(error).startswith('cannot start "train" now: no more processes or threads can be started: ')


# --- Pauses between attempts: a pure function of how many failed ------------------------------------------------------


def test_pauses_double_up_to_their_bound() -> None:
    backoff = Backoff(0.05, 15.0)

    assert [backoff.pause_seconds(failures) for failures in (0, 1, 2, 3, 9, 10, 2000)] == [
        0.0,
        0.05,
        0.1,
        0.2,
        12.8,
        15.0,
        15.0,
    ]


def test_the_factor_can_be_another() -> None:
    assert [Backoff(1, 100, factor=4).pause_seconds(failures) for failures in (1, 2, 3, 4, 5)] == [1, 4, 16, 64, 100]


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 8.0), (0.5, 6.0), (1.0, 4.0)])
def test_chance_takes_away_at_most_the_jitter(chance: float, seconds: float) -> None:
    assert Backoff(8, 8, jitter=0.5).pause_seconds(3, chance) == seconds


def test_the_first_pause_is_bounded_too() -> None:
    assert Backoff(60, 10).pause_seconds(1) == 10


# --- Words of errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "choice"),
    [("bayes", "bayesianoptimization"), ("cmaess", "cmaes"), ("optimization", "bayesianoptimization"), ("gp", "")],
    ids=["begins so", "spelled almost so", "holds it", "too short"],
)
def test_the_closest_choice_begins_so_before_it_is_spelled_so(word: str, choice: str) -> None:
    assert closest(word, ["cmaes", "bayesianoptimization", "random"]) == choice
