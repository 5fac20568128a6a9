from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.model.metrics import ZERO_TIME, MetricLog
from metrics_collector.parsers.prometheus import PrometheusParser
from tests.support.scrapes import OPEN_METRICS, TEXT

SPLITS = """\
# HELP loss How wrong it is.
# TYPE loss gauge
loss{split="train",epoch="3"} 0.25
loss{split="val",epoch="3"} 0.5
"""


def read(text: str, *names: str, content_type: str = TEXT) -> list[tuple[str, str]]:
    return [(log.name, log.value) for log in PrometheusParser(names).read(text.encode(), content_type)]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        pytest.param("loss 0.25\n", "loss", "0.25", id="untyped"),
        pytest.param("# TYPE loss gauge\nloss 3\n", "loss", "3.0", id="whole number"),
        pytest.param("loss NaN\n", "loss", "nan", id="NaN"),
        pytest.param("loss +Inf\n", "loss", "inf", id="infinity"),
        pytest.param('loss{host="a"} 1\n', "loss", "1.0", id="one sample with labels"),
        pytest.param(SPLITS, 'loss{split="val"}', "0.5", id="chosen by a label"),
        pytest.param(SPLITS, 'loss{epoch="3", split="train"}', "0.25", id="chosen by all labels"),
        pytest.param("# TYPE steps counter\nsteps 7\n", "steps", "7.0", id="counter without suffix"),
        pytest.param("# TYPE steps_total counter\nsteps_total 7\n", "steps", "7.0", id="counter by its base name"),
        pytest.param("# TYPE steps_total counter\nsteps_total 7\n", "steps_total", "7.0", id="counter by its name"),
        pytest.param(
            '# TYPE time histogram\ntime_bucket{le="1"} 3\ntime_sum 2\ntime_count 3\n', "time_sum", "2.0", id="part"
        ),
    ],
)
def test_a_sample_is_a_reading(text: str, name: str, value: str) -> None:
    assert read(text, name) == [(name, value)]


def test_what_is_no_reading_of_the_metric_says_why() -> None:
    with pytest.raises(ValueError, match=r"."):
        read("loss is fine\n", "loss")

    parser = PrometheusParser(["loss"])

    assert parser.read(SPLITS.encode(), TEXT) == []
    assert "2 samples match" in parser.hint("loss")
    assert 'loss{split="train",epoch="3"}' in parser.hint("loss")

    parser = PrometheusParser(["loss"])
    parser.read(b"python_gc_objects 3\ntrain_loss 0.5\n", TEXT)

    assert parser.hint("loss") == "; nearest: train_loss"

    assert read('broken{{ "\n\xff\n' + "x" * 100_000 + "\nloss 0.5\n", "loss") == [("loss", "0.5")]


def test_open_metrics_is_read_by_its_own_rules() -> None:
    text = '# TYPE loss gauge\nloss{split="val"} 0.5 1.5\n# TYPE steps counter\nsteps_total 7\n# EOF\n'

    logs = PrometheusParser(["loss", "steps"]).read(text.encode(), OPEN_METRICS)

    assert logs == [
        MetricLog(datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), "loss", "0.5"),
        MetricLog(ZERO_TIME, "steps", "7.0"),
    ]


def test_an_unchanged_sample_is_no_new_reading_unless_its_timestamp_is() -> None:
    parser = PrometheusParser(["loss"])
    scrapes = ["loss 0.5", "loss 0.5", "loss 0.4", "loss 0.5", "loss NaN", "loss NaN"]

    values = [log.value for text in scrapes for log in parser.read(f"{text}\n".encode(), TEXT)]

    assert values == ["0.5", "0.4", "0.5", "nan"]

    parser = PrometheusParser(["loss"])
    scrapes = ["loss 0.5 1000", "loss 0.5 1000", "loss 0.5 2000", "loss 0.4 2000"]

    found = [(log.value, log.time.timestamp()) for text in scrapes for log in parser.read(f"{text}\n".encode(), TEXT)]

    assert found == [("0.5", 1.0), ("0.5", 2.0)]


@given(body=st.binary() | st.text(alphabet='loss{}="# \n0.1EOFTYPE,\\').map(str.encode), is_open=st.booleans())
def test_no_bytes_raise_anything_but_that_they_are_not_the_format(body: bytes, *, is_open: bool) -> None:
    parser = PrometheusParser(["loss", 'loss{a="b"}', "{", "\xff", ""])
    try:
        logs = parser.read(body, OPEN_METRICS if is_open else TEXT)
    except ValueError:
        logs = []

    assert all(log.name in {"loss", 'loss{a="b"}', "{", "\xff", ""} for log in logs)
    assert "\n" not in parser.hint("loss")
