from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from katib.errors import InvalidError
from katib.model.types import EarlyStoppingRule
from metrics_collector.arguments import Arguments, parse_arguments, split_filters
from metrics_collector.pod_settings import PodSettings

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
