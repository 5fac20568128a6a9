from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from katib.model.metrics import ZERO_TIME, MetricLog
from katib.places.machine.trials.earlier_runs import StoredReadings

START = datetime(2026, 1, 1, tzinfo=UTC)


def reading(value: str, second: int | None = None, *, name: str = "loss", step: int | None = None) -> MetricLog:
    return MetricLog(ZERO_TIME if second is None else START + timedelta(seconds=second), name, value, step)


def stamped(found: list[MetricLog]) -> list[MetricLog]:
    """Return readings as a collector hands them on: those without a time have that of now."""
    return [structs.replace(item, time=START + timedelta(days=1)) if item.time is ZERO_TIME else item for item in found]


def new_values(stored: list[MetricLog], *batches: list[MetricLog]) -> list[str]:
    readings = StoredReadings(stored)
    return [item.value for found in batches for item in readings.without(found, stamped(found))]


def read(values: str) -> list[MetricLog]:
    return [reading(value) for value in values]


@pytest.mark.parametrize(
    ("stored", "batches", "expected"),
    [
        ([reading("a", 1), reading("b", 2)], [read("a"), read("bcd")], ["c", "d"]),
        ([reading("a", 1), reading("a", 2), reading("b", 3)], [read("aabab")], ["a", "b"]),
        ([reading("a", 1), reading("a", 3)], [[reading("a", second) for second in (3, 2, 1, 4)]], ["a", "a"]),
    ],
    ids=["found again", "a further reading", "known by their times"],
)
def test_readings_that_are_found_again_are_not_stored_again(
    stored: list[MetricLog], batches: list[list[MetricLog]], expected: list[str]
) -> None:
    assert new_values(stored, *batches) == expected


@pytest.mark.parametrize(
    "other", [reading("a", name="acc"), reading("a", step=2), reading("b")], ids=["name", "step", "value"]
)
def test_only_the_same_reading_is_taken_for_a_stored_one(other: MetricLog) -> None:
    assert new_values([reading("a", 1, step=1)], [other]) == [other.value]


def test_readings_that_the_collector_left_out_do_not_count() -> None:
    readings = StoredReadings([reading("a", 1)])
    found = [reading("x", name="other"), reading("a")]

    assert readings.without(found, stamped(found[1:])) == []
