"""A program whose command nobody wrapped, seen through a /proc written by the tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from metrics_collector.program import Phase
from metrics_collector.unwrapped import RESTART_SECONDS, UNSEEN_SECONDS, UnwrappedProgram


class Pod:
    def __init__(self, directory: Path) -> None:
        self.proc = directory
        self.now = 0.0
        self.is_over = False
        self.start(1)
        self.start(os.getpid())

    def start(self, pid: int, parent: int = 0) -> None:
        place = self.proc / str(pid)
        place.mkdir()
        rest = " ".join(["0"] * 17)
        (place / "stat").write_text(f"{pid} (x) S {parent} {rest} {pid} 0 0\n")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.proc / str(pid))

    def seen_running(self, restart_policy: str = "Never", own: dict[str, Any] | None = None) -> UnwrappedProgram:
        """Return a program that was seen running as process 70."""
        program = self.program(restart_policy, own)
        self.start(70)
        assert program.look() is Phase.RUNNING
        return program

    def program(self, restart_policy: str = "Never", own: dict[str, Any] | None = None) -> UnwrappedProgram:
        return UnwrappedProgram(
            restart_policy=restart_policy,
            own_restart=own,
            is_over=lambda: self.is_over,
            monotonic=lambda: self.now,
            proc=self.proc,
        )


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_program_runs_from_its_first_process_to_its_last(pod: Pod) -> None:
    program = pod.program()
    assert program.look() is Phase.AWAITED

    pod.start(70)
    pod.start(71, parent=70)
    pod.start(80)
    assert program.look() is Phase.RUNNING
    pod.end(70)
    assert program.look() is Phase.RUNNING
    pod.end(80)
    assert program.look() is Phase.ENDED
    assert program.completed


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_a_program_that_ended_before_the_first_look_is_not_awaited_forever(pod: Pod, policy: str) -> None:
    program = pod.program(policy)
    program.look()
    pod.now += UNSEEN_SECONDS - 1
    assert program.look() is Phase.AWAITED
    pod.now += 1

    assert program.look() is Phase.ENDED
    assert program.completed


def test_a_program_whose_image_comes_late_is_waited_for(pod: Pod) -> None:
    program = pod.program()
    pod.now += UNSEEN_SECONDS - 1
    pod.start(70)
    assert program.look() is Phase.RUNNING
    pod.now += UNSEEN_SECONDS

    assert program.look() is Phase.RUNNING


def test_what_comes_after_is_noticed_where_containers_run_again(pod: Pod) -> None:
    program = pod.seen_running("OnFailure")
    pod.end(70)
    assert program.look() is Phase.AWAITED
    pod.start(71)
    assert program.look() is Phase.RUNNING
    pod.end(71)
    program.look()
    pod.now += RESTART_SECONDS

    assert program.look() is Phase.ENDED


def test_a_program_that_always_runs_again_never_ends_by_itself(pod: Pod) -> None:
    program = pod.seen_running("Always")
    pod.end(70)
    pod.now += 1000.0

    assert program.look() is Phase.AWAITED


def test_a_pod_that_kubernetes_ends_has_ended_whatever_still_runs(pod: Pod) -> None:
    program = pod.seen_running()
    pod.is_over = True

    assert program.look() is Phase.ENDED


@pytest.mark.parametrize(
    ("own", "at_once", "later"),
    [
        ({"restartPolicy": "OnFailure"}, Phase.AWAITED, Phase.ENDED),
        ({"restartPolicy": "Always"}, Phase.AWAITED, Phase.AWAITED),
        ({"restartPolicy": "Never"}, Phase.ENDED, Phase.ENDED),
    ],
)
def test_a_container_of_which_only_its_end_is_seen_may_run_again_by_rules_of_its_own(
    pod: Pod, own: dict[str, Any], at_once: Phase, later: Phase
) -> None:
    program = pod.seen_running(own=own)
    pod.end(70)
    found = program.look()

    pod.now = RESTART_SECONDS

    assert (found, program.look()) == (at_once, later)
    assert not program.runs_again()
    pod.start(71)
    assert program.runs_again()
