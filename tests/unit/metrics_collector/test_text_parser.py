from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from katib.errors import InvalidError
from katib.model.metrics import ZERO_TIME, MetricLog
from metrics_collector.parsers import TextParser, parser_for

BRACES = r"{metricName: ([\w|-]+), metricValue: ((-?\d+)(\.\d+)?)}"


def read(
    text: str | bytes, names: Sequence[str] = ("loss", "accuracy", "acc"), filters: Sequence[str] = ()
) -> list[str]:
    parser = TextParser(names, filters)
    data = text.encode() if isinstance(text, str) else text
    return [f"{log.name}={log.value}" for log in [*parser.feed(data), *parser.finish()]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("epoch 1: loss=0.3 accuracy = .98", ["loss=0.3", "accuracy=.98"], id="two on a line"),
        pytest.param("loss=-7.53e-05,acc=1E0", ["loss=-7.53e-05", "acc=1E0"], id="exponents"),
        pytest.param("\x1b[32mloss\x1b[0m=\x1b[1;31m0.5\x1b[0m", ["loss=0.5"], id="colours"),
        pytest.param("loss=1.", ["loss=1"], id="trailing point"),
        pytest.param("acc=1,000 loss=1,234.5 loss=1.234,5 loss=3,14", [], id="thousands and decimal commas"),
        pytest.param("loss=1_000 acc=1'000 loss=1\u202f000", [], id="other marks between digits"),
        pytest.param("loss=0x10 acc=-0xff loss=0b1 acc=0o7", [], id="other bases"),
        pytest.param("loss=- acc=+ loss=e5 acc=-e-3", [], id="no digits"),
        pytest.param("loss=1.2.3 acc=1:30 loss=1.5D-3 acc=3d_conv", [], id="what only begins like a number"),
        pytest.param("loss=12s acc=93% acc=16GB", ["loss=12", "acc=93", "acc=16"], id="units"),
        pytest.param("loss=0.5,3 acc=1,loss=2, acc=3;4", ["loss=0.5", "acc=1", "loss=2", "acc=3"], id="lists"),
        pytest.param("loss=1/2 acc=3-4 loss=1+2j acc=2*3 loss=0.5..0.7", [], id="fractions, ranges and products"),
        pytest.param("loss=1e acc=1e+ loss=0x1p3 acc=1.#INF loss=1.5e\u22123", [], id="other exponents"),
        pytest.param("loss=1 234 acc=12 345.6 loss=1.5\u00d710^3 acc=2 \u00d7 10", [], id="blanks and products"),
        pytest.param("loss=1.2k acc=3M loss=1\u00bd acc=10\u00b2", [], id="abbreviations"),
        pytest.param(
            "loss=5 100% acc=3 1000 loss=1 loss=2", ["loss=5", "acc=3", "loss=1", "loss=2"], id="other numbers"
        ),
        pytest.param("loss=+3", ["loss=+3"], id="plus"),
        pytest.param("loss: 0.5 - acc : 1", ["loss=0.5", "acc=1"], id="colon"),
        pytest.param("{'loss': 0.5, \"acc\": np.float64(1)}", ["loss=0.5", "acc=1"], id="dictionary"),
        pytest.param("loss=tensor(0.5, device='cuda:0')", ["loss=0.5"], id="tensor"),
        pytest.param("train/loss=0.5", ["loss=0.5"], id="slash ends a name"),
        pytest.param("val_loss=0.5 train-loss=1", [], id="longer names are other metrics"),
        pytest.param("loss=abc, acc==5", [], id="no value"),
        pytest.param("loss=", [], id="nothing after the sign"),
        pytest.param("loss=nan", ["loss=nan"], id="nan"),
        pytest.param("loss=-NaN acc=Inf", ["loss=-NaN", "acc=Inf"], id="named numbers of any case"),
        pytest.param("loss=inf, acc=-Infinity;", ["loss=inf", "acc=-Infinity"], id="infinities"),
        pytest.param("loss=info acc=nano", [], id="words that begin like a number"),
        pytest.param("loss=1 loss=2", ["loss=1", "loss=2"], id="twice on a line"),
        pytest.param("acc=1|loss=1", ["acc=1", "loss=1"], id="bars"),
    ],
)
def test_the_default_filter_reads_name_and_value(line: str, expected: list[str]) -> None:
    assert read(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "INFO 12:03 Epoch 3 - loss: 0.5",
        "[step 3] loss=0.5",
        "2026-01-01 12:00:00,123 INFO loss=0.5",
        "INFO:root:loss=0.5",
        "[info     ] loss=0.5",
        "level=info lr=adam loss=0.5 acc=1",
        "step 3\tloss=0.5\tval_loss=0.1",
        "100%|███| 10/10 [00:01<00:00, 5.0it/s, loss=0.5]",
        "10/10 ━━━━ 1s 5ms/step - acc: 0.9 - loss: 0.5 - val_loss: 0.4",
        "epoch3 loss=0.5",
        "│ loss=0.5 │",
        "\x1b[2Kloss=0.5\x1b[?25l",
        "\x1b[?25lloss=0.5",
        "\x1b(Bloss\x1b[m = 0.5",
        "\x1b7\x1b[3;1Hloss: \x1b[1m0.5\x1b[0m\x1b8",
        "\x1b]0;a title\x07loss=0.5",
        "\x1b]8;;https://a/b\x1b\\loss\x1b]8;;\x1b\\=0.5",
        "\x1bPq\x1b\\loss=0.5",
        "val loss: 0.1, loss: 0.5",
        "loss: 0.5 train loss: 0.1 val loss: 0.1",
    ],
)
def test_the_name_goes_back_to_a_separator(line: str) -> None:
    assert [value for value in read(line) if value.startswith("loss")] == ["loss=0.5"]


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 1: train loss: 0.05, val loss: 0.99",
        "train loss=0.05 val loss=0.99",
        "2026-01-01 12:00:00,123 INFO train loss=0.05 and val loss=0.99",
        "train loss: 0.05\ntrain loss: 0.04\nval loss: 0.99",
    ],
)
def test_a_name_has_all_its_words_and_a_part_of_two_names_is_neither(line: str) -> None:
    assert read(line, ["val loss"]) == ["val loss=0.99"]
    assert read(line, ["train loss", "val loss"])[-1] == "val loss=0.99"

    for metrics in (["loss"], ["loss", "val loss"]):
        parser = TextParser(metrics)
        readings = [*parser.feed(line.encode()), *parser.finish()]

        assert parser.notes.ambiguous == {"loss": ("train loss", "val loss")}
        assert [log.value for log in readings if log.name == "loss"][-1:] in ([], ["unavailable"])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param("train/loss=0.5 val/loss=0.4", [], id="two paths"),
        pytest.param("Final loss=0.5", ["loss=0.5"], id="a word of Katib's files"),
        pytest.param("Final loss: 3\nFinal loss: 2\nFinal loss: 1", ["loss=3", "loss=2", "loss=1"], id="several times"),
        pytest.param("best loss: 3\nloss: 2\nbest loss: 1", ["loss=2"], id="beside the whole name"),
        pytest.param("val/loss: 0.7", [], id="a path before a colon"),
    ],
)
def test_the_last_word_of_the_only_longer_name_counts_as_in_katib(lines: str, expected: list[str]) -> None:
    assert read(lines) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("train/loss=0.5 val/loss = nan", ["train/loss=0.5", "val/loss=nan"], id="slashes"),
        pytest.param("(mAP@0.5=0.25)", ["mAP@0.5=0.25"], id="signs of patterns"),
        pytest.param("läß=1 xläß=2", ["läß=1"], id="another alphabet"),
        pytest.param("pre/train/loss=1 x.val/loss=2", [], id="longer names are other metrics"),
        pytest.param("f1=1 train/loss=2", ["f1=1", "train/loss=2"], id="beside a plain name"),
        pytest.param("train/loss=abc", [], id="no value"),
    ],
)
def test_a_name_that_the_default_filter_cannot_spell_is_found_all_the_same(line: str, expected: list[str]) -> None:
    assert read(line, ["train/loss", "val/loss", "mAP@0.5", "läß", "f1"]) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("100", ["accuracy=100"], id="whole"),
        pytest.param("888.333", ["accuracy=888.333"], id="fraction"),
        pytest.param("-0.4759", ["accuracy=-0.4759"], id="negative"),
        pytest.param(".333", [], id="no leading digit"),
        pytest.param("-.333", [], id="negative without leading digit"),
        pytest.param("- 345.333", [], id="detached sign"),
        pytest.param("888.", [], id="trailing point"),
    ],
)
def test_a_filter_of_the_user_decides_what_is_a_value(value: str, expected: list[str]) -> None:
    line = f"2024-03-04T17:55:08Z INFO     {{metricName: accuracy, metricValue: {value}}}"

    assert read(line, filters=[BRACES]) == expected


def test_filters_apply_in_their_order_and_need_their_braces() -> None:
    assert read("INFO {metricName: accuracy, metricValue: 0.3", filters=[BRACES]) == []

    filters = [r"(loss|acc):(\d+)", r"(loss|acc)=(\d+)"]

    assert read("loss=1 acc:2 loss:3 acc=4", filters=filters) == ["acc=2", "loss=3", "loss=1", "acc=4"]


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        pytest.param("loss Validation 0.3", r"(loss) (\w+) ([\d.]+)", id="a group too many"),
        pytest.param("loss: 1e-05", r"(loss): (\d*\.?\d+)", id="before the exponent"),
        pytest.param("loss: 1e-05", r"(loss).*(-\d+)", id="the exponent"),
        pytest.param("loss: 123", r"(loss).*(\d+)", id="last digit"),
        pytest.param("loss: 0.25", r"(loss).*(\.\d+)", id="fraction"),
        pytest.param("loss: 0.25", r"(loss): 0.(\d+)", id="digits of the fraction"),
        pytest.param("loss: -0.25", r"(loss): -?([\d.]+)", id="without its sign"),
        pytest.param("loss: 12", r"(loss): (\d)", id="first digit"),
        pytest.param("loss: 1,234.5", r"(loss): ([\d.]+)", id="thousands"),
        pytest.param("loss: 1,234.5", r"(loss): ([\d.,]+)", id="thousands as text"),
        pytest.param("loss: 0x1f", r"(loss): 0x(\w+)", id="another base"),
    ],
)
def test_a_filter_that_takes_a_part_of_a_number_or_another_group_finds_no_value(line: str, pattern: str) -> None:
    parser = TextParser(["loss", "acc"], [pattern])

    assert parser.feed(line.encode() + b"\n") == []
    assert [*parser.notes.refused.values()] == [(1, line)]


@pytest.mark.parametrize(
    ("line", "pattern", "expected"),
    [
        pytest.param("loss is [ quite good ]", r"(loss) is \[(.*)\]", "quite good", id="text"),
        pytest.param("loss,3,2.345,17", r"(loss),\d+,([\d.]+)", "2.345", id="columns"),
        pytest.param("loss 10:0.5", r"(loss) \d+:([\d.]+)", "0.5", id="behind a colon"),
        pytest.param("loss-5", r"(loss)-(\d+)", "5", id="a dash between"),
        pytest.param("loss = [ -7.5 ]", r"(loss) = \[(.*)\]", "-7.5", id="blanks within the group"),
        pytest.param("loss|0.5|acc", r"(loss)\|([^|]+)\|", "0.5", id="a table"),
        pytest.param('"loss": "3e-4"', r'"(loss)": "(.*?)"', "3e-4", id="quotes"),
        pytest.param("loss: 0.5\u00b10.1", r"(loss): ([\d.]+)", "0.5", id="an error behind it"),
    ],
)
def test_a_filter_that_takes_a_whole_number_works_as_in_katib(line: str, pattern: str, expected: str) -> None:
    assert read(line, filters=[pattern]) == [f"loss={expected}"]


def test_of_a_long_line_the_part_with_the_value_is_shown() -> None:
    parser = TextParser(["loss"])
    parser.feed(b"x " * 1000 + b"loss=1_000 " + b"y " * 1000 + b"\nloss=2_000\n")

    count, line = parser.notes.refused["loss"]

    assert count == 2
    assert line.startswith("loss=1_000 y")
    assert len(line) == 80

    assert read("acc is " + "x" * 2000, filters=[r"(acc) is (.*)"]) == []


def test_both_metrics_of_a_line_carry_its_time() -> None:
    line = (
        b"2024-03-04T17:55:08Z INFO     {metricName: accuracy, metricValue: 0.8078};"
        b"{metricName: loss, metricValue: 0.5183}\n"
    )
    logs = TextParser(["accuracy", "loss"], [BRACES]).feed(line)

    time = datetime(2024, 3, 4, 17, 55, 8, tzinfo=UTC)
    assert logs == [MetricLog(time, "accuracy", "0.8078"), MetricLog(time, "loss", "0.5183")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("2024-03-04T17:55:08.5+09:00 loss=1", datetime(2024, 3, 4, 8, 55, 8, 500000, UTC), id="zone"),
        pytest.param("2024-03-04T17:55:08,25Z loss=1", datetime(2024, 3, 4, 17, 55, 8, 250000, UTC), id="comma"),
        pytest.param("2024-03-04T17:55:08.123456789Z loss=1", datetime(2024, 3, 4, 17, 55, 8, 123456, UTC), id="ns"),
        pytest.param("2024-03-04T17:55:08 loss=1", ZERO_TIME, id="no zone"),
        pytest.param("2024-03-04 17:55:08 loss=1", ZERO_TIME, id="blank inside"),
        pytest.param("2024-02-30T17:55:08Z loss=1", ZERO_TIME, id="no such day"),
        pytest.param("invalid INFO loss=1", ZERO_TIME, id="word"),
        pytest.param("loss=1", ZERO_TIME, id="no blank"),
    ],
)
def test_the_time_stands_before_the_first_blank(line: str, expected: datetime) -> None:
    assert [log.time for log in TextParser(["loss"]).feed(line.encode() + b"\n")] == [expected]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"loss=1\rloss=2\r\nloss=3", ["loss=1", "loss=2", "loss=3"], id="carriage returns"),
        pytest.param(b"\x00\xff\xfeloss=1\x00\n\xff", ["loss=1"], id="binary junk around it"),
        pytest.param("größe=1 läß=2 loss=3".encode(), ["loss=3"], id="other alphabets"),
        pytest.param(b"loss=\n0.5\n", [], id="a value is on the line of its name"),
        pytest.param(b"\n\n\n", [], id="empty lines"),
        pytest.param(b"", [], id="nothing"),
    ],
)
def test_lines_end_where_a_reader_sees_them_end(data: bytes, expected: list[str]) -> None:
    assert read(data) == expected


def test_metrics_are_named_in_any_alphabet_and_bytes_match_like_characters() -> None:
    assert read("läß: 3".encode(), ["läß"], [r"(\pL+): (\d+)"]) == ["läß=3"]

    assert read(b"acc \xff\xfe 3", filters=[r"(acc) .. (\d)"]) == ["acc=3"]

    data = b"\xff\xfe loss=0.5 \x80\n\xc3\x28loss=0.25\n"

    assert [log.value for log in TextParser(["loss"]).feed(data)] == ["0.5", "0.25"]


def test_lines_are_counted_as_wc_counts_them() -> None:
    parser = TextParser(["loss"])

    for chunk in (b"a\nb", b"", b"c\n", b"\n", b"10%\r20%\r", b"done"):
        parser.feed(chunk)

    assert parser.notes.lines == 4
    assert parser.notes.size_bytes == 18


def test_only_the_beginning_of_an_endless_line_is_examined() -> None:
    parser = TextParser(["loss"], limit=100)
    logs = parser.feed(b"loss=1 " + b"x" * 50)
    for _ in range(1000):
        logs += parser.feed(b"x" * 1000)
    logs += parser.feed(b" loss=2\nloss=3\n")

    assert [log.value for log in logs] == ["1", "3"]
    assert parser.notes.long_lines == 1

    assert TextParser(["loss"], limit=8).feed(b"loss=0.12345\n") == []


@pytest.mark.parametrize(
    ("filters", "origins"),
    [
        pytest.param(["["], ["filter-syntax"], id="no expression"),
        pytest.param([r"(a)\1(b)"], ["filter-syntax"], id="not RE2"),
        pytest.param(["(a)=b"], ["filter-groups"], id="one group"),
        pytest.param(["(a)=(b)", "(", "a"], ["filter-syntax", "filter-groups"], id="all at once"),
    ],
)
def test_a_filter_that_cannot_work_is_refused(filters: list[str], origins: list[str]) -> None:
    with pytest.raises(InvalidError) as caught:
        TextParser(["a"], filters)

    assert [error.origin for error in caught.value.errors] == origins


def test_a_pattern_that_sends_others_to_sleep_is_done_and_an_unknown_format_refused() -> None:
    with pytest.raises(InvalidError) as caught:
        parser_for("invalid", ["loss"])

    assert str(caught.value) == "source.fileSystemPath.format: unknown format 'invalid'; use TEXT or JSON"

    # with n letters a backtracking engine tries 2 to the power of n ways
    assert read("loss " + "a" * 50_000 + "!\nloss aaa=1", ["aaa"], [r"loss (?:(?:a+)+)$|loss ((?:a+)+)=(\d)"]) == [
        "aaa=1"
    ]


def test_a_thousand_metrics_of_one_line_are_found_by_one_search() -> None:
    names = [f"metric_{number}" for number in range(40)]
    text = "\n".join(f"{name}={number}" for number, name in enumerate(names))

    assert read(text, names) == [f"{name}={number}" for number, name in enumerate(names)]

    names = [f"metric_{number}" for number in range(1000)]
    found = [f"{name}={number}" for number, name in enumerate(names)]

    assert read(" ".join(found), names) == found
