"""What a user who watches a run reads of the log."""

from __future__ import annotations

import logging

import pytest

from katib.doors.cli import options
from katib.engine.runtime.controller import Controller
from katib.engine.runtime.objects import Key
from katib.errors import UnavailableError
from katib.service.tuning.sentences import said_once

FULL = "katib.db: database or disk is full; free some space on that disk; a run that waits for it continues by itself"


def fail(times: int) -> None:
    """Have two controllers fail for the same cause, and a third for another."""
    for name, message in (("experiments", FULL), ("trials", FULL), ("suggestions", "the database is locked")):

        def reconcile(_key: Key, message: str = message) -> None:
            raise UnavailableError(message)

        controller = Controller(name, reconcile)  # type: ignore[arg-type]  # it returns nothing because it raises
        for _ in range(times):
            controller.queue.add(Key("default", "demo"))
            controller.process_next()


def test_a_cause_that_stays_is_one_plain_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    options.set_up_logging(0, says_sentences=True)
    fail(3)
    logging.getLogger("katib.places.machine").warning(
        "Log of a container cut short", extra={"path": "/x", "cause": "no space"}
    )

    assert capsys.readouterr().err.splitlines() == [
        f"note: {FULL}",
        "note: the database is locked",
        "note: Log of a container cut short: no space",
    ]


def test_a_program_without_logging_of_its_own_shows_it_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    with said_once():
        fail(3)
    once = capsys.readouterr().err.splitlines()
    fail(1)

    assert once == [FULL, "the database is locked"]
    assert len(capsys.readouterr().err.splitlines()) == 3
