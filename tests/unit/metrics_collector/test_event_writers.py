"""Event files as the usual writers write them; `tests/support/event_files/make.py` says how each was made."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from katib.api.metrics import MetricLog, parse_value
from metrics_collector.sources.event_directory import EventDirectory
from tests.support.event_records import EVENT_FILES, values

FOUR = ("train/accuracy", "train/loss", "test/accuracy", "test/loss")


def read(directory: str, *names: str) -> list[MetricLog]:
    with closing(EventDirectory(EVENT_FILES / directory, names)) as source:
        readings = [reading for part in source.poll() for reading in part] + source.finish()
        assert source.notes == ""
        assert source.problem == ""
        return readings


def curve(readings: list[MetricLog], name: str) -> list[tuple[int | None, float | None]]:
    return [(reading.step, parse_value(reading.value)) for reading in readings if reading.name == name]


@pytest.mark.parametrize(
    ("directory", "names", "count"),
    [
        ("tensorflow2", FOUR, 20),
        ("tensorflow2/train", ("accuracy", "loss"), 10),
        ("tensorflow2/train", ("train/accuracy", "train/loss"), 10),
        ("tensorboardx", FOUR, 12),
        ("tensorboardx/train", ("accuracy", "loss"), 6),
    ],
)
def test_as_many_readings_are_found_as_katib_finds(directory: str, names: tuple[str, ...], count: int) -> None:
    assert len(read(directory, *names)) == count


@pytest.mark.parametrize("directory", ["tensorflow2", "tensorboardx"])
def test_curves_are_those_of_their_directories(directory: str) -> None:
    readings = read(directory, *FOUR)

    assert curve(readings, "train/loss")[:3] == [(0, 1.0), (1, 0.5), (2, 0.33333334)]
    assert curve(readings, "test/accuracy")[:3] == [(0, 0.5), (1, 0.6666667), (2, 0.75)]


def test_torch_writes_floats_and_tensors() -> None:
    readings = read("torch", "train/loss", "new", "double", "weights", "note")

    assert curve(readings, "train/loss") == [(0, 1.0), (1, 0.5), (2, 0.33333334)]
    assert curve(readings, "new") == [(0, 0.5), (1, 0.6666667), (2, 0.75)]
    assert curve(readings, "double") == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert len(readings) == 9


def test_a_tag_with_a_description_is_a_scalar_too() -> None:
    assert curve(read("tensorboardx/train", "described"), "described") == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_tensorflow_1_renames_what_is_taken() -> None:
    readings = read("tensorflow1", "accuracy", "loss")

    assert curve(readings, "accuracy") == [(0, 0.5), (10, 0.6666667), (20, 0.75)]
    assert curve(readings, "loss") == [(0, 0.5), (10, 0.3333333), (20, 0.25)]


def test_keras_says_how_an_epoch_ended() -> None:
    readings = read("keras", "train/epoch_loss", "validation/epoch_loss", "epoch_accuracy")

    assert [step for step, _ in curve(readings, "train/epoch_loss")] == [0, 1, 2]
    assert [step for step, _ in curve(readings, "validation/epoch_loss")] == [0, 1, 2]
    assert len(curve(readings, "epoch_accuracy")) == 6
    assert all(0 < (value or 0) < 10 for _, value in curve(readings, "train/epoch_loss"))


@pytest.mark.parametrize(
    "name",
    ["float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "uint16", "uint32", "uint64"],
)
def test_tensorflow_2_writes_numbers_of_every_type(name: str) -> None:
    assert curve(read("tensorflow2/types", name), name) == [(300, 3.0)]


def test_tensorflow_2_writes_more_than_scalars() -> None:
    readings = read(
        "tensorflow2/types", "bool", "one in a list", "two", "text", "image", "nan", "large step", "negative step"
    )

    assert values(readings) == [
        ("bool", "1", 300),
        ("one in a list", "0.5", 300),
        ("nan", "nan", 300),
        ("large step", "1", 1 << 40),
        ("negative step", "1", None),
    ]


def test_the_files_are_small() -> None:
    sizes = {path: path.stat().st_size for path in Path(EVENT_FILES).rglob("*tfevents*")}

    assert len(sizes) == 9
    assert max(sizes.values()) < 20_000
