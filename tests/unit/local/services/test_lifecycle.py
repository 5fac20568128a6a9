"""The life cycle of a service whose process is kept running. Time is a number."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan
from katib.engine.algorithm_services.readiness import ServicePhase, ServiceTiming
from katib.errors import Backoff
from katib.places.machine.services.files import ServiceLog
from katib.places.machine.services.supervisor import ServiceLifecycle
from tests.support.golden import Golden

TIMING = ServiceTiming(idle=60.0, restart=Backoff(0.1, 10.0), settled=60.0, max_failures=3)
PLAN = ServicePlan(ServiceId("tpe"), command=("serve", "--port", "1"))
ONE, TWO = ("default", "one"), ("default", "two")


def a_state(**fields: Any) -> ServiceLifecycle:
    return ServiceLifecycle(PLAN, TIMING, 0.0, **fields)


def exited(state: ServiceLifecycle, *, answered: bool = False, seconds: float = 1.0) -> ServiceLifecycle:
    return state.after_exit("exited with 3", ": no numpy", may_pass=False, answered=answered, seconds=seconds)


def killed(state: ServiceLifecycle, *, answered: bool = False) -> ServiceLifecycle:
    return state.after_exit("was killed by SIGKILL", "; see the log", may_pass=True, answered=answered, seconds=1.0)


def test_without_users_it_stops_after_a_while_and_a_user_keeps_it() -> None:
    idle = a_state().used(None, 10.0)
    used = idle.used(ONE, 20.0)

    assert (idle.at(69.9).stopping, idle.at(70.0).stopping) == (False, True)
    assert (used.seconds_until_idle(1000.0), used.at(1000.0).stopping) == (None, False)
    assert used.released(ONE, 100.0).seconds_until_idle(130.0) == 30.0


def test_one_that_stops_takes_no_user() -> None:
    assert a_state().used(ONE, 1.0)
    assert not a_state(stopping=True).used(ONE, 1.0)
    assert not a_state(phase=ServicePhase.STOPPED).used(None, 1.0)


def test_a_failed_service_stays_with_its_users_and_leaves_others_to_a_new_attempt() -> None:
    failed = a_state(phase=ServicePhase.FAILED, users=frozenset({ONE}))

    assert [bool(failed.used(user, 1.0)) for user in (ONE, TWO, None)] == [True, False, False]


def test_processes_that_answer_nothing_end_it_after_three_in_a_row_with_growing_pauses(golden: Golden) -> None:
    states = [exited(a_state())]
    for _ in range(2):
        states.append(exited(states[-1]))

    assert [state.phase for state in states] == [ServicePhase.STARTING, ServicePhase.STARTING, ServicePhase.FAILED]
    assert [state.pause_seconds for state in states[:2]] == [0.1, 0.2]
    golden(states[0].last_error)
    golden(states[2].last_error)


def test_processes_that_are_ended_from_outside_never_end_it_and_what_it_waits_for_stays_the_same(
    golden: Golden,
) -> None:
    states = [killed(a_state())]
    for _ in range(50):
        states.append(killed(states[-1]))

    assert {state.phase for state in states} == {ServicePhase.STARTING}
    assert [state.waiting_for for state in states[:2]] == ["", ""]
    assert {state.waiting_for for state in states[2:]} == {'suggestion service "tpe" was killed by SIGKILL'}
    golden(states[-1].last_error)
    assert states[-1].pause_seconds == TIMING.restart.longest_seconds
    assert killed(states[-1], answered=True).waiting_for == ""


def test_only_ends_of_its_own_in_a_row_end_it() -> None:
    after_kills = exited(exited(killed(killed(killed(a_state())))))

    assert after_kills.phase is ServicePhase.STARTING
    assert exited(killed(after_kills)).phase is ServicePhase.STARTING
    assert exited(after_kills).phase is ServicePhase.FAILED


@pytest.mark.parametrize("success", [{"answered": True}, {"seconds": 60.1}], ids=str)
def test_an_answer_or_a_long_life_wipes_out_failures(success: dict[str, Any]) -> None:
    state = exited(exited(exited(a_state())), answered=True) if "answered" in success else exited(a_state())

    assert (exited(replace(state, failures=2), **success).failures, state.phase) == (0, ServicePhase.STARTING)


@pytest.mark.parametrize(
    ("fields", "state", "attempts"),
    [
        pytest.param({}, "starting", 1, id="starting"),
        pytest.param({"phase": ServicePhase.READY}, "ready", 1, id="ready"),
        pytest.param({"failures": 1}, "failing", 2, id="again"),
        pytest.param({"phase": ServicePhase.FAILED, "failures": 3}, "failing", 3, id="given up"),
        pytest.param({"phase": ServicePhase.FAILED}, "failing", 1, id="cannot be started"),
    ],
)
def test_it_tells_its_users_how_it_is_doing(fields: dict[str, Any], state: str, attempts: int) -> None:
    told = a_state(users=frozenset({ONE}), **fields).state_for(ONE)

    assert told is not None
    assert (told.state, told.attempts, told.address) == (state, attempts, "serve --port 1")
    assert a_state().state_for(ONE) is None


def _write(log: ServiceLog, data: bytes) -> None:
    descriptor = log.open()
    os.write(descriptor, data)
    os.close(descriptor)


@pytest.fixture
def log(tmp_path: Path) -> ServiceLog:
    return ServiceLog(tmp_path / "services", ServiceId("tpe"))


@pytest.mark.parametrize(
    ("printed", "lines"),
    [(b"one\n\n  two\nthree\nfour", "two | three | four"), (b"", ""), (b"\xff\xfe done\n", "\ufffd\ufffd done")],
    ids=["lines", "silence", "no text"],
)
def test_the_last_lines_are_those_of_the_newest_process(log: ServiceLog, printed: bytes, lines: str) -> None:
    _write(log, b"old words\n")
    _write(log, printed)

    assert log.last_lines() == lines
    assert log.path.read_bytes().startswith(b"old words\n")


def test_a_long_output_costs_no_more_than_its_end(log: ServiceLog) -> None:
    _write(log, b"x" * 100_000)

    assert len(log.last_lines()) <= 4096


def test_a_large_log_is_set_aside_when_a_new_process_starts(log: ServiceLog) -> None:
    _write(log, b"x" * (1 << 21))
    _write(log, b"new\n")

    assert log.path.read_bytes() == b"new\n"
    assert log.path.with_name("suggestion-tpe.log.1").stat().st_size == 1 << 21
    assert log.last_lines() == "new"


def test_the_two_kinds_of_one_name_have_different_logs(tmp_path: Path) -> None:
    kinds = {ServiceLog(tmp_path, ServiceId("x", early_stopping=e)).path.name for e in (False, True)}

    assert kinds == {"suggestion-x.log", "early-stopping-x.log"}
