from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.names import REMEDY
from katib.model.types import (
    CollectorSpec,
    EarlyStoppingRule,
    FileSystemPath,
    FilterSpec,
    MetricsCollectorSpec,
    ObjectiveSpec,
    SourceSpec,
    TrialSpec,
)
from metrics_collector.collector import Collector, output_parser
from metrics_collector.parsers import TextParser
from metrics_collector.parsers.json_lines import JsonParser
from metrics_collector.sources import ProgramOutput
from tests.support.golden import Golden


def feed(collector: Collector, output: ProgramOutput, data: bytes) -> list[MetricLog]:
    return collector.take(output.feed(data))


def collected(
    data: str | bytes, objective: str = "loss", metrics: Sequence[str] = (), *, json: bool = False, source: str = ""
) -> Collector:
    names = [objective, *metrics]
    output = ProgramOutput(JsonParser(names) if json else TextParser(names), source)
    collector = Collector(objective, metrics, output)
    feed(collector, output, data.encode() if isinstance(data, str) else data)
    collector.take(output.finish())
    return collector


def test_a_reading_without_time_gets_the_time_it_was_read() -> None:
    ticks = iter(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second) for second in range(9))
    output = ProgramOutput(TextParser(["loss"]))
    collector = Collector("loss", [], output, clock=lambda: next(ticks))

    chunks = (b"loss=1\n", b"2020-01-01T00:00:00Z loss=2\nloss=3")
    logs = [log for data in chunks for log in feed(collector, output, data)]
    logs += collector.take(output.finish())

    assert [(log.time.isoformat(), log.value) for log in logs] == [
        ("2024-01-01T00:00:00+00:00", "1"),
        ("2020-01-01T00:00:00+00:00", "2"),
        ("2024-01-01T00:00:02+00:00", "3"),
    ]


def test_without_clock_a_reading_keeps_the_zero_time() -> None:
    output = ProgramOutput(TextParser(["loss"]))

    assert feed(Collector("loss", [], output), output, b"loss=1\n")[0].time == ZERO_TIME


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("", id="nothing"),
        pytest.param("x\n" * 213 + "Loss: 0.21\n", id="spelling"),
        pytest.param("loss 0.21", id="no sign between"),
        pytest.param("epoch 3 val-loss -> 1e-3\n", id="arrow"),
        pytest.param("Train Loss: 3", id="two words"),
        pytest.param("a\nTypeError: no\n", id="a crash"),
        pytest.param(b"\x00\xff\x1b[0m", id="junk"),
        pytest.param("\n\n", id="only blank lines"),
        pytest.param("loss=", id="an empty value"),
        pytest.param("loss=nan\nloss=inf\n", id="NaN"),
        pytest.param("loss=0.3\n", id="found"),
        pytest.param("loss=0.3\nloss=nan\n", id="found and diverged"),
    ],
)
def test_a_missing_objective_is_explained_in_one_sentence(data: str | bytes, golden: Golden) -> None:
    golden(collected(data).explanation().partition(REMEDY)[0])


def test_a_metric_that_never_was_a_number_is_explained() -> None:
    output = ProgramOutput(TextParser(["acc"], [r"(acc) is (\w+)"]))
    collector = Collector("acc", [], output)
    feed(collector, output, b"acc is good\n")

    expected = '1 line, "acc" read 1 time, never as a finite number; last value: "good"'
    assert collector.explanation() == expected


@pytest.mark.parametrize("json", [False, True], ids=["text", "JSON"])
def test_values_that_were_not_taken_beside_others_are_a_notice(*, json: bool) -> None:
    lines = ['{"loss": "999.5"}', '{"loss": "1,234.5"}'] if json else ["loss=999.5", "loss=1,234.5"]
    collector = collected("\n".join(lines), json=json)

    assert collector.explanation() == ""
    assert f'1 value of "loss" not taken, the first in "{lines[1]}"' in collector.missing_metrics()


def test_a_diverged_metric_with_values_that_were_not_taken_is_explained_by_both(golden: Golden) -> None:
    golden(collected("loss=nan\nloss=0x10\n").explanation())


def test_the_explanation_names_additional_metrics_that_were_found() -> None:
    collector = collected("acc=1\nacc=2\nLOSS=3\n", metrics=["acc"])

    expected = '3 lines, none matched "loss" ("acc" read 2 times); nearest: "LOSS=3"'
    assert collector.explanation().startswith(expected)


def test_missing_additional_metrics_are_a_notice_and_no_failure(golden: Golden) -> None:
    collector = collected("loss=1\nAcc: 2\n", metrics=["acc", "f1"])

    assert collector.explanation() == ""
    golden(collector.missing_metrics())
    assert collected("loss=1 acc=2", metrics=["acc"]).missing_metrics() == ""


def test_the_explanation_names_the_file_that_was_read(golden: Golden) -> None:
    golden(collected("", source="out/metrics.log").explanation())


def test_lines_that_are_no_json_are_part_of_the_explanation() -> None:
    expected = '2 lines, none matched "loss"; 1 line that named a metric held no JSON object; nearest: "loss=3"'

    assert collected("hello\nloss=3\n", json=True).explanation().startswith(expected)


def test_a_line_too_long_to_be_read_is_part_of_the_explanation() -> None:
    expected = '1 line, none matched "loss"; 1 line too long to be read whole; last line: "'

    assert collected(b"x" * 3_000_000 + b" loss=1\n").explanation().startswith(expected)


def test_the_nearest_candidate_is_found_at_the_end_of_a_long_log(golden: Golden) -> None:
    output = ProgramOutput(TextParser(["loss"]))
    collector = Collector("loss", [], output)
    for _ in range(200):
        feed(collector, output, b"nothing to see here\n" * 1000)
    feed(collector, output, b"Loss: 0.21\n")

    golden(collector.explanation())


def test_a_collector_is_made_from_the_specification_of_a_trial(golden: Golden) -> None:
    objective = ObjectiveSpec(type="maximize", objective_metric_name="acc", additional_metric_names=("f1",))
    source = SourceSpec(
        filter=FilterSpec(metrics_format=(r"(\w+)\s*:\s*(\S+)",)), file_system_path=FileSystemPath(format="TEXT")
    )
    spec = MetricsCollectorSpec(source=source, collector=CollectorSpec(kind="File"))
    rule = EarlyStoppingRule(name="lr", value="0.1", comparison="less")
    output = ProgramOutput(output_parser(TrialSpec(metrics_collector=spec, early_stopping_rules=(rule,)), objective))
    collector = Collector("acc", ["f1"], output, [rule], "maximize")

    logs = feed(collector, output, b"acc: 0.5 f1: 0.3 lr: 0.01\n")

    assert [(log.name, log.value) for log in logs] == [("acc", "0.5"), ("f1", "0.3")]
    golden(collector.verdict)


def test_a_specification_without_source_reads_the_default_format() -> None:
    objective = ObjectiveSpec(objective_metric_name="loss")
    output = ProgramOutput(output_parser(TrialSpec(), objective))

    assert [log.value for log in feed(Collector("loss", [], output), output, b"loss=1\n")] == ["1"]
