"""The output of trials on disk: whole, its tail, and while it grows."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from katib.engine.runtime.clock import SteadyTime, SystemClock
from katib.engine.runtime.objects import Key
from katib.errors import NotFoundError
from katib.model.types import Trial
from katib.places.machine.layout import Layout
from katib.places.machine.pods.log_file import RUN_BEGINS, LogFile, LogLimits, log_parts
from katib.places.machine.pods.objects import note_end
from katib.places.machine.pods.plans import PodPlan, begin_note, note_processes
from katib.places.machine.pods.records import PodPhase, PodRecord
from katib.places.machine.pods.requests import Request
from katib.places.machine.processes.handle import ProcessHandle
from katib.places.machine.trials.output import TrialOutput
from katib.service.tuning.ports import Part, TimedLines
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.tuning import condition, make_trial, patched
from tests.support.waiting import eventually

TRIAL = Key("default", "demo-1")
OF_MAIN = patched(make_trial(TRIAL.name, namespace=TRIAL.namespace), spec={"primaryContainerName": "main"})
PREVIOUS = TimedLines(previous=True)


@pytest.fixture
def files(tmp_path: Path) -> TrialOutput:
    return TrialOutput(Layout(tmp_path))


def write(files: TrialOutput, data: bytes, *, pod: str = "pod-0", container: str = "main") -> Path:
    path = files.directory(TRIAL) / pod / f"{container}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def tail(files: TrialOutput, lines: int) -> bytes:
    return b"".join(files.read(OF_MAIN, Part(tail_lines=lines)))


def test_the_layout_is_for_its_user_only(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    layout.create()
    layout.create()

    for directory in (layout.root, layout.trials, layout.services, layout.run):
        assert directory.stat().st_mode & 0o777 == 0o700
    assert layout.trial("team", "demo-1") == tmp_path / "data" / "trials" / "team" / "demo-1"


def test_the_whole_output_is_read_byte_for_byte(files: TrialOutput) -> None:
    data = bytes(range(256)) * 1000
    write(files, data)

    assert b"".join(files.read(OF_MAIN)) == data


def test_a_trial_whose_job_begins_again_this_moment_has_no_output_yet(files: TrialOutput) -> None:
    """Directories of pods are removed and made again all the time, while they are looked at."""
    done = threading.Event()

    def begin_again() -> None:
        while not done.is_set():
            for pod in range(8):
                write(files, b"loss=1\n", pod=f"pod-{pod}")
            shutil.rmtree(files.directory(TRIAL))

    beginning = threading.Thread(target=begin_again)
    beginning.start()
    try:
        seen = {len(files.tail(OF_MAIN, 1)) for _ in range(400) if files.past_pods(OF_MAIN) == []}
    finally:
        done.set()
        beginning.join()

    assert 0 in seen


@pytest.mark.parametrize(
    ("data", "lines", "expected"),
    [
        pytest.param(b"a\nb\nc\n", 2, b"b\nc\n", id="ends with a line end"),
        pytest.param(b"a\nb\nc", 2, b"b\nc", id="ends in a line"),
        pytest.param(b"a\nb\n", 5, b"a\nb\n", id="fewer than asked"),
        pytest.param(b"a\nb\n", 2, b"a\nb\n", id="exactly"),
        pytest.param(b"a\n\n\n", 2, b"\n\n", id="empty lines"),
        pytest.param(b"", 3, b"", id="empty file"),
        pytest.param(b"a\nb\n", 0, b"", id="none"),
        pytest.param(b"one line", 1, b"one line", id="one line"),
    ],
)
def test_the_tail_is_the_last_lines(files: TrialOutput, data: bytes, lines: int, expected: bytes) -> None:
    write(files, data)

    assert tail(files, lines) == expected


@pytest.mark.parametrize("length", [1, 100, 65_535, 65_536, 65_537, 200_000])
def test_the_tail_is_right_wherever_blocks_are_cut(files: TrialOutput, length: int) -> None:
    lines = [b"%06d" % i + b"x" * length for i in range(5)]
    write(files, b"\n".join(lines) + b"\n")

    assert tail(files, 3) == b"\n".join(lines[-3:]) + b"\n"


def test_the_tail_of_a_huge_file_reads_its_end_only(files: TrialOutput) -> None:
    """The file is sparse: 64 GiB of nothing and two lines. Reading it from the front would take minutes."""
    path = write(files, b"")
    with path.open("r+b") as file:
        file.seek(64 << 30)
        file.write(b"\nlast but one\nlast\n")

    assert tail(files, 2) == b"last but one\nlast\n"
    assert files.tail(OF_MAIN, 1) == ("last",)


def test_what_is_no_text_is_shown_as_well_as_it_can_be(files: TrialOutput) -> None:
    write(files, b"\xff\xfe\n")

    assert files.tail(OF_MAIN, 3) == ("��",)


def test_the_newest_pod_counts(files: TrialOutput) -> None:
    os.utime(write(files, b"old\n", pod="pod-z"), (1, 1))
    write(files, b"new\n", pod="pod-a")
    write(files, b"other\n", pod="pod-b", container="sidecar")

    assert b"".join(files.read(OF_MAIN)) == b"new\n"


def test_what_never_ran_is_not_found(files: TrialOutput, golden: Golden) -> None:
    with golden.raises(NotFoundError):
        files.read(OF_MAIN)
    assert files.tail(OF_MAIN, 3) == ()


def test_following_a_trial_that_ends_without_output_is_not_found(files: TrialOutput) -> None:
    answers = iter([True, True, False])

    with pytest.raises(NotFoundError):
        list(files.read(OF_MAIN, Part(follow=lambda: next(answers, False))))


def test_following_waits_for_the_file_shows_what_comes_and_ends_with_the_trial(files: TrialOutput) -> None:
    runs = threading.Event()
    runs.set()
    seen: list[bytes] = []

    def read() -> None:
        seen.extend(files.read(OF_MAIN, Part(follow=runs.is_set)))

    reader = threading.Thread(target=read)
    reader.start()
    path = write(files, b"one\n")
    eventually(lambda: b"".join(seen) == b"one\n")
    with path.open("ab") as file:
        file.write(b"two\n")
    eventually(lambda: b"".join(seen) == b"one\ntwo\n")
    with path.open("ab") as file:
        file.write(b"last words\n")
    runs.clear()
    reader.join(60)

    assert b"".join(seen) == b"one\ntwo\nlast words\n"
    assert not reader.is_alive()


def test_a_silent_output_lets_a_reader_notice_that_it_is_not_wanted(files: TrialOutput) -> None:
    write(files, b"")

    assert next(files.read(OF_MAIN, Part(follow=lambda: True))) == b""


def test_a_reader_who_leaves_before_there_is_any_output_is_noticed(files: TrialOutput) -> None:
    asked = 0

    def goes_on() -> bool:
        nonlocal asked
        asked += 1
        return True

    chunks = files.read(OF_MAIN, Part(follow=goes_on))
    waiting = [next(chunks) for _ in range(2)]
    asked_while_read = asked
    del chunks

    assert waiting == [b"", b""]
    assert asked == asked_while_read


def test_the_program_that_a_trial_ran_is_known_from_its_pod(files: TrialOutput) -> None:
    path = write(files, b"x")
    note = {"processes": [{"container": "main", "pid": 1, "startTime": 2, "program": "/usr/bin/python3"}]}
    (path.parent / "pod.json").write_text(json.dumps(note))

    assert files.program(OF_MAIN) == ("/usr/bin/python3", False)


def test_what_a_pod_wrote_down_line_by_line_is_added_up_and_a_torn_line_costs_itself_only(files: TrialOutput) -> None:
    """An earlier version wrote the first line, without an end of line."""
    path = write(files, b"x")
    plan = PodPlan("demo-1-a", 1, "u", {}, path.parent, (), 30.0, Request(), role="Worker")
    first = {"container": "main", "pid": 1, "startTime": 2, "program": "/bin/old"}
    (path.parent / "pod.json").write_text(json.dumps({"name": "demo-1-a", "labels": {}, "processes": [first]}))
    note_processes(plan, "main", ProcessHandle(1, 1, 2, "/bin/new"))
    with (path.parent / "pod.json").open("a") as file:
        file.write('\n{"processes": [{"cont')
    note_end(plan, PodRecord("demo-1-a", 1, PodPhase.FAILED), SteadyTime(SystemClock()), is_measured=True)

    assert files.program(OF_MAIN) == ("/bin/new", False)
    assert [pod["status"]["phase"] for pod in files.past_pods(OF_MAIN)] == ["Failed"]


def test_a_pod_that_waits_for_its_turn_is_not_shown(files: TrialOutput) -> None:
    plan = PodPlan("demo-1-a", 1, "u", {}, files.directory(TRIAL) / "a", (), 30.0, Request(), role="Worker")
    plan.directory.mkdir(parents=True)
    begin_note(plan, "job")
    waiting = files.tail(OF_MAIN, 1, "worker-1")
    note_processes(plan)

    assert waiting == ()
    with pytest.raises(NotFoundError, match="worker-2"):
        files.read(OF_MAIN, Part(replica="worker-2"))


@pytest.mark.parametrize("note", [None, "{", "{}", '{"processes": [{"container": "main"}]}'])
def test_a_program_that_nobody_wrote_down_is_not_known(files: TrialOutput, note: str | None) -> None:
    path = write(files, b"x")
    if note is not None:
        (path.parent / "pod.json").write_text(note)

    assert files.program(OF_MAIN) == ("", False)


def write_pod(files: TrialOutput, name: str, output: str, **note: Any) -> None:
    """Write what one of several pods leaves, which has ended where a phase is given; the oldest first."""
    path = write(files, output.encode(), pod=name)
    status = {"phase": note.pop("phase"), "reason": note.pop("reason", "")} if "phase" in note else None
    ended = {} if status is None else {"pod": {"metadata": {"name": name}, "status": status}}
    known = {"name": name, "labels": {}, "containers": ["main"], "replica": str(note.get("index", name)), **ended}
    (path.parent / "pod.json").write_text(json.dumps({**known, **note}))


def trial(*conditions: dict[str, Any], value: str = "") -> Trial:
    """Return a trial of a Job with three pods."""
    run_spec = {"kind": "Job", "spec": {"completions": 3, "completionMode": "Indexed"}}
    made = make_trial(TRIAL.name, *conditions, loss=value or None)
    return patched(made, spec={"primaryContainerName": "main", "runSpec": run_spec})


SUCCEEDED = condition("Succeeded", "TrialSucceeded", "Trial has succeeded")


def output_of(files: TrialOutput, obj: Trial, replica: str = "") -> str:
    return b"".join(files.read(obj, Part(replica=replica))).decode()


SUCCESS, STOPPED = {"phase": "Succeeded"}, {"phase": "Failed", "reason": "Stopped"}


@pytest.mark.parametrize(
    ("pods", "value", "shown"),
    [
        pytest.param(
            [("0.25", SUCCESS, True), ("loss=0.2", SUCCESS, True), ("loss=0.2, on SIGTERM", STOPPED, True)],
            *("0.2", "loss=0.2"),
            id="the one with the value of the trial",
        ),
        pytest.param(
            [("nothing", SUCCESS, False), ("in a file", SUCCESS, True), ("stopped", STOPPED, False)],
            *("0.2", "in a file"),
            id="one that has a reading",
        ),
        pytest.param([("stopped", STOPPED, False), ("ended", SUCCESS, False)], "", "ended", id="none that was stopped"),
    ],
)
def test_of_several_pods_the_output_is_that_of_the_one_that_counts(
    files: TrialOutput, pods: list[tuple[str, dict[str, str], bool]], value: str, shown: str
) -> None:
    for index, (output, end, is_measured) in enumerate(pods):
        write_pod(files, f"pod-{index}", output, index=index, isMeasured=is_measured, **end)
    state = SUCCEEDED if value else condition("MetricsUnavailable")

    assert output_of(files, trial(state, value=value)) == shown
    assert output_of(files, trial(state, value=value), str(len(pods) - 1)) == pods[-1][0]


def test_of_several_pods_the_one_that_failed_the_trial_is_shown(files: TrialOutput) -> None:
    write_pod(files, "a", "fine", index=0, phase="Succeeded", isMeasured=True)
    write_pod(files, "b", "boom", index=1, phase="Failed", isMeasured=False)
    write_pod(files, "c", "later", index=2, phase="Failed", isMeasured=False)
    failed = condition("Failed", "TrialFailed", "Trial has failed: replica 1: boom (exit code 3)")

    assert output_of(files, trial(failed)) == "boom"


@pytest.mark.parametrize("numbered", [True, False])
def test_while_several_pods_run_the_output_is_that_of_the_first_running(files: TrialOutput, numbered: bool) -> None:
    def index(number: int) -> dict[str, int]:
        return {"index": number} if numbered else {}

    write_pod(files, "a", "done", **index(0), phase="Succeeded", isMeasured=True)
    write_pod(files, "b", "first try", **index(1), phase="Failed", isMeasured=False)
    write_pod(files, "c", "runs", **index(1))
    write_pod(files, "d", "runs, too, and wrote last", **index(2))

    assert output_of(files, trial(condition("Running"))) == "runs"


def test_removing_is_for_good_and_twice_is_fine(files: TrialOutput) -> None:
    write(files, b"x")
    files.remove(TRIAL)
    files.remove(TRIAL)

    assert not files.directory(TRIAL).exists()


def note(files: TrialOutput, pod: str, role: str, index: int, **more: object) -> Path:
    """Write the note and the output of a replica, which says its name."""
    labels = {"role": role.lower()}
    path = write(files, f"{role}-{index}\n".encode(), pod=pod)
    described = {"name": pod, "role": role, "index": index, "labels": labels, "containers": ["main", "side"], **more}
    (path.parent / "pod.json").write_text(json.dumps(described))
    return path


def gang_of() -> Trial:
    return patched(OF_MAIN, spec={"primaryPodLabels": {"role": "master"}})


@pytest.mark.parametrize(
    ("replica", "expected"),
    [("", b"Master-0\n"), ("worker-1", b"again\n"), ("demo-1-worker-1.2", b"again\n"), ("worker-0", b"Worker-0\n")],
    ids=["the primary one though another wrote last", "by its role, the newest", "by its pod", "another"],
)
def test_of_several_replicas_one_is_read(files: TrialOutput, replica: str, expected: bytes) -> None:
    for pod, role, index in (("master-0", "Master", 0), ("worker-1", "Worker", 1)):
        os.utime(note(files, f"demo-1-{pod}", role, index), (1, 1))
    note(files, "demo-1-worker-0", "Worker", 0)
    note(files, "demo-1-worker-1.2", "Worker", 1).write_bytes(b"again\n")

    assert b"".join(files.read(gang_of(), Part(replica=replica))) == expected


def test_a_primary_replica_that_has_not_started_is_not_replaced_by_another(files: TrialOutput, golden: Golden) -> None:
    note(files, "demo-1-worker-0", "Worker", 0)

    with golden.raises(NotFoundError):
        files.read(gang_of())


def test_a_wrong_replica_or_container_is_answered_with_those_that_there_are(files: TrialOutput, golden: Golden) -> None:
    note(files, "demo-1-master-0", "Master", 0)
    note(files, "demo-1-worker-0", "Worker", 0)

    with golden.raises(NotFoundError):
        files.read(gang_of(), Part(replica="worker-7"))
    with golden.raises(NotFoundError):
        files.read(gang_of(), Part(container="mian"))
    with golden.raises(NotFoundError):
        files.read(gang_of(), Part(replica="worker-0", container="side"))


@pytest.mark.parametrize("lines", [None, 0, 1, 2, 9, 10, 11, 25, 39, 40, 99])
def test_an_output_in_several_files_is_read_as_one(files: TrialOutput, lines: int | None) -> None:
    data = b"".join(b"line %d\n" % number for number in range(40))
    log = LogFile(write(files, b""), LogLimits(max_bytes=64, max_files=9))
    log.open()
    log.write(data)

    found = b"".join(files.read(OF_MAIN, Part(tail_lines=lines)))

    assert len(log_parts(log.path.parent / "main.log")) > 4
    assert found == (data if lines is None else b"".join(data.splitlines(keepends=True)[40 - min(lines, 40) :]))


def test_following_goes_on_from_file_to_file_and_misses_nothing(files: TrialOutput) -> None:
    log = LogFile(write(files, b""), LogLimits(max_bytes=100, max_files=4))
    log.open()
    data = b"".join(b"line %d\n" % number for number in range(300))
    written, goes_on = 0, True

    def more() -> bool:
        nonlocal written, goes_on
        goes_on = written < len(data)
        log.write(data[written : written + 130])
        written += 130
        return goes_on

    assert b"".join(files.read(OF_MAIN, Part(follow=more))) == data


def test_a_reader_that_is_too_slow_goes_on_with_the_oldest_file(files: TrialOutput) -> None:
    log = LogFile(write(files, b""), LogLimits(max_bytes=8, max_files=3))
    log.open()
    texts = iter([b"line 00\n", b"".join(b"line %02d\n" % number for number in range(1, 20))])

    def more() -> bool:
        log.write(text := next(texts, b""))
        return bool(text)

    assert b"".join(files.read(OF_MAIN, Part(follow=more))) == b"line 00\nline 17\nline 18\nline 19\n"


def test_lines_have_the_times_at_which_they_came(files: TrialOutput) -> None:
    seconds = 1_700_000_000.0
    log = LogFile(write(files, b""), LogLimits(max_bytes=32, max_files=9), now=lambda: seconds)
    log.open()
    log.write(b"line 0\nli")
    for number in range(1, 12):
        seconds += 10
        log.write(b"ne %d\nli" % number)
    seconds += 10
    log.write(b"ne 12\n")
    stamped = b"".join(files.read_timed(OF_MAIN, TimedLines(shows=True))).decode().splitlines()
    since = datetime.fromtimestamp(1_700_000_000 + 95, UTC)

    assert len(log_parts(log.path.parent / "main.log")) > 2
    assert stamped[0] == "2023-11-14T22:13:20.000000Z line 0"
    assert [line.split(" ", 1)[1] for line in stamped] == [f"line {number}" for number in range(13)]
    assert stamped == sorted(stamped)
    assert b"".join(files.read_timed(OF_MAIN, TimedLines(since))) == b"line 11\nline 12\n"
    assert b"".join(files.read_timed(OF_MAIN, TimedLines(shows=True), Part(tail_lines=1))).startswith(
        b"2023-11-14T22:15:"
    )


def test_following_shows_the_times_of_what_comes(files: TrialOutput) -> None:
    seconds = 1_700_000_000.0
    log = LogFile(write(files, b""), LogLimits(max_bytes=16, max_files=9), now=lambda: seconds)
    log.open()
    left = iter(range(1, 6))

    def more() -> bool:
        nonlocal seconds
        number = next(left, 0)
        seconds += 1
        log.write(b"line %d\n" % number if number else b"")
        return bool(number)

    found = b"".join(files.read_timed(OF_MAIN, TimedLines(shows=True), Part(follow=more))).decode().splitlines()

    assert [line[17:26] for line in found] == [f"{20 + n}.000000" for n in range(1, 6)]


def test_records_of_times_are_few_and_go_with_their_file(files: TrialOutput) -> None:
    seconds = 1_700_000_000.0
    log = LogFile(write(files, b""), LogLimits(max_bytes=1_000, max_files=3), now=lambda: seconds)
    log.open()
    for _ in range(5_000):
        seconds += 0.001
        log.write(b"x\n")
    log.close()
    times = list(log.path.parent.glob("main.times.*"))

    assert len(times) == len(log_parts(log.path.parent / "main.log")) == 3
    assert sum(path.stat().st_size for path in times) < 3 * 30 * 16


def test_an_output_without_times_says_so(files: TrialOutput) -> None:
    write(files, b"line\n")

    with refused("output-without-times"):
        files.read_timed(OF_MAIN, TimedLines(shows=True))


@pytest.mark.parametrize("size", [16, 1_000])
def test_the_output_before_the_last_restart_is_read_alone(files: TrialOutput, size: int) -> None:
    log = LogFile(write(files, b""), LogLimits(max_bytes=size, max_files=9), now=lambda: 1_700_000_000.0)
    log.open()
    for run in range(3):
        log.note_time(RUN_BEGINS)
        for line in range(4):
            log.write(b"run %d line %d\n" % (run, line))

    lines = [b"run 1 line %d\n" % line for line in range(4)]
    assert b"".join(files.read_timed(OF_MAIN, PREVIOUS)) == b"".join(lines)
    assert b"".join(files.read_timed(OF_MAIN, PREVIOUS, Part(tail_lines=2))) == b"".join(lines[2:])
    assert b"".join(files.read_timed(OF_MAIN, TimedLines(shows=True, previous=True), Part(tail_lines=1))).endswith(
        b".000000Z run 1 line 3\n"
    )


def test_what_is_left_of_the_run_before_is_read_when_its_begin_was_removed(files: TrialOutput) -> None:
    log = LogFile(write(files, b""), LogLimits(max_bytes=16, max_files=3))
    log.open()
    for run in range(2):
        log.note_time(RUN_BEGINS)
        for line in range(4):
            log.write(b"run %d line %d\n" % (run, line) if run == 0 or line == 0 else b"")

    assert b"".join(files.read_timed(OF_MAIN, PREVIOUS)) == b"run 0 line 2\nrun 0 line 3\n"


def test_the_files_of_a_trial_are_those_that_its_programs_left(files: TrialOutput, tmp_path: Path) -> None:
    folder = write(files, b"loss=1\n").parent
    (folder / "plots" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("of the user")
    for name in ("plots/roc.png", "plots/deep/x.csv", "a.txt", ".hidden", "main.times.7", "main.log.1", "pod.json"):
        (folder / name).write_text("{}" if name == "pod.json" else name)
    (folder / "pod.json").write_text('{"name": "pod-0", "containers": ["main"]}')
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    (folder / "plots" / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")

    assert [(file.path, file.size) for file in files.files(OF_MAIN)] == [
        ("a.txt", 5),
        ("plots/deep/x.csv", 16),
        ("plots/roc.png", 13),
    ]
    assert b"".join(files.read_file(OF_MAIN, "plots/roc.png")) == b"plots/roc.png"


@pytest.mark.parametrize("path", ["../secret", "/etc/hostname", "link.txt", "main.log", "plots/../a.txt", ""])
def test_nothing_but_the_files_in_the_list_is_read(files: TrialOutput, tmp_path: Path, path: str) -> None:
    folder = write(files, b"loss=1\n").parent
    begin = {"name": "pod-0", "containers": ["main"]}
    (folder / "pod.json").write_text(json.dumps(begin))
    (folder / "a.txt").write_text("a")
    (tmp_path / "secret").write_text("of the user")
    (folder / "link.txt").symlink_to(tmp_path / "secret")

    with pytest.raises(NotFoundError):
        b"".join(files.read_file(OF_MAIN, path))


@pytest.mark.parametrize("linked", ["plots", "plots/secret"])
def test_nothing_that_has_become_a_link_is_followed(files: TrialOutput, tmp_path: Path, linked: str) -> None:
    folder = write(files, b"loss=1\n").parent
    for place in (folder / "plots", tmp_path / "user"):
        place.mkdir()
        (place / "secret").write_text("of the user")
    chunks = files.read_file(OF_MAIN, "plots/secret")
    (folder / linked).rename(folder / "away")
    (folder / linked).symlink_to(tmp_path / "user" / linked.removeprefix("plots").removeprefix("/"))

    with pytest.raises(NotFoundError):
        next(chunks)


def test_a_trial_that_never_ran_has_no_files(files: TrialOutput) -> None:
    assert list(files.files(OF_MAIN)) == []
    with pytest.raises(NotFoundError):
        files.read_file(OF_MAIN, "a.txt")
