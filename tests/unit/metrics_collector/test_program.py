"""The program seen through /proc and markers, both written by the tests as a pod shows them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from metrics_collector.container_processes import all_processes, descendants
from metrics_collector.markers import CollectedWord, Markers, Word
from metrics_collector.program import RESTART_SECONDS, UNSEEN_SECONDS, Phase, Program


class PodView:
    """A directory that looks like /proc of a pod, and the metrics directory."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory / "proc"
        self.metrics = directory / "metrics"
        self.metrics.mkdir()
        self.now = 0.0
        self.wrapper = f"sh\0-c\0true && echo completed > {self.metrics}/$$.pid\0"
        self.start(1, 0, "/pause\0")

    def start(self, pid: int, parent: int, command: str, *, state: str = "S", started: int = 5) -> None:
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

    def seen_running(self, restart_policy: str = "Never", **options: Any) -> Program:
        """Return a program that was seen running as process 7."""
        program = self.program(restart_policy, **options)
        self.start(7, 0, self.wrapper)
        assert program.look() is Phase.RUNNING
        return program

    def program(
        self, restart_policy: str = "Never", *, wait_all: bool = True, own: dict[str, Any] | None = None
    ) -> Program:
        return Program(
            self.metrics,
            left_a_trace=(self.metrics / "metrics.log").exists,
            restart_policy=restart_policy,
            own_restart=own,
            wait_all=wait_all,
            monotonic=lambda: self.now,
            proc=self.proc,
        )


@pytest.fixture
def pod(tmp_path: Path) -> PodView:
    return PodView(tmp_path)


def test_a_program_is_awaited_then_runs_then_has_ended(pod: PodView) -> None:
    program = pod.program()
    assert program.look() is Phase.AWAITED

    pod.start(7, 0, pod.wrapper)
    pod.start(8, 7, "python\0main.py\0")
    assert program.look() is Phase.RUNNING
    assert [process.pid for process in program.tree()] == [8]

    pod.end(8)
    pod.end(7, "completed")
    assert program.look() is Phase.ENDED
    assert program.completed


@pytest.mark.parametrize("word", ["failed", "running", "early-stopped", ""])
def test_a_program_that_left_without_success_has_ended(pod: PodView, word: str) -> None:
    program = pod.seen_running()

    pod.end(7, word)

    assert program.look() is Phase.ENDED
    assert not program.completed


def test_a_marker_alone_tells_of_a_program_that_ended_before(pod: PodView) -> None:
    pod.mark(7, "completed")

    assert pod.program().look() is Phase.ENDED


def test_a_zombie_has_ended(pod: PodView) -> None:
    pod.start(7, 0, pod.wrapper, state="Z")
    pod.mark(7, "failed")

    assert pod.program().look() is Phase.ENDED


def test_another_process_with_the_number_of_the_shell_is_not_the_shell(pod: PodView) -> None:
    program = pod.seen_running()

    pod.end(7, "completed")
    pod.start(7, 9, "sleep\0", started=99)

    assert program.look() is Phase.ENDED


@pytest.mark.parametrize(
    ("policy", "word", "phase"),
    [
        ("Never", "failed", Phase.ENDED),
        ("OnFailure", "failed", Phase.AWAITED),
        ("OnFailure", "completed", Phase.ENDED),
        ("Always", "completed", Phase.AWAITED),
    ],
)
def test_what_kubernetes_starts_again_is_awaited(pod: PodView, policy: str, word: str, phase: Phase) -> None:
    program = pod.seen_running(policy)

    pod.end(7, word)

    assert program.look() is phase


OWN_RULE = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}],
}
ON_KILL = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [137]}}],
}


@pytest.mark.parametrize(
    ("own", "word", "phase", "doubt"),
    [
        (OWN_RULE, "failed 3", Phase.AWAITED, False),
        (OWN_RULE, "failed 4", Phase.ENDED, False),
        (OWN_RULE, "completed", Phase.ENDED, False),
        (OWN_RULE, "running", Phase.ENDED, True),
        (OWN_RULE, "failed", Phase.ENDED, True),
        (ON_KILL, "running", Phase.AWAITED, False),
        (ON_KILL, "failed 137", Phase.AWAITED, False),
        ({"restartPolicy": "OnFailure"}, "failed 1", Phase.AWAITED, False),
        ({"restartPolicy": "OnFailure"}, "running", Phase.AWAITED, False),
        ({"restartPolicy": "OnFailure"}, "completed", Phase.ENDED, False),
        ({"restartPolicy": "Always"}, "completed", Phase.AWAITED, False),
        ({"restartPolicy": "Never"}, "running", Phase.ENDED, False),
    ],
)
def test_the_rules_of_its_container_decide_whether_a_program_has_ended(
    pod: PodView, own: dict[str, Any], word: str, phase: Phase, *, doubt: bool
) -> None:
    program = pod.seen_running("Never", own=own)

    pod.end(7, word)

    assert program.look() is phase
    assert bool(program.doubt) is doubt


def test_a_program_that_does_not_run_again_as_its_rules_say_is_not_awaited_forever(pod: PodView) -> None:
    """As on a node that is older than the API server."""
    program = pod.seen_running(own=OWN_RULE)
    pod.end(7, "failed 3")
    assert program.look() is Phase.AWAITED

    pod.now = RESTART_SECONDS

    assert program.look() is Phase.ENDED
    assert program.doubt == "the program did not run again within 600 s, as the rules of its container say"


def test_the_time_until_a_program_has_to_run_again_begins_with_each_end(pod: PodView) -> None:
    program = pod.program(own=OWN_RULE)
    for pid in (7, 20):
        pod.start(pid, 0, pod.wrapper)
        program.look()
        pod.end(pid, "failed 3")
        assert program.look() is Phase.AWAITED
        pod.now += RESTART_SECONDS - 1

    assert program.look() is Phase.AWAITED


def test_a_program_that_runs_though_it_had_ended_is_seen(pod: PodView) -> None:
    program = pod.program(wait_all=False)
    for pid in (7, 8):
        pod.start(pid, 0, pod.wrapper)
    program.look()
    pod.end(7, "completed")
    assert program.look() is Phase.ENDED
    assert not program.runs_again()

    pod.start(20, 0, pod.wrapper)

    assert program.runs_again()


def test_the_last_of_several_runs_counts(pod: PodView) -> None:
    program = pod.seen_running("OnFailure")
    pod.end(7, "failed")
    program.look()

    pod.start(20, 0, pod.wrapper)
    assert program.look() is Phase.RUNNING
    pod.end(20, "completed")

    assert program.look() is Phase.ENDED


@pytest.mark.parametrize("wait_all", [True, False])
def test_other_containers_are_never_waited_for(pod: PodView, *, wait_all: bool) -> None:
    program = pod.program(wait_all=wait_all)
    pod.start(7, 0, pod.wrapper)
    pod.start(30, 0, "exporter\0")
    program.look()

    pod.end(7, "completed")

    assert program.look() is Phase.ENDED


def test_all_wrapped_programs_are_waited_for_when_that_is_asked_else_one(pod: PodView) -> None:
    waiting, leaving = pod.program(wait_all=True), pod.program(wait_all=False)
    pod.start(7, 0, pod.wrapper)
    pod.start(30, 0, pod.wrapper)
    waiting.look(), leaving.look()

    pod.end(7, "completed")

    assert (waiting.look(), leaving.look()) == (Phase.RUNNING, Phase.ENDED)


@pytest.mark.parametrize(("word", "completed"), [("completed", True), ("failed", False)])
def test_a_shell_that_waits_for_us_has_ended_its_program(pod: PodView, word: str, *, completed: bool) -> None:
    program = pod.seen_running()

    pod.mark(7, word)

    assert program.look() is Phase.ENDED
    assert program.completed is completed


def test_only_shells_whose_programs_ended_well_are_released(pod: PodView) -> None:
    for pid, word in ((7, "failed"), (20, "completed"), (21, "completed")):
        pod.mark(pid, word)
    for pid in (7, 20):
        (pod.metrics / f"{pid}.collected").write_text("awaited\n")

    Markers(pod.metrics).release(CollectedWord.GIVEN_UP)

    found = {path.name: path.read_text().splitlines()[0] for path in pod.metrics.glob("*.collected")}
    assert found == {"7.collected": "awaited", "20.collected": "given-up"}


def test_a_file_that_nobody_writes_any_more_is_read_after_a_while(pod: PodView) -> None:
    """Katib's wrapping leaves no marker when the program fails."""
    program = pod.program()
    (pod.metrics / "metrics.log").write_text("loss=1\n")
    assert program.look() is Phase.AWAITED

    pod.now = UNSEEN_SECONDS

    assert program.look() is Phase.ENDED


def test_a_program_in_a_directory_that_is_gone_ends(pod: PodView) -> None:
    program = pod.seen_running()

    shutil.rmtree(pod.metrics)
    pod.end(7)

    assert program.look() is Phase.ENDED


def test_a_directory_that_the_shell_must_quote_is_found(tmp_path: Path) -> None:
    place = tmp_path / "my dir"
    place.mkdir()
    pod = PodView(place)
    pod.start(7, 0, f"sh\0-c\0echo completed > '{pod.metrics}'/$$.pid\0")

    assert pod.program().look() is Phase.RUNNING


def test_a_tree_of_processes_is_walked_parents_first(pod: PodView) -> None:
    for pid, parent in ((7, 0), (9, 8), (8, 7), (10, 7), (11, 1)):
        pod.start(pid, parent, "x\0")

    assert [process.pid for process in descendants(all_processes(pod.proc), 7)][-1] == 9
    assert {process.pid for process in descendants(all_processes(pod.proc), 7)} == {8, 9, 10}


def test_a_marker_is_overwritten_in_place(tmp_path: Path) -> None:
    markers = Markers(tmp_path)
    markers.write(7, Word.EARLY_STOPPED)
    inode = (tmp_path / "7.pid").stat().st_ino

    markers.write(7, Word.RUNNING)

    assert (tmp_path / "7.pid").read_text() == "running\n"
    assert (tmp_path / "7.pid").stat().st_ino == inode
    assert markers.read() == {7: "running"}


def test_files_that_are_no_markers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "server.pid").write_text("12")
    (tmp_path / "8.pid").mkdir()

    assert Markers(tmp_path).read() == {}
    assert Markers(tmp_path / "gone").read() == {}
