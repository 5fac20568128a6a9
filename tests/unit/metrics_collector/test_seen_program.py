"""A program without our launcher, seen through a /proc and markers that the tests write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from metrics_collector.program import ProgramPhase
from metrics_collector.seen_program import TRACE_SECONDS, UNSEEN_SECONDS, SeenProgram, all_processes, descendants
from tests.support.golden import Golden


class PodView:
    """A directory that looks like /proc of a pod, and the metrics directory."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory / "proc"
        self.metrics = directory / "metrics"
        self.metrics.mkdir()
        self.now = 0.0
        self.shell = f"sh\0-c\0true && echo completed > {self.metrics}/$$.pid\0"
        self.start(1, command="/pause\0")
        self.start(os.getpid())

    def start(self, pid: int, parent: int = 0, command: str = "x\0", *, state: str = "S", started: int = 5) -> None:
        place = self.proc / str(pid)
        place.mkdir(parents=True, exist_ok=True)
        rest = " ".join(["0"] * 17)
        (place / "stat").write_text(f"{pid} (a (b) c) {state} {parent} {rest} {started} 0 0\n")
        (place / "cmdline").write_text(command)

    def end(self, pid: int, word: str = "") -> None:
        if word:
            self.mark(pid, word)
        shutil.rmtree(self.proc / str(pid))

    def mark(self, pid: int, word: str) -> None:
        (self.metrics / f"{pid}.pid").write_text(f"{word}\n")

    def program(self, *, is_wrapped: bool = True) -> SeenProgram:
        return SeenProgram(
            self.metrics if is_wrapped else None,
            left_a_trace=(self.metrics / "metrics.log").exists,
            monotonic=lambda: self.now,
            proc=self.proc,
        )


@pytest.fixture
def pod(tmp_path: Path) -> PodView:
    return PodView(tmp_path)


@pytest.mark.parametrize(("word", "completed"), [("completed", True), ("early-stopped", False), ("", False)])
def test_a_program_below_katibs_shell_is_awaited_runs_and_ends(pod: PodView, word: str, *, completed: bool) -> None:
    program = pod.program()
    pod.start(30, command="exporter\0")
    assert program.look() is ProgramPhase.AWAITED

    pod.start(7, command=pod.shell)
    pod.start(8, 7, "python\0main.py\0")
    assert program.look() is ProgramPhase.RUNNING
    pod.end(8)
    pod.end(7, word)

    assert (program.look(), program.completed) == (
        ProgramPhase.ENDED,
        completed,
    )  # the other container is not waited for
    assert not program.runs_again()


def test_a_marker_alone_tells_of_a_program_that_ended_before(pod: PodView) -> None:
    pod.mark(7, "completed")
    (pod.metrics / "server.pid").write_text("12")
    (pod.metrics / "8.pid").mkdir()

    assert pod.program().look() is ProgramPhase.ENDED


def test_a_zombie_and_another_process_of_its_number_are_not_the_program(pod: PodView) -> None:
    program = pod.program()
    pod.start(7, command=pod.shell)
    program.look()

    pod.start(7, 9, "sleep\0", started=99)
    assert program.look() is ProgramPhase.ENDED
    pod.start(7, command=pod.shell, state="Z")
    assert program.look() is ProgramPhase.ENDED


def test_a_file_that_nobody_writes_any_more_is_read_after_a_while(pod: PodView) -> None:
    """Katib's shell leaves no marker when the program fails."""
    program = pod.program()
    (pod.metrics / "metrics.log").write_text("loss=1\n")
    assert program.look() is ProgramPhase.AWAITED

    pod.now = TRACE_SECONDS

    assert program.look() is ProgramPhase.ENDED


def test_a_program_in_a_directory_that_is_gone_ends(pod: PodView) -> None:
    program = pod.program()
    pod.start(7, command=pod.shell)
    program.look()

    shutil.rmtree(pod.metrics)
    pod.end(7)

    assert program.look() is ProgramPhase.ENDED


def test_without_a_shell_the_program_is_all_other_containers(pod: PodView, golden: Golden) -> None:
    program = pod.program(is_wrapped=False)
    pod.start(70)
    pod.start(71, parent=70)
    pod.start(90)
    assert program.look() is ProgramPhase.RUNNING
    golden(program.stop())

    pod.end(70)
    assert program.look() is ProgramPhase.RUNNING
    pod.end(90)

    assert (program.look(), program.completed) == (ProgramPhase.ENDED, True)


def test_a_container_that_never_came_was_there_before_us(pod: PodView) -> None:
    program = pod.program(is_wrapped=False)
    assert program.look() is ProgramPhase.AWAITED

    pod.now = UNSEEN_SECONDS

    assert program.look() is ProgramPhase.ENDED


def test_a_tree_of_processes_is_walked_parents_first(pod: PodView) -> None:
    for pid, parent in ((7, 0), (9, 8), (8, 7), (10, 7), (11, 1)):
        pod.start(pid, parent)

    found = [process.pid for process in descendants(all_processes(pod.proc), 7)]

    assert (set(found), found[-1]) == ({8, 9, 10}, 9)
