"""The median stopping rule over real gRPC, with its log behind a real DBManager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.services import calls_over
from suggestion_services.algorithms import find_entry
from suggestion_services.medianstop import MedianStop
from suggestion_services.medianstop.rule import MedianRule
from tests.support.golden import Golden
from tests.support.refusals import INVALID, refusal
from tests.support.services import MemoryDBManager, serving


class Bench:
    """A median stop service, a log, and the questions to ask."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = MemoryDBManager()
        self.address = stack.enter_context(serving(db_manager=self.log))
        self._stack = stack
        self.restart()

    def restart(self, token: str = "") -> None:
        service = MedianStop(credentials=DbManagerCredentials(token))
        channel = grpc.insecure_channel(self._stack.enter_context(serving(early_stopping=service)))
        self._stack.callback(channel.close)
        self._stub = calls_over(channel, pb)

    def succeeded(self, name: str, *readings: str, run: str = "10") -> pb.Trial:
        """Return a succeeded trial with these readings in the log."""
        self.log.readings[name] = [(f"2024-01-01T00:00:{i:02d}Z", text) for i, text in enumerate(readings)]
        status = pb.TrialStatus(condition=pb.TrialStatus.SUCCEEDED, completion_time=f"2024-01-01T{run}:00:00Z")
        return pb.Trial(name=name, status=status)

    def rules(
        self,
        trials: list[pb.Trial],
        *,
        type_: int = pb.MINIMIZE,
        experiment: str = "e",
        address: str = "",
        **settings: int,
    ) -> list[pb.EarlyStoppingRule]:
        request = pb.GetEarlyStoppingRulesRequest(
            experiment=pb.Experiment(
                name=experiment,
                spec=pb.ExperimentSpec(
                    objective=pb.ObjectiveSpec(type=type_, objective_metric_name="loss"),
                    early_stopping=_spec({"start_step": 2, **settings}),
                ),
            ),
            trials=trials,
            db_manager_address=address or self.address,
        )
        return list(self._stub.GetEarlyStoppingRules(request, timeout=60).early_stopping_rules)

    def validate(self, spec: pb.EarlyStoppingSpec) -> Any:
        request = pb.ValidateEarlyStoppingSettingsRequest(early_stopping=spec)
        return self._stub.ValidateEarlyStoppingSettings(request, timeout=60)

    def set_trial_status(self) -> Any:
        return self._stub.SetTrialStatus(pb.SetTrialStatusRequest(trial_name="t"), timeout=60)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack)


def _spec(settings: dict[str, Any], name: str = "medianstop") -> pb.EarlyStoppingSpec:
    return pb.EarlyStoppingSpec(
        algorithm_name=name,
        algorithm_settings=[pb.EarlyStoppingSetting(name=name, value=str(value)) for name, value in settings.items()],
    )


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_defaults_are_katibs_and_those_of_the_list() -> None:
    rule = MedianRule.of(_spec({}))

    assert (rule.min_trials_required, rule.start_step) == (3, 4)
    listed = {setting.name: setting.default for setting in find_entry("medianstop", early_stopping=True).info.settings}
    assert listed == {"min_trials_required": "3", "start_step": "4"}


@pytest.mark.parametrize("settings", [{}, {"min_trials_required": 2, "start_step": 5}], ids=["defaults", "both"])
def test_good_settings_are_accepted(bench: Bench, settings: dict[str, int]) -> None:
    assert bench.validate(_spec(settings)) == pb.ValidateEarlyStoppingSettingsReply()


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(_spec({}, "meanstop"), id="algorithm"),
        pytest.param(_spec({"patience": 3}), id="setting"),
        pytest.param(_spec({"min_trials_required": 0}), id="min-trials"),
        pytest.param(_spec({"start_step": 0}), id="start-step"),
        pytest.param(_spec({"start_step": "two"}), id="not-a-number"),
        pytest.param(_spec({"start_step": 2**31}), id="beyond-the-wire"),
    ],
)
def test_bad_settings_are_refused_in_katibs_words(bench: Bench, spec: pb.EarlyStoppingSpec, golden: Golden) -> None:
    code, detail = refusal(bench.validate, spec)

    assert code == INVALID
    golden(detail)


# --- the rule ---------------------------------------------------------------------------------------------------------


def test_there_is_no_rule_before_enough_trials_have_succeeded(bench: Bench) -> None:
    trials = [pb.Trial(name="a"), pb.Trial(name="b"), bench.succeeded("c", "1"), bench.succeeded("d", "1")]

    assert bench.rules(trials) == []
    assert bench.log.reads == []


@pytest.mark.parametrize(
    ("type_", "comparison"), [(pb.MINIMIZE, pb.GREATER), (pb.MAXIMIZE, pb.LESS)], ids=["minimize", "maximize"]
)
def test_the_rule_is_the_median_of_the_running_averages(bench: Bench, type_: int, comparison: int) -> None:
    trials = [
        bench.succeeded("a", "1", "3", "100"),  # 2 on average up to step 2
        bench.succeeded("b", "4", "6"),
        bench.succeeded("c", "1000000", "1000000"),  # diverged: moves a mean, not a median
    ]

    rules = bench.rules(trials, type_=type_)

    assert rules == [pb.EarlyStoppingRule(name="loss", value="5.0", comparison=comparison, start_step=2)]


def test_a_trial_that_ended_before_the_step_counts_with_what_it_has(bench: Bench) -> None:
    trials = [bench.succeeded("a", "1"), bench.succeeded("b", "2"), bench.succeeded("c", "3", "3")]

    assert [rule.value for rule in bench.rules(trials)] == ["2.0"]


@pytest.mark.parametrize("text", ["nan", "inf", "unavailable", "", "loss"])
def test_unusable_readings_never_break_a_round(bench: Bench, text: str) -> None:
    trials = [
        bench.succeeded("a", text, "1"),
        bench.succeeded("b", text, text, "1"),
        bench.succeeded("c", "2", "2"),
        bench.succeeded("d", "9", text),
        bench.succeeded("e"),
    ]

    assert [rule.value for rule in bench.rules(trials)] == ["2.0"]


def test_an_unreadable_time_in_one_log_leaves_the_others(bench: Bench) -> None:
    trials = [bench.succeeded(name, "2") for name in "abcd"]
    bench.log.readings["d"] = [("yesterday", "50")]

    assert [rule.value for rule in bench.rules(trials)] == ["2.0"]


@pytest.mark.parametrize(
    "condition",
    [pb.TrialStatus.FAILED, pb.TrialStatus.EARLYSTOPPED, pb.TrialStatus.RUNNING, pb.TrialStatus.KILLED],
    ids=["failed", "early-stopped", "running", "killed"],
)
def test_only_succeeded_trials_count(bench: Bench, condition: Any) -> None:
    other = bench.succeeded("x", "50", "50")
    other.status.condition = condition

    assert [rule.value for rule in bench.rules([*(bench.succeeded(name, "2") for name in "abc"), other])] == ["2.0"]
    assert "x" not in bench.log.reads


# --- reading ----------------------------------------------------------------------------------------------------------


def test_each_log_is_read_once(bench: Bench) -> None:
    trials = [bench.succeeded(name, "2") for name in "abc"]
    bench.rules(trials)

    bench.rules([*trials, bench.succeeded("d", "4")])

    assert sorted(bench.log.reads) == ["a", "b", "c", "d"]


def test_a_restarted_service_gives_the_same_rule(bench: Bench) -> None:
    trials = [bench.succeeded(name, value) for name, value in zip("abc", "123", strict=True)]
    before = bench.rules(trials)

    bench.restart()

    assert bench.rules(trials) == before != []


def test_an_experiment_that_is_run_anew_does_not_see_the_old_logs(bench: Bench) -> None:
    bench.rules([bench.succeeded(name, "2") for name in "abc"])

    assert [rule.value for rule in bench.rules([bench.succeeded(name, "7", run="11") for name in "abc"])] == ["7.0"]


def test_experiments_and_settings_do_not_mix(bench: Bench) -> None:
    trials = [bench.succeeded(name, "2", "4") for name in "abc"]

    assert [rule.value for rule in bench.rules(trials, experiment="one")] == ["3.0"]
    assert [rule.value for rule in bench.rules(trials, experiment="one", start_step=1)] == ["2.0"]
    assert [rule.value for rule in bench.rules([], experiment="two")] == []


def test_a_log_that_cannot_be_reached_is_a_passing_failure(bench: Bench) -> None:
    trials = [bench.succeeded(name, "2") for name in "abc"]

    assert refusal(bench.rules, trials, address="127.0.0.1:1")[0] is grpc.StatusCode.UNAVAILABLE
    assert [rule.value for rule in bench.rules(trials)] == ["2.0"]


def test_an_address_that_is_none_is_refused(bench: Bench) -> None:
    assert refusal(bench.rules, [bench.succeeded(name, "2") for name in "abc"], address="localhost") == (
        INVALID,
        'dbManagerAddress: "localhost" is not an address; write host:port or unix:/path',
    )


def test_a_stopped_trial_is_acknowledged(bench: Bench) -> None:
    assert bench.set_trial_status() == pb.SetTrialStatusReply()


def test_logs_are_read_with_the_token_that_its_pod_was_handed(bench: Bench) -> None:
    bench.restart("token of a reader")
    bench.rules([bench.succeeded(name, "2") for name in "abc"])

    assert bench.log.tokens == {"token of a reader"}
