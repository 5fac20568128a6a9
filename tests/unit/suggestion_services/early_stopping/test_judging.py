"""Early stopping services over real gRPC, with curves from a real DB manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from katib.model.metrics import MetricLog
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import early_stopping_pb2 as judging
from katib.wire.rpc.db_manager import serve_db_manager
from katib.wire.rpc.services import calls_over
from suggestion_services.algorithms import ENTRIES, find_entry
from suggestion_services.server import start_server
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog
from tests.support.refusals import INVALID, refusal
from tests.support.services import MemoryDBManager, serving
from tests.support.stopping_algorithms import NAMES

T0 = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING, SUCCEEDED = pb.TrialStatus.RUNNING, pb.TrialStatus.SUCCEEDED


class Bench:
    """A service of all early stopping algorithms, a log, and the questions to ask."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.log = MemoryObservationLog()
        self.address = f"unix:{directory}/log"
        stack.callback(serve_db_manager(self.log, self.address).stop)
        self._stack = stack
        self._seconds = 0
        self.restart(directory / "one")

    def restart(self, socket: Path) -> None:
        server, _ = start_server([e for e in ENTRIES if e.info.early_stopping], f"unix:{socket}")
        self._stack.callback(lambda: server.stop(None).wait())
        channel = self._stack.enter_context(grpc.insecure_channel(f"unix:{socket}"))
        self._stub = calls_over(channel, pb)
        self._judge = calls_over(channel, judging)

    def report(self, trial: str, *values: float, first_step: int | None = None) -> None:
        for i, value in enumerate(values):
            self._seconds += 1
            step = None if first_step is None else first_step + i
            self.log.report(trial, [MetricLog(T0 + timedelta(seconds=self._seconds), "loss", str(value), step)])

    def judge(
        self, algorithm: str, *, address: str = "", namespace: str = "", type_: Any = pb.MINIMIZE, **trials: Any
    ) -> dict[str, Any]:
        request = judging.JudgeRequest(
            experiment=an_experiment(algorithm, type_=type_),
            trials=[a_trial(name, condition) for name, condition in trials.items()],
            db_manager_address=address or self.address,
            namespace=namespace,
        )
        return {verdict.trial_name: verdict for verdict in self._judge.Judge(request, timeout=60).verdicts}

    def replay(self, experiment: pb.Experiment, *curves: judging.Curve) -> list[judging.Verdict]:
        request = judging.ReplayRequest(experiment=experiment, curves=curves)
        return list(self._judge.Replay(request, timeout=60).verdicts)

    def rules(self, experiment: pb.Experiment) -> list[pb.EarlyStoppingRule]:
        request = pb.GetEarlyStoppingRulesRequest(experiment=experiment, db_manager_address=self.address)
        return list(self._stub.GetEarlyStoppingRules(request, timeout=60).early_stopping_rules)

    def validate(self, spec: pb.EarlyStoppingSpec) -> Any:
        request = pb.ValidateEarlyStoppingSettingsRequest(early_stopping=spec)
        return self._stub.ValidateEarlyStoppingSettings(request, timeout=60)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack, tmp_path)


def a_spec(algorithm: str, **settings: object) -> pb.EarlyStoppingSpec:
    given = [pb.EarlyStoppingSetting(name=name, value=str(value)) for name, value in settings.items()]
    return pb.EarlyStoppingSpec(algorithm_name=algorithm, algorithm_settings=given)


def an_experiment(algorithm: str, *, type_: Any = pb.MINIMIZE, **settings: object) -> pb.Experiment:
    objective = pb.ObjectiveSpec(type=type_, objective_metric_name="loss")
    spec = pb.ExperimentSpec(objective=objective, early_stopping=a_spec(algorithm, **settings))
    return pb.Experiment(name="e", spec=spec)


def a_trial(name: str, condition: Any) -> pb.Trial:
    return pb.Trial(name=name, status=pb.TrialStatus(condition=condition, start_time="2026-01-01T00:00:00Z"))


def test_a_running_trial_is_judged_by_what_the_log_has_now(bench: Bench, golden: Golden) -> None:
    bench.report("a", 0.9, first_step=4)
    first = bench.judge("asha", a=RUNNING, b=RUNNING)
    bench.report("b", 0.5, first_step=4)
    second = bench.judge("asha", a=RUNNING, b=RUNNING)

    assert first == {}
    assert set(second) == {"a"}
    assert (second["a"].value, second["a"].resource) == ("0.9", 4)
    golden(second["a"].reason)


def test_a_verdict_is_repeated_while_the_trial_runs(bench: Bench) -> None:
    bench.report("a", 0.9)
    bench.report("b", 0.5)

    assert [set(bench.judge("asha", a=RUNNING, b=RUNNING)) for _ in range(2)] == [{"a"}, {"a"}]
    assert bench.judge("asha", a=pb.TrialStatus.EARLYSTOPPED, b=RUNNING) == {}


def test_trials_that_failed_or_were_killed_do_not_count(bench: Bench) -> None:
    bench.report("a", 0.9)
    bench.report("b", 0.5)

    for condition in (pb.TrialStatus.FAILED, pb.TrialStatus.KILLED, pb.TrialStatus.UNKNOWN):
        assert bench.judge("asha", a=RUNNING, b=condition) == {}


def test_a_restarted_service_says_the_same(bench: Bench, tmp_path: Path) -> None:
    for name, value in (("a", 0.9), ("b", 0.5), ("c", 0.7)):
        bench.report(name, value)
    before = bench.judge("asha", a=RUNNING, b=SUCCEEDED, c=RUNNING)
    bench.restart(tmp_path / "two")

    assert bench.judge("asha", a=RUNNING, b=SUCCEEDED, c=RUNNING) == before
    assert set(before) == {"a", "c"}


def test_experiments_of_one_name_in_two_namespaces_do_not_mix(bench: Bench) -> None:
    """The trial of the other namespace began anew under its name, so what is known of the first one is not its."""
    bench.report("a", 0.9, first_step=4)
    bench.report("b", 0.5, first_step=4)
    first = bench.judge("asha", namespace="one", a=RUNNING, b=RUNNING)
    bench.log.delete("a")
    bench.report("a", 0.1, first_step=4)

    assert list(first) == ["a"]
    assert list(bench.judge("asha", namespace="two", a=RUNNING, b=RUNNING)) == ["b"]


def test_directions_do_not_mix(bench: Bench) -> None:
    bench.report("a", 0.9)
    bench.report("b", 0.5)

    assert set(bench.judge("asha", a=RUNNING, b=RUNNING)) == {"a"}
    assert set(bench.judge("asha", type_=pb.MAXIMIZE, a=RUNNING, b=RUNNING)) == {"b"}


def test_a_db_manager_of_katib_serves_as_well(bench: Bench) -> None:
    katibs = MemoryDBManager()
    katibs.readings = {"a": [("2026-01-01T00:00:01Z", "0.9")], "b": [("2026-01-01T00:00:01Z", "0.5")]}
    with serving(db_manager=katibs) as address:
        found = [set(bench.judge("asha", address=address, a=RUNNING, b=RUNNING)) for _ in range(2)]

    assert found == [{"a"}, {"a"}]


def test_medianstop_judges_running_trials(bench: Bench) -> None:
    for i in range(3):
        bench.report(f"t{i}", 0.5, 0.5, 0.4, 0.4)
    bench.report("bad", 0.9, 0.9, 0.9, 0.9)

    assert set(bench.judge("medianstop", bad=RUNNING, **dict.fromkeys(("t0", "t1", "t2"), SUCCEEDED))) == {"bad"}
    assert bench.judge("medianstop", bad=RUNNING, t0=SUCCEEDED, t1=SUCCEEDED) == {}


def test_a_log_that_cannot_be_reached_is_a_passing_failure(bench: Bench) -> None:
    code, _ = refusal(bench.judge, "asha", address="unix:/nowhere/at/all", a=RUNNING)

    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("spec", "detail"),
    [
        (a_spec("meanstop"), "unknown algorithm name meanstop"),
        (a_spec("asha", patience=3), "unknown setting patience for algorithm asha"),
        (a_spec("asha", reduction_factor=1), "reduction_factor should be great or equal than 2"),
        (a_spec("threshold", bound="low"), "failed to validate bound(low): could not convert string to float: 'low'"),
    ],
    ids=["algorithm", "setting", "range", "type"],
)
def test_bad_settings_are_refused_as_all_services_do(bench: Bench, spec: pb.EarlyStoppingSpec, detail: str) -> None:
    assert refusal(bench.validate, spec) == (INVALID, detail)


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_accepts_its_defaults(bench: Bench, name: str) -> None:
    given = {s.name: s.default for s in find_entry(name, early_stopping=True).info.settings or () if s.default}

    assert bench.validate(a_spec(name, **given)) == pb.ValidateEarlyStoppingSettingsReply()
    assert bench.judge(name, a=RUNNING) == {}


def test_katibs_controller_gets_the_rule_that_needs_no_other_trial(bench: Bench) -> None:
    bound = {"bound": 0.5, "step": 3}
    less, more = pb.LESS, pb.GREATER

    assert bench.rules(an_experiment("threshold", **bound)) == [
        pb.EarlyStoppingRule(name="loss", value="0.5", comparison=more, start_step=3)
    ]
    assert bench.rules(an_experiment("threshold", type_=pb.MAXIMIZE, **bound)) == [
        pb.EarlyStoppingRule(name="loss", value="0.5", comparison=less, start_step=3)
    ]
    assert [bench.rules(an_experiment(name)) for name in NAMES] == [[]] * len(NAMES)


def test_a_request_that_names_no_algorithm_means_the_first_of_the_service(bench: Bench) -> None:
    unnamed = an_experiment("")
    spec = pb.EarlyStoppingSpec(algorithm_settings=[pb.EarlyStoppingSetting(name="start_step", value="0")])

    assert bench.rules(unnamed) == []
    code, details = refusal(bench.validate, spec)
    assert code == INVALID
    assert "start_step" in details


def test_a_replay_says_whom_it_would_have_stopped_and_when(bench: Bench) -> None:
    def curve(name: str, value: float, start: int) -> judging.Curve:
        points = [judging.Point(time_micros=start + i, resource=i, value=value) for i in range(1, 4)]
        return judging.Curve(trial_name=name, points=points)

    (verdict,) = bench.replay(an_experiment("asha"), curve("early", 0.9, 0), curve("late", 0.5, 1))

    assert (verdict.trial_name, verdict.time_micros, verdict.resource) == ("early", 2, 2)
