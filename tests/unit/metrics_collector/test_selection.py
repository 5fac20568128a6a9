"""Which program is watched and how: flags, markers, rules of early stopping, and numbers of batches."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from katib.errors import InvalidError, UnavailableError
from katib.model.metrics import ZERO_TIME, BatchId, MetricLog
from katib.model.types import EarlyStoppingRule
from metrics_collector.arguments import Arguments, parse_arguments, split_filters
from metrics_collector.early_stopping import RuleBook
from metrics_collector.numbering import NumberedLog
from metrics_collector.pod_settings import PodSettings
from metrics_collector.sidecar import kind_of, select
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog, reading

HEAD = ["-t", "demo", "-m", "loss", "-s-db", "db:6789"]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        pytest.param(["-path", "{}/metrics.log", "-format", "TEXT"], "File", id="StdOut and File"),
        pytest.param(["-path", "{}/metrics.log", "-format", "JSON"], "File", id="JSON"),
        pytest.param(["-path", "{}"], "TensorFlowEvent", id="directory"),
        pytest.param(["-path", "{}/logs"], "TensorFlowEvent", id="directory that comes later"),
        pytest.param(["-path", "{}/there.log"], "File", id="file without format"),
        pytest.param(["-path", "{}/metrics.log", "-f", "(a)=(b)"], "File", id="file with filter"),
        pytest.param([], "PrometheusMetric", id="nothing"),
    ],
)
def test_katibs_flags_tell_the_kind(tmp_path: Path, flags: list[str], kind: str) -> None:
    (tmp_path / "there.log").touch()

    assert kind_of(parse_arguments([*HEAD, *(flag.format(tmp_path) for flag in flags)]), PodSettings()) == kind


def test_our_controller_says_the_kind(tmp_path: Path) -> None:
    pod = PodSettings.of({"KATIB_COLLECTOR_KIND": "TensorFlowEvent"})
    (tmp_path / "there.log").touch()

    assert kind_of(parse_arguments([*HEAD, "-path", f"{tmp_path}/there.log"]), pod) == "TensorFlowEvent"


def test_markers_of_katibs_shell_are_beside_a_file_and_in_a_directory(tmp_path: Path) -> None:
    def directory(*flags: str) -> Path | None:
        return select(parse_arguments([*HEAD, *flags]), PodSettings(), lambda _data: None).directory

    assert directory("-path", f"{tmp_path}/x.log", "-format", "TEXT") == tmp_path
    assert directory("-path", str(tmp_path)) == tmp_path
    assert directory() is None


class Silent(MemoryObservationLog):
    """Stores, and does not answer while it is silent."""

    silent = False

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        super().report(trial_name, logs, batch)
        if self.silent:
            raise UnavailableError("no answer")


def test_what_is_sent_again_is_stored_once() -> None:
    log = Silent()
    numbered, another = NumberedLog(log), NumberedLog(log)
    batch = [reading(str(number), second=number) for number in range(4)]
    log.silent = True
    for _ in range(2):
        with pytest.raises(UnavailableError):
            numbered.report("a", batch[:2])
    log.silent = False
    numbered.report("a", batch[:3])
    numbered.report("b", batch[:1])
    numbered.report("a", batch[3:])
    another.report("a", [reading("other", second=9)])

    assert [entry.value for entry in log.read("a")] == ["0", "1", "2", "3", "other"]
    assert [entry.value for entry in log.read("b")] == ["0"]


def rule(text: str) -> EarlyStoppingRule:
    """`accuracy;0.6;less;5`, as a sidecar is given rules."""
    name, value, comparison, start_step = text.split(";")
    return EarlyStoppingRule(name=name, value=value, comparison=comparison, start_step=int(start_step))


def stopped_at(readings: Sequence[str], rules: Sequence[str], objective_type: str = "maximize") -> int | None:
    """Return after which reading the trial is to be stopped; readings are values of acc, or `name=value`."""
    book = RuleBook([rule(text) for text in rules], "acc", objective_type)
    for number, text in enumerate(readings, 1):
        name, _, value = text.rpartition("=")
        book.observe(MetricLog(ZERO_TIME, name or "acc", value))
        if book.verdict:
            return number
    return None


@pytest.mark.parametrize(
    ("readings", "rules", "objective_type", "expected"),
    [
        pytest.param(["1"], [], "maximize", None, id="no rule"),
        pytest.param(["0.5"], ["acc;0.6;less;0"], "maximize", 1, id="less"),
        pytest.param(["0.6"], ["acc;0.6;less;0"], "maximize", None, id="less is strict"),
        pytest.param(["0.7"], ["acc;0.6;greater;0"], "minimize", 1, id="greater"),
        pytest.param(["0.6"], ["acc;0.6;greater;0"], "minimize", None, id="greater is strict"),
        pytest.param(["0.60"], ["acc;0.6;equal;0"], "maximize", 1, id="equal compares numbers"),
        pytest.param(["0.1", "0.1", "0.1"], ["acc;0.6;less;3"], "maximize", 3, id="not before the start step"),
        pytest.param(["0.1", "0.9", "0.1"], ["acc;0.6;less;3"], "maximize", None, id="the best of the past counts"),
        pytest.param(["3", "2", "5"], ["acc;4;greater;2"], "minimize", None, id="the best when minimizing"),
        pytest.param(["x=1", "x=9", "x=1"], ["x;5;greater;2"], "maximize", 2, id="other metrics: the current value"),
        pytest.param(["x=9", "x=1", "x=9"], ["x;5;greater;2"], "maximize", 3, id="tested again after the start step"),
        pytest.param(["x=9", "0.1"], ["acc;0.6;less;0", "x;5;greater;0"], "maximize", 2, id="all, at different times"),
        pytest.param(["0.1", "0.1"], ["acc;0.6;less;0", "x;5;greater;0"], "maximize", None, id="one of two is not all"),
        pytest.param(
            ["x=9", "x=9", "x=9"], ["x;5;greater;1", "x;6;greater;3"], "maximize", 3, id="one metric, two rules"
        ),
        pytest.param(["nan", "0.1"], ["acc;0.6;less;0"], "maximize", 2, id="NaN is not less"),
        pytest.param(["nan", "0.1"], ["acc;0.6;less;2"], "maximize", 2, id="NaN counts as a reading"),
        pytest.param(["inf", "0.1"], ["acc;0.6;less;0"], "maximize", 2, id="infinity is never the best"),
        pytest.param(["good", "0.1"], ["acc;0.6;less;0"], "maximize", 2, id="text is not fatal"),
        pytest.param(["0.1"], ["acc;none;less;0"], "maximize", None, id="a value that is not a number is never met"),
        pytest.param(["0.1"], ["acc;0.6;;0"], "maximize", None, id="an unknown comparison is never met"),
        pytest.param(["0.1"], ["acc;0.6;less;-3"], "maximize", 1, id="a negative start step is none"),
    ],
)
def test_a_trial_is_stopped_when_all_rules_have_been_met(
    readings: list[str], rules: list[str], objective_type: str, expected: int | None
) -> None:
    assert stopped_at(readings, rules, objective_type) == expected


def test_the_verdict_says_why(golden: Golden) -> None:
    book = RuleBook([rule("acc;0.6;less;2"), rule("loss;1;greater;0")], "acc", "maximize")
    for name, value in (("acc", "0.51"), ("loss", "1.5"), ("acc", "0.50")):
        book.observe(MetricLog(ZERO_TIME, name, value))

    golden(book.verdict)


BARE = shlex.split("-t trial -m 'loss;acc' -o-type minimize -s-db db:6789 -path /var/log/katib/metrics.log")
DEFAULTS = Arguments("trial", ("loss", "acc"), "minimize", "db:6789", Path("/var/log/katib/metrics.log"))


def origins(arguments: list[str]) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        parse_arguments(arguments)
    return [error.origin for error in caught.value.errors]


def test_what_is_not_given_has_katibs_defaults() -> None:
    assert parse_arguments(BARE) == DEFAULTS
    assert DEFAULTS.wait_all
    assert DEFAULTS.file_format == ""


@pytest.mark.parametrize(
    "spelling",
    [["-t", "x"], ["--t", "x"], ["-t=x"], ["--t=x"]],
    ids=["one-dash", "two-dashes", "one-dash-equals", "two-dashes-equals"],
)
def test_a_flag_may_be_spelled_in_four_ways(spelling: list[str]) -> None:
    assert parse_arguments([*BARE, *spelling]).trial == "x"


def test_a_flag_takes_whatever_follows() -> None:
    assert parse_arguments([*BARE, "-m", "-loss"]).metrics == ("-loss",)
    assert parse_arguments([*BARE, "-f", "--(a)=(b)"]).filters == ("--(a)=(b)",)


def test_rules_are_read_in_order() -> None:
    rules = ["-stop-rule", "accuracy;0.6;less;5", "-stop-rule", "loss;2;greater", "-s-earlystop", "stop:6788"]

    arguments = parse_arguments([*BARE, *rules])

    assert arguments.rules == (
        EarlyStoppingRule(name="accuracy", value="0.6", comparison="less", start_step=5),
        EarlyStoppingRule(name="loss", value="2", comparison="greater", start_step=0),
    )
    assert arguments.early_stopping == "stop:6788"


@pytest.mark.parametrize("rule", ["loss", "loss;1", "loss;1;less;five", "loss;1;less;1;more", ";1;less;1"])
def test_a_broken_rule_is_refused(rule: str) -> None:
    assert origins([*BARE, "-stop-rule", rule, "-s-earlystop", "stop:6788"]) == ["stop-rule"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2.0), ("1s", 1.0), ("500ms", 0.5), ("1m30s", 90.0), ("1.5h", 5400)]
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert parse_arguments([*BARE, "-timeout", text]).timeout_seconds == seconds


def test_a_poll_interval_of_nothing_is_no_busy_loop() -> None:
    assert parse_arguments([*BARE, "-p", "0"]).poll_seconds > 0


@pytest.mark.parametrize(("text", "waits"), [("true", True), ("True", True), ("false", False), ("False", False)])
def test_waiting_is_a_word(text: str, *, waits: bool) -> None:
    assert parse_arguments([*BARE, "-w", text]).wait_all is waits


def test_everything_wrong_is_said_at_once() -> None:
    assert origins(["-what", "-p", "soon", "-stop-rule", "x", "-m"]) == [
        "flag-unknown",
        "flag-value",
        "flag-required",
        "flag-required",
        "flag-required",
        "stop-rule",
        "duration",
    ]


def test_rules_need_somebody_to_tell() -> None:
    assert origins([*BARE, "-stop-rule", "loss;1;less;1"]) == ["flag-required"]


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("", ()),
        ("(a)=(b)", ("(a)=(b)",)),
        ("(a)=(b);(c):(d)", ("(a)=(b)", "(c):(d)")),
        ("(a;?)=(b);(c);(d)", ("(a;?)=(b)", "(c);(d)")),
        ("(a)", ("(a)",)),
    ],
    ids=["none", "one", "two", "semicolons-inside", "broken-kept-for-its-error"],
)
def test_joined_filters_come_apart_where_they_were_joined(text: str, filters: tuple[str, ...]) -> None:
    assert split_filters(text) == filters


def test_unreadable_settings_of_a_pod_are_the_usual_ones() -> None:
    assert PodSettings.of({"KATIB_POD_GRACE_SECONDS": "soon", "KATIB_GIVE_UP_SECONDS": "-1"}) == PodSettings()
    assert PodSettings.of({"KATIB_POD_GRACE_SECONDS": "90"}).grace_seconds == 90


@pytest.mark.parametrize(
    ("environment", "stays"),
    [({}, False), ({"KATIB_LAUNCHER_DIRECTORY": "/d"}, True), ({"KATIB_POD_RESTART_POLICY": "Always"}, True)],
    ids=["ordinary", "native", "always-restarted"],
)
def test_a_sidecar_that_would_be_started_again_stays(environment: dict[str, str], *, stays: bool) -> None:
    assert PodSettings.of(environment).stays is stays
