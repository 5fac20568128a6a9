from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from katib.model.metrics import ZERO_TIME, MetricLog
from metrics_collector.parsers.json_lines import JsonParser


def logs_of(text: str, names: Sequence[str] = ("acc", "loss")) -> list[MetricLog]:
    parser = JsonParser(names)
    return [*parser.feed(text.encode()), *parser.finish()]


def read(text: str, names: Sequence[str] = ("acc", "loss")) -> list[str]:
    return [f"{log.name}={log.value}" for log in logs_of(text, names)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('{"loss": "0.22", "acc": "0.9"}', ["acc=0.9", "loss=0.22"], id="order of the metrics"),
        pytest.param('{"loss": 0.220}', ["loss=0.220"], id="number keeps its text"),
        pytest.param('{"loss": 1e-3, "acc": 7}', ["acc=7", "loss=1e-3"], id="numbers"),
        pytest.param('{"loss": NaN, "acc": -Infinity}', ["acc=-Infinity", "loss=NaN"], id="NaN and Infinity"),
        pytest.param('{"loss": ""}', [], id="empty text"),
        pytest.param('{"loss": true, "acc": null}', [], id="no number"),
        pytest.param('{"loss": [1], "acc": {"acc": 2}}', [], id="nested"),
        pytest.param('{"val": "loss"}', [], id="named as a value"),
        pytest.param('  {"loss": 1}  ', ["loss=1"], id="blanks around it"),
        pytest.param('{"loss": 1' + "0" * 900 + "}", ["loss=1" + "0" * 900], id="more digits than an int may have"),
    ],
)
def test_an_object_holds_metrics_under_their_names(line: str, expected: list[str]) -> None:
    assert read(line) == expected


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        pytest.param("1638422847.28721", datetime(2021, 12, 2, 5, 27, 27, 287210, UTC), id="a fraction is a fraction"),
        pytest.param("1638422847.5", datetime(2021, 12, 2, 5, 27, 27, 500000, UTC), id="half a second"),
        pytest.param("1638422847", datetime(2021, 12, 2, 5, 27, 27, tzinfo=UTC), id="whole seconds"),
        pytest.param('"2021-12-02T14:27:50.000035161Z"', datetime(2021, 12, 2, 14, 27, 50, 35, UTC), id="text"),
        pytest.param('"invalid"', ZERO_TIME, id="no time"),
        pytest.param('""', ZERO_TIME, id="empty"),
        pytest.param("true", ZERO_TIME, id="boolean"),
        pytest.param("1e400", ZERO_TIME, id="beyond a double"),
        pytest.param("1e18", ZERO_TIME, id="beyond the calendar"),
        pytest.param("NaN", ZERO_TIME, id="NaN"),
    ],
)
def test_the_time_stands_under_timestamp(stamp: str, expected: datetime) -> None:
    assert logs_of(f'{{"loss": "1", "timestamp": {stamp}}}') == [MetricLog(expected, "loss", "1")]


def test_an_object_without_timestamp_has_the_zero_time() -> None:
    assert logs_of('{"loss": "1"}') == [MetricLog(ZERO_TIME, "loss", "1")]


@pytest.mark.parametrize(
    "broken",
    ['{"loss": ', '"loss"', '["loss"]', "loss", '{"loss": 1} {"loss": 2}', "[" * 5000 + '"loss"', '{"loss": "\\x"}'],
    ids=["cut off", "text", "list", "bare word", "two objects", "deeply nested", "bad escape"],
)
def test_a_line_that_cannot_be_decoded_is_counted_and_skipped(broken: str) -> None:
    parser = JsonParser(["loss"])

    assert [log.value for log in parser.feed(f'{{"loss": 1}}\n{broken}\n\n{{"loss": 2}}\n'.encode())] == ["1", "2"]
    assert parser.notes.broken_lines == 1
    assert parser.notes.lines == 4


@pytest.mark.parametrize(
    ("name", "line"),
    [
        pytest.param("läß", '{"l\\u00e4\\u00df": 1}', id="ASCII escapes"),
        pytest.param("läß", '{"läß": 1}', id="as it is"),
        pytest.param("train/loss", '{"train\\/loss": 1}', id="escaped slash"),
        pytest.param('a"b', '{"a\\"b": 1}', id="quote"),
    ],
)
def test_a_name_is_found_however_json_spells_it(name: str, line: str) -> None:
    assert read(line, [name]) == [f"{name}=1"]


@pytest.mark.parametrize(
    ("entry", "step"),
    [
        pytest.param('"step": 7', 7, id="a number"),
        pytest.param('"step": "7"', 7, id="text"),
        pytest.param('"epoch": 3', 3, id="an epoch"),
        pytest.param('"epoch": 3, "step": 40', 40, id="step before epoch"),
        pytest.param('"step": 4, "global_step": 40', 40, id="what cannot begin anew first"),
        pytest.param('"epoch": 0.5', None, id="a part of an epoch"),
        pytest.param('"step": -1', None, id="below zero"),
        pytest.param('"step": null, "epoch": 2', 2, id="none"),
        pytest.param('"step": true', None, id="boolean"),
        pytest.param('"step": ' + "9" * 19, None, id="beyond 64 bits"),
    ],
)
def test_the_step_is_kept(entry: str, step: int | None) -> None:
    assert [log.step for log in logs_of(f'{{"loss": 1, {entry}}}')] == [step]
