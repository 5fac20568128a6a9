"""The shell around an algorithm: what happens when the algorithm is slow, breaks, or the caller goes away."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar

import grpc
import pytest

from katib.errors import UnavailableError
from katib.model.algorithms import AlgorithmInfo
from katib.model.space import Point
from katib.model.types import ObjectiveSpec
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated.suggestions_pb2 import UndecodedSuggestionsRequest
from katib.wire.rpc.services import calls_over
from suggestion_services.base import Algorithm, StatelessAlgorithm
from suggestion_services.base.servicer import ServedAlgorithm, SuggestionServicer, add_to_server
from suggestion_services.base.sessions import LatestUsed, SearchSession, session_key
from suggestion_services.base.shared_context import SharedContext, quiet
from tests.support.golden import Golden
from tests.support.refusals import INVALID, refusal
from tests.support.searches import algorithm_for
from tests.support.suggestion import Service, a_trial, an_experiment

INFO = AlgorithmInfo("odd", "For tests.", ())
PATIENCE_SECONDS = 60.0


class Slow(StatelessAlgorithm):
    """Waits, in the experiment named `slow`, until it is let go."""

    entered: ClassVar[threading.Event] = threading.Event()
    go: ClassVar[threading.Event] = threading.Event()
    drawn: ClassVar[list[int]] = []

    def point(self, k: int) -> Point:
        if self.problem.experiment == "slow":
            self.drawn.append(k)
            self.entered.set()
            assert self.go.wait(PATIENCE_SECONDS)
        return {"x": 0.5, "y": 0.5}


class Broken(StatelessAlgorithm):
    """Fails with the error that the experiment's name asks for."""

    def point(self, k: int) -> Point:
        if self.problem.experiment == "library":
            raise ZeroDivisionError("a text\nof two lines")
        raise UnavailableError("the cupboard is empty")


@contextmanager
def served(cls: type[Algorithm]) -> Iterator[Service]:
    server = grpc.server(ThreadPoolExecutor(4))
    add_to_server(SuggestionServicer([ServedAlgorithm(INFO, lambda: cls)]), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Service(channel)
    finally:
        server.stop(None).wait()


def test_a_slow_experiment_does_not_hold_up_another() -> None:
    Slow.entered.clear()
    Slow.go.clear()
    with served(Slow) as service, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(service.ask, an_experiment("odd", name="slow"))
        assert Slow.entered.wait(PATIENCE_SECONDS)

        assert len(Service(service.channel).ask(an_experiment("odd", name="quick"))) == 1
        assert not slow.done()

        Slow.go.set()
        assert len(slow.result(PATIENCE_SECONDS)) == 1


def test_work_stops_when_the_caller_has_gone() -> None:
    Slow.entered.clear()
    Slow.go.clear()
    Slow.drawn.clear()
    request = pb.GetSuggestionsRequest(
        experiment=an_experiment("odd", name="slow"), current_request_number=1000, total_request_number=1000
    )
    gone = threading.Event()
    with served(Slow) as service:
        call = calls_over(service.channel, pb).GetSuggestions.future(request)
        call.add_done_callback(lambda _: gone.set())
        assert Slow.entered.wait(PATIENCE_SECONDS)
        call.cancel()
        assert gone.wait(PATIENCE_SECONDS)
        # The server learns of it by a message of its own; a request of the same channel arrives behind that message.
        service.ask(an_experiment("odd", name="quick"))
        Slow.go.set()
        service.ask(an_experiment("odd", name="slow"))  # waits for the lock that the abandoned request holds

    assert len(Slow.drawn) < 1000


def test_an_unforeseen_error_is_unknown_with_one_line_and_logged_once(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    with caplog.at_level(logging.ERROR), served(Broken) as service:
        code, details = refusal(service.ask, an_experiment("odd", name="library"))

    assert code == grpc.StatusCode.UNKNOWN
    golden(details)
    assert [record.name for record in caplog.records if record.exc_info] == ["suggestion_services.base.servicer"]


def test_an_error_of_ours_keeps_its_meaning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), served(Broken) as service:
        code, details = refusal(service.ask, an_experiment("odd", name="ours"))

    assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "the cupboard is empty")
    assert caplog.records == []


def a_session() -> SearchSession:
    return SearchSession(algorithm_for("random"), ObjectiveSpec(objective_metric_name="loss"))


def a_request(trials: Sequence[pb.Trial], earlier: Sequence[pb.Trial] = ()) -> UndecodedSuggestionsRequest:
    request = pb.GetSuggestionsRequest(trials=trials, earlier_trials=earlier)
    return UndecodedSuggestionsRequest.FromString(request.SerializeToString())


def test_a_trial_seen_before_is_the_same_object_again() -> None:
    session = a_session()
    old, new = a_trial("b", {"x": "1"}, 1), a_trial("a", {"x": "2"}, 2)
    (first,) = session.history(a_request([old]))

    again = session.history(a_request([old, new]))

    assert {trial.name for trial in again} == {"a", "b"}
    assert any(trial is first for trial in again)


def test_names_do_not_decide_the_order_of_trials() -> None:
    points = [{"x": str(x)} for x in (1, 1, 2, 3, 4)]
    orders = []
    for names in ("abcde", "edcba"):
        trials = [a_trial(name, point, i) for i, (name, point) in enumerate(zip(names, points, strict=True))]
        orders.append([trial.objective for trial in a_session().history(a_request(trials))])

    assert orders[0] == orders[1]


def test_a_trial_that_changed_is_read_anew() -> None:
    session = a_session()
    session.history(a_request([a_trial("a", {"x": "1"}, condition=pb.TrialStatus.RUNNING)]))

    (trial,) = session.history(a_request([a_trial("a", {"x": "1"}, 3)]))

    assert trial.objective == 3.0


def test_equally_named_trials_count_by_the_last_of_them_and_apart_from_earlier_ones() -> None:
    one, other = a_trial("a", {"x": "1"}, 1), a_trial("a", {"x": "2"}, 2)

    history = a_session().history(a_request([one, other, one], earlier=[other]))

    assert [(trial.is_earlier, trial.objective) for trial in history] == [(True, 2.0), (False, 1.0)]


def test_bytes_that_are_not_a_trial_are_refused_with_their_place(golden: Golden) -> None:
    request = UndecodedSuggestionsRequest(
        experiment=an_experiment("odd"), trials=[a_trial("a", {"x": "1"}, 1).SerializeToString(), b"\xff"]
    )
    with served(Slow) as service:
        code, details = refusal(service.send, request)

    assert code == INVALID
    golden(details)


def test_the_least_recently_used_experiment_is_forgotten() -> None:
    sessions = LatestUsed[tuple[str, bytes], SearchSession](2)
    one, two, three = (session_key(an_experiment("random", name=name)) for name in ("one", "two", "three"))
    first = sessions.get(one, a_session)
    second = sessions.get(two, a_session)
    assert sessions.get(one, a_session) is first
    sessions.get(three, a_session)

    assert sessions.get(one, a_session) is first
    assert sessions.get(two, a_session) is not second


def test_durations_come_from_the_times_of_a_trial() -> None:
    times = {"start_time": "2024-01-01T00:00:00Z", "completion_time": "2024-01-01T00:01:30Z"}
    (trial,) = a_session().history(a_request([a_trial("a", {}, 1, **times)]))

    assert trial.seconds == 90.0


# --- A change of the whole process, shared by threads -----------------------------------------------------------------


def test_the_first_enters_and_the_last_leaves_in_whatever_order() -> None:
    events: list[str] = []

    @contextmanager
    def change() -> Iterator[None]:
        events.append("enter")
        yield
        events.append("leave")

    shared = SharedContext(change)
    shared.__enter__()
    shared.__enter__()
    shared.__exit__(None, None, None)

    assert events == ["enter"]

    shared.__exit__(None, None, None)
    with shared:
        pass

    assert events == ["enter", "leave"] * 2


def test_quiet_ignores_warnings_and_gives_them_back() -> None:
    with quiet:
        warnings.warn("nobody hears", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        warnings.warn("somebody hears", UserWarning, stacklevel=1)

    assert len(heard) == 1
