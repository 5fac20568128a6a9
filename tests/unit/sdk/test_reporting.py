"""What may be reported, and what a printed line looks like to the collector."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from katib.errors import ForbiddenError, UnavailableError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.sdk.push_program import PushedReadings
from katib.sdk.reporting import have_received_by, report
from metrics_collector.parsers import TextParser
from tests.support.golden import Golden

HEAVY = ("pydantic", "grpc", "google.protobuf", "sqlalchemy", "numpy", "re2", "yaml", "subprocess", "katib.model.types")


@pytest.fixture(autouse=True)
def _outside_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KATIB_DB_MANAGER_ADDRESS", raising=False)
    monkeypatch.setattr("katib.sdk.reporting._last_step", None)  # put back afterwards


def printed(capsys: pytest.CaptureFixture[str], **metrics: Any) -> list[tuple[str, str, int | None]]:
    """Return what the collector reads of a report."""
    report(**metrics)
    text = capsys.readouterr().out.encode()
    return [(log.name, log.value, log.step) for log in TextParser(["loss", "accuracy", "step"]).feed(text)]


def test_a_printed_report_is_read_with_its_step_and_others_words_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, loss=0.25, accuracy=1, step=4) == [("loss", "0.25", 4), ("accuracy", "1.0", 4)]
    assert printed(capsys, loss=0.25) == [("loss", "0.25", None)]

    parser = TextParser(["loss", "step"])

    assert parser.feed(b"step=7 loss=1\n") == [MetricLog(ZERO_TIME, "step", "7"), MetricLog(ZERO_TIME, "loss", "1")]
    assert [log.step for log in parser.feed(b"[rank 0] katib-step=3 loss=1\nxkatib-step=3 loss=1\n")] == [3, None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1.0"),
        (True, "1.0"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (np.float32(0.5), "0.5"),
        (np.int64(3), "3.0"),
        (np.array(2.5), "2.5"),
    ],
)
def test_numbers_of_all_kinds_are_reported(value: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, loss=value) == [("loss", text, None)]


@pytest.mark.parametrize("step", [0, np.int64(0), False])
def test_a_step_may_be_any_whole_number(step: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, loss=1, step=step) == [("loss", "1.0", 0)]


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "several values": ({"loss": "much", "accuracy": None, "f1": 0.5}, ["loss: str", "accuracy: NoneType"]),
    "an array": ({"loss": np.zeros(2)}, ["loss: ndarray"]),
    "no name": ({"": 1.0}, ["''"]),
    "a name with an equals sign": ({"a=b": 1.0}, ["'a=b'"]),
    "a name with a line end": ({"a\nb": 1.0}, ["'a\\nb'"]),
    "a negative step": ({"loss": 1.0, "step": -1}, ["step: -1"]),
    "half a step": ({"loss": 1.0, "step": 0.5}, ["step: 0.5"]),
    "a step in words": ({"loss": 1.0, "step": "4"}, ["step: '4'"]),
    "a step beyond all": ({"loss": 1.0, "step": 2**63}, ["step: "]),
}


@pytest.mark.parametrize(("metrics", "words"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_reported_is_named_at_once(
    metrics: dict[str, Any], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TypeError) as caught:
        report(**metrics)

    assert all(word in str(caught.value) for word in words)
    assert len(str(caught.value).split("; ")) >= len(words)
    assert capsys.readouterr().out == ""


def test_a_mapping_holds_names_that_are_not_pythons(capsys: pytest.CaptureFixture[str]) -> None:
    report({"val/loss": 1, "step": 2.5}, step=3)

    assert capsys.readouterr().out == "katib-step=3 val/loss=1.0 step=2.5\n"


def test_reporting_imports_nothing_heavy_whether_it_prints_or_pushes() -> None:
    code = (
        f"import os, sys, katib; katib.report(loss=1); os.environ['KATIB_TRIAL_NAME'] = 't'\n"
        f"os.environ |= {{'KATIB_DB_MANAGER_ADDRESS': '127.0.0.1:1', 'KATIB_GIVE_UP_SECONDS': '0'}}\n"
        f"katib.report(loss=2); print([name for name in {HEAVY} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)

    assert done.stdout == "loss=1.0\n[]\n"


# --- the process beside the program -----------------------------------------------------------------------------------


class Log:
    """A log that is away at first."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.stored: list[MetricLog] = []
        self.told: list[str] = []
        self.asked = threading.Event()

    def report(self, trial_name: str, readings: Sequence[MetricLog]) -> None:
        self.asked.set()
        if self.error is not None:
            raise self.error
        self.stored += readings

    def pushed(self, **settings: Any) -> PushedReadings:
        return PushedReadings("t", self.report, lambda _: None, self.told.append, **settings)


def test_lines_may_come_in_any_pieces() -> None:
    log = Log()
    pushed = log.pushed()
    data = "1000000\t4\tval loss\t0.5\n2000000\t\té\tnan\n".encode() + b"end\n"
    went_on = [pushed.take(data[n : n + 1]) for n in range(len(data))]
    missing = pushed.finish(60)

    assert went_on == [True] * (len(data) - 1) + [False]
    assert missing == 0
    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert log.stored == [
        MetricLog(start + timedelta(seconds=1), "val loss", "0.5", 4),
        MetricLog(start + timedelta(seconds=2), "é", "nan"),
    ]


def test_memory_is_bounded_while_the_log_is_away_and_what_is_dropped_is_told() -> None:
    log = Log(UnavailableError("gone"))
    pushed = log.pushed(max_waiting=10)
    for n in range(15):
        pushed.take(f"{n}\t\tloss\t{n}\n".encode())
    assert log.asked.wait(60)
    log.error = None
    missing = pushed.finish(60)

    assert [reading.value for reading in log.stored] == [str(n) for n in range(10)]
    assert missing == 5
    assert log.told[-1].startswith("5 readings were dropped")


def test_what_is_refused_is_told_once_and_counted(golden: Golden) -> None:
    log = Log(ForbiddenError("the token is another trial's"))
    pushed = log.pushed()
    pushed.take(b"1\t\tloss\t1\n1\t\tloss\t2\n")

    assert pushed.finish(60) == 2
    golden(log.told)


def test_a_function_may_take_what_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    taken: list[tuple[Any, int | None]] = []
    have_received_by(lambda readings, step: taken.append((readings, step)))
    try:
        report({"val/loss": np.float32(0.5)}, step=2)
    finally:
        have_received_by(None)
    report(loss=1)

    assert taken == [({"val/loss": 0.5}, 2)]
    assert capsys.readouterr().out == "loss=1.0\n"
