"""What is away when a process starts is waited for, not died of."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from katib.cluster.db_manager import DbManager, read_options
from katib.cluster.outage import BACKOFF, await_answer
from katib.databases.sqlite import Database, open_database
from katib.errors import ForbiddenError, UnavailableError
from katib.runtime.testing import VirtualClock


def test_the_first_answer_is_waited_for_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[str | Exception] = [
        *(UnavailableError(words) for words in ("no answer", "no answer", "starting")),
        "1.36",
    ]
    pauses: list[float] = []

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with caplog.at_level("INFO", "katib"):
        assert await_answer(ask, lambda seconds: bool(pauses.append(seconds))) == "1.36"

    bounds = [BACKOFF.pause_seconds(failures) for failures in (1, 2, 3)]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert [record.getMessage() for record in caplog.records] == [
        "Waiting for the API server: no answer",
        "Waiting for the API server: starting",
        "The API server answers",
    ]


def test_who_waits_can_be_ended_and_what_is_no_outage_is_raised() -> None:
    def away() -> None:
        raise UnavailableError("no answer")

    def forbidden() -> None:
        raise ForbiddenError("may not")

    assert await_answer(away, lambda _seconds: True) is None
    with pytest.raises(ForbiddenError):
        await_answer(forbidden, lambda _seconds: False)
    assert await_answer(forbidden, lambda _seconds: True, (ForbiddenError,)) is None


class HurriedClock(VirtualClock):
    """Lets time pass for whoever waits."""

    def wait(self, _condition: threading.Condition, timeout_seconds: float | None = None) -> None:
        self.advance(timeout_seconds or 0.0)


def test_a_manager_waits_for_its_database_as_long_as_it_takes(tmp_path: Path) -> None:
    clock = HurriedClock()
    away_seconds = 3600.0

    def open_() -> Database:
        if clock.monotonic() < away_seconds:
            raise UnavailableError("connection refused")
        manager.stop()
        return open_database(tmp_path / "katib.db")

    options = read_options(url="sqlite:///unused.db", listen_address="127.0.0.1:0")
    manager = DbManager(replace(options, open=open_), clock)
    manager.run()

    assert clock.monotonic() >= away_seconds
    assert (tmp_path / "katib.db").exists()
