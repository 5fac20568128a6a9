"""The program below a launcher, whose state and orders are written and read by the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metrics_collector.program import RESTART_SECONDS, LaunchedProgram, ProgramPhase
from tests.support.golden import Golden


class Launcher:
    """The directory of a launcher that is there as long as its pipe is open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 0.0
        self.run = 0
        self._orders = -1

    def start(self) -> None:
        self.run += 1
        (self.directory / "orders").unlink(missing_ok=True)
        os.mkfifo(self.directory / "orders")
        self._orders = os.open(self.directory / "orders", os.O_RDWR | os.O_NONBLOCK)
        self.say("running 0")

    def say(self, words: str) -> None:
        (self.directory / "state").write_text(f"{self.run} {words}".ljust(63) + "\n")

    def end(self, words: str = "") -> None:
        """Say how the program ended, and go; without a word when killed."""
        if words:
            self.say(words)
        self.close()

    def close(self) -> None:
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1

    def orders(self) -> str:
        return os.read(self._orders, 100).decode()

    def program(self, restart_policy: str = "Never", own: dict[str, Any] | None = None) -> LaunchedProgram:
        return LaunchedProgram(
            self.directory, restart_policy=restart_policy, own_restart=own, monotonic=lambda: self.now
        )

    def seen_running(self, restart_policy: str = "Never", own: dict[str, Any] | None = None) -> LaunchedProgram:
        program = self.program(restart_policy, own)
        self.start()
        assert program.look() is ProgramPhase.RUNNING
        return program


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    launcher.close()


def test_a_program_is_awaited_then_runs_then_has_ended(launcher: Launcher) -> None:
    program = launcher.program()
    assert program.look() is ProgramPhase.AWAITED

    launcher.start()
    assert (program.look(), program.is_gone()) == (ProgramPhase.RUNNING, False)

    launcher.say("completed 0")  # and waits for us
    assert (program.look(), program.completed, program.stopped, program.is_gone()) == (
        ProgramPhase.ENDED,
        True,
        False,
        False,
    )
    launcher.close()
    assert (program.look(), program.is_gone()) == (ProgramPhase.ENDED, True)


@pytest.mark.parametrize(
    ("words", "completed", "stopped"),
    [("failed 3", False, False), ("", False, False), ("stopped 0", True, True), ("nonsense", False, False)],
)
def test_a_program_that_is_gone_has_ended(launcher: Launcher, words: str, *, completed: bool, stopped: bool) -> None:
    program = launcher.seen_running()

    launcher.end(words.replace("nonsense", ""))

    assert program.look() is ProgramPhase.ENDED
    assert (program.completed, program.stopped) == (completed, stopped)


@pytest.mark.parametrize("text", ["", "\n", "1 lost 0\n", "1 running\n", "\xff"])
def test_a_state_that_cannot_be_read_is_none(launcher: Launcher, text: str) -> None:
    (launcher.directory / "state").write_text(text, encoding="latin-1")

    assert launcher.program().look() is ProgramPhase.AWAITED


def test_orders_reach_the_launcher_and_nobody_else(launcher: Launcher) -> None:
    program = launcher.seen_running()

    assert program.stop() == ""
    program.release()
    assert launcher.orders() == "stop 1\ndone 1\n"
    launcher.end("stopped 0")
    program.release()
    launcher.start()
    program.release()  # no look has seen this run
    assert launcher.orders() == "done 1\n"


OWN_RULE = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}],
}
ON_KILL = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [137]}}],
}


@pytest.mark.parametrize(
    ("policy", "own", "words", "phase", "doubt"),
    [
        ("Never", {}, "failed 1", ProgramPhase.ENDED, False),
        ("OnFailure", {}, "failed 1", ProgramPhase.AWAITED, False),
        ("OnFailure", {}, "completed 0", ProgramPhase.ENDED, False),
        ("OnFailure", {}, "stopped 0", ProgramPhase.ENDED, False),
        ("OnFailure", {}, "", ProgramPhase.AWAITED, False),
        ("Always", {}, "completed 0", ProgramPhase.AWAITED, False),
        ("Never", OWN_RULE, "failed 3", ProgramPhase.AWAITED, False),
        ("Never", OWN_RULE, "failed 4", ProgramPhase.ENDED, False),
        ("Never", OWN_RULE, "completed 0", ProgramPhase.ENDED, False),
        ("Never", OWN_RULE, "", ProgramPhase.ENDED, True),
        ("Never", ON_KILL, "", ProgramPhase.AWAITED, False),
        ("Never", ON_KILL, "failed 137", ProgramPhase.AWAITED, False),
        ("Never", {"restartPolicy": "OnFailure"}, "failed 1", ProgramPhase.AWAITED, False),
        ("Never", {"restartPolicy": "OnFailure"}, "completed 0", ProgramPhase.ENDED, False),
        ("Never", {"restartPolicy": "Always"}, "completed 0", ProgramPhase.AWAITED, False),
        ("OnFailure", {"restartPolicy": "Never"}, "", ProgramPhase.ENDED, False),
    ],
)
def test_the_policy_or_the_rules_of_its_container_decide_whether_a_program_has_ended(
    launcher: Launcher, policy: str, own: dict[str, Any], words: str, phase: ProgramPhase, *, doubt: bool
) -> None:
    program = launcher.seen_running(policy, own)

    launcher.end(words)

    assert program.look() is phase
    assert bool(program.doubt) is doubt


def test_the_time_until_a_program_has_to_run_again_begins_with_each_end(launcher: Launcher, golden: Golden) -> None:
    """It does not run again on a node that is older than the API server."""
    program = launcher.program(own=OWN_RULE)
    for _ in range(2):
        launcher.start()
        program.look()
        launcher.end("failed 3")
        assert program.look() is ProgramPhase.AWAITED
        launcher.now += RESTART_SECONDS - 1
    assert program.look() is ProgramPhase.AWAITED

    launcher.now += 1

    assert program.look() is ProgramPhase.ENDED
    golden(program.doubt)


def test_the_last_of_several_runs_counts(launcher: Launcher) -> None:
    program = launcher.seen_running("OnFailure")
    launcher.end("failed 1")
    program.look()

    launcher.start()
    assert program.look() is ProgramPhase.RUNNING
    launcher.end("completed 0")

    assert (program.look(), program.completed) == (ProgramPhase.ENDED, True)
    assert not program.runs_again()
    launcher.start()
    assert program.runs_again()
