"""The sidecar as a process of its own, beside programs run by a real launcher, against a real DB manager."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from katib.errors import FieldError, InvalidError
from katib.model.metrics import BatchId, LogAccess, MetricLog
from katib.model.names import REMEDY
from katib.wire.rpc.log_guard import LogGuard, MemoryAccessList
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from metrics_collector.seen_program import all_processes, command_line, read_process
from tests.support.golden import Golden
from tests.support.sidecar import TRIAL, Pod, early_stopping, pod_processes
from tests.support.waiting import eventually

PATIENT = "trap 'echo loss=0.1; exit 0' TERM; echo loss=0.5; while :; do sleep 0.05; done"


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with pod_processes(tmp_path) as pod:
        yield pod


# --- following --------------------------------------------------------------------------------------------------------


def test_readings_are_stored_while_the_program_runs(pod: Pod) -> None:
    gate = pod.metrics / "gate"
    sidecar = pod.sidecar()
    program = pod.program("sh", "-c", f"echo loss=0.5; while ! [ -e {gate} ]; do sleep 0.05; done; echo loss=0.4")

    eventually(lambda: pod.readings() == ["0.5"])
    assert program.poll() is None
    gate.touch()

    assert sidecar.wait(60) == 0
    assert pod.readings() == ["0.5", "0.4"]
    assert pod.output(program) == "loss=0.5\nloss=0.4\n"
    assert pod.told() == ""


def test_a_program_that_ended_before_the_sidecar_began_is_read(pod: Pod) -> None:
    pod.program("echo", "loss=0.3").wait(60)

    assert pod.sidecar().wait(60) == 0
    assert pod.readings() == ["0.3"]


@pytest.mark.parametrize(
    "end",
    ["exit 9", "kill -9 $$$$", "while ! [ -s {} ]; do sleep 0.05; done; kill -9 $PPID"],
    ids=["fails", "dies", "all"],
)
def test_the_sidecar_ends_well_whatever_becomes_of_the_program(pod: Pod, end: str) -> None:
    assert pod.program("sh", "-c", f"echo loss=0.3; {end.format(pod.file)}").wait(60) != 0
    assert pod.sidecar().wait(60) == 0
    assert pod.readings() == ["0.3"]


def test_a_json_file_is_read_and_the_program_keeps_its_output(pod: Pod) -> None:
    lines = "".join(json.dumps({"loss": 1 / step, "accuracy": str(step)}) + "\n" for step in (1, 2, 4))
    program = pod.program("sh", "-c", f"printf '%s' '{lines}' >> {pod.file}; echo done", to_file=False)

    sidecar = pod.sidecar("-format", "JSON")

    assert sidecar.wait(60) == 0
    assert pod.readings() == ["1.0", "0.5", "0.25"]
    assert pod.readings("accuracy") == ["1", "2", "4"]
    assert pod.output(program) == "done\n"
    assert pod.output(sidecar) == lines


def test_a_restarted_program_is_followed_until_it_succeeds(pod: Pod) -> None:
    sidecar = pod.sidecar(KATIB_POD_RESTART_POLICY="OnFailure")
    assert pod.program("sh", "-c", "echo loss=0.9; exit 1").wait(60) == 1
    eventually(lambda: pod.readings() == ["0.9"])
    assert sidecar.poll() is None

    assert pod.program("sh", "-c", "echo loss=0.5").wait(60) == 0

    assert sidecar.wait(60) == 0
    assert pod.readings() == ["0.9", "0.5"]


def test_a_program_that_katib_wrapped_is_followed(pod: Pod) -> None:
    """Its wrapping leaves no marker while it runs, and none when it fails."""
    script = f"sleep 1 && echo loss=0.5 1>{pod.file} 2>&1 && echo completed > {pod.metrics}/$$.pid"
    sidecar = pod.sidecar(KATIB_LAUNCHER_DIRECTORY="")

    assert pod.start(["sh", "-c", script]).wait(60) == 0
    assert sidecar.wait(60) == 0
    assert pod.readings() == ["0.5"]


def test_a_directory_that_vanishes_ends_nothing_but_the_readings(pod: Pod) -> None:
    sidecar = pod.sidecar()
    program = pod.program("sh", "-c", "echo loss=0.5; while [ -e go ]; do sleep 0.05; done; sleep 1")
    eventually(lambda: pod.readings() == ["0.5"])

    gone = pod.metrics.rename(pod.metrics.with_name("gone"))  # at once: the collector may be writing there
    shutil.rmtree(gone)

    assert program.wait(60) == 0
    assert sidecar.wait(60) == 0


# --- explaining -------------------------------------------------------------------------------------------------------


def test_a_missing_objective_is_explained_and_marked_unavailable(pod: Pod, golden: Golden) -> None:
    pod.program("sh", "-c", "echo accuracy=0.9; echo Loss: 0.3").wait(60)

    assert pod.sidecar().wait(60) == 0
    assert pod.readings() == ["unavailable"]
    assert pod.readings("accuracy") == ["0.9"]
    cause, *remedies = pod.told().split(REMEDY)
    golden(cause)
    assert remedies[0].startswith('name "Loss" ')


def test_an_objective_that_the_program_posted_is_not_missing(pod: Pod) -> None:
    pod.log.report(TRIAL, [MetricLog(datetime.now(UTC), "loss", "0.5", 3)])
    pod.program("echo", "nothing").wait(60)

    assert pod.sidecar().wait(60) == 0
    assert pod.readings() == ["0.5"]
    assert pod.told() == ""


def test_a_file_that_was_never_written_is_explained(pod: Pod, golden: Golden) -> None:
    pod.program("true", to_file=False).wait(60)

    assert pod.sidecar().wait(60) == 0
    assert pod.readings() == ["unavailable"]
    golden(pod.told().partition(REMEDY)[0])


def test_a_failed_program_leaves_its_last_line_and_is_not_marked(pod: Pod) -> None:
    pod.program("sh", "-c", "echo Traceback; echo oops; exit 1").wait(60)

    assert pod.sidecar().wait(60) == 0
    assert pod.readings() == []
    assert pod.told() == "last output: oops"


def test_a_wrong_command_line_is_explained(pod: Pod) -> None:
    assert pod.sidecar("-stop-rule", "loss;1", "-what", "x").wait(60) == 2
    assert "-stop-rule: 'loss;1' " in pod.news()
    assert "-what: no such flag" in pod.news()


# --- the database -----------------------------------------------------------------------------------------------------


def test_readings_wait_for_a_database_that_is_away(pod: Pod) -> None:
    pod.database_goes()
    pod.program("sh", "-c", "echo loss=0.5; echo loss=0.4").wait(60)
    sidecar = pod.sidecar()
    eventually((pod.launcher / "collector.checkpoint").exists)  # it has read them, and tries to report
    assert sidecar.poll() is None

    pod.database_comes_back()

    assert sidecar.wait(60) == 0
    assert pod.readings() == ["0.5", "0.4"]


def test_a_reading_that_the_db_manager_refuses_costs_only_itself(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    report = pod.log.report

    def picky(trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        if any(log.value == "0.2" for log in logs):
            raise InvalidError([FieldError("value", "cannot be kept", "send another", "value")])
        report(trial_name, logs, batch)

    monkeypatch.setattr(pod.log, "report", picky)
    program = pod.program("sh", "-c", "for i in 1 2 3 4 5; do echo loss=0.$i; done")
    sidecar = pod.sidecar()

    assert (program.wait(60), sidecar.wait(60)) == (0, 0)
    assert pod.readings() == ["0.1", "0.3", "0.4", "0.5"]
    assert "refused: 1" in pod.news()
    assert "Traceback" not in pod.output(sidecar)


def test_the_sidecar_reports_with_the_token_of_its_trial_and_without_it_says_why_not(pod: Pod) -> None:
    tokens = TokenSigner([b"k" * 32])
    pod.database_goes()
    pod.guard = LogGuard(tokens, MemoryAccessList())
    pod.database_comes_back()
    pod.guard.begin(TRIAL, LogAccess("team"))
    pod.program("echo", "loss=0.5").wait(60)

    assert pod.sidecar().wait(60) == 0
    assert pod.readings() == []
    assert "a token is required" in pod.news()
    token = tokens.token_of(TokenClaims(CallerRole.TRIAL, "team", TRIAL))
    assert pod.sidecar(KATIB_DB_MANAGER_TOKEN=token, KATIB_POD_UID="another").wait(60) == 0
    assert pod.readings() == ["0.5"]


def test_the_sidecar_gives_up_with_the_reason_long_after_the_program(pod: Pod) -> None:
    pod.database_goes()
    pod.program("echo", "loss=0.5").wait(60)

    assert pod.sidecar(KATIB_GIVE_UP_SECONDS="1").wait(60) == 1
    assert "1 readings could not" in pod.news()


# --- SIGTERM ----------------------------------------------------------------------------------------------------------


def test_the_last_words_of_a_program_that_is_told_to_end_are_stored(pod: Pod) -> None:
    program = pod.program("bash", "-c", PATIENT)
    sidecar = pod.sidecar()
    eventually(lambda: pod.readings() == ["0.5"])

    sidecar.send_signal(signal.SIGTERM)
    program.send_signal(signal.SIGTERM)

    assert sidecar.wait(60) == 0
    assert pod.readings() == ["0.5", "0.1"]


def test_sigterm_is_heeded_while_the_program_goes_on(pod: Pod) -> None:
    program = pod.program("sh", "-c", "echo loss=0.5; sleep 60")
    sidecar = pod.sidecar(KATIB_POD_GRACE_SECONDS="2")
    eventually(lambda: pod.readings() == ["0.5"])

    sidecar.send_signal(signal.SIGTERM)

    assert sidecar.wait(60) == 0
    assert program.poll() is None


def test_a_sidecar_beside_other_containers_stays_until_it_is_told_to_end(pod: Pod) -> None:
    pod.program("echo", "loss=0.5").wait(60)
    sidecar = pod.sidecar(KATIB_PROGRAM_ALONE="false")
    eventually(lambda: pod.readings() == ["0.5"])
    with pytest.raises(subprocess.TimeoutExpired):
        sidecar.wait(1)

    sidecar.send_signal(signal.SIGTERM)

    assert sidecar.wait(60) == 0
    assert pod.readings() == ["0.5"]


def test_a_sidecar_that_is_told_to_end_at_once_reads_all_the_same(pod: Pod) -> None:
    pod.program("echo", "loss=0.5").wait(60)
    sidecar = pod.sidecar(KATIB_PROGRAM_ALONE="false")
    handler = f"/proc/{sidecar.pid}/status"
    eventually(lambda: _catches(Path(handler), signal.SIGTERM))

    sidecar.send_signal(signal.SIGTERM)

    assert sidecar.wait(60) == 0
    assert pod.readings() == ["0.5"]


def _catches(status: Path, number: signal.Signals) -> bool:
    mask = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (number - 1) & 1)


# --- early stopping ---------------------------------------------------------------------------------------------------

RULE = ("-stop-rule", "loss;1;greater;2")
CLIMB = "echo loss=0.5; echo loss=2; sleep 60"
MAXIMIZE = ("-o-type", "", "-m", "accuracy;loss")


def test_a_program_that_meets_the_rules_is_stopped_and_the_service_told(pod: Pod) -> None:
    with early_stopping() as (service, address):
        service.refusals = 2
        program = pod.program("sh", "-c", CLIMB)
        sidecar = pod.sidecar(*MAXIMIZE, *RULE, "-s-earlystop", address)

        assert program.wait(60) == 0
        assert "Training Container was Early Stopped" in pod.output(program)
        assert sidecar.wait(60) == 0
        assert service.stopped == ["tune-abc"]
        assert pod.readings() == ["0.5", "2"]
        assert pod.state() == "stopped 0"


def test_all_processes_of_the_program_are_ended_also_those_that_will_not(pod: Pod) -> None:
    with early_stopping() as (service, address):
        stubborn = (
            "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN);"
            "subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(15, signal.SIG_IGN);"
            "time.sleep(60)', 'tree-of-' + sys.argv[1]]);"
            "print('loss=2', flush=True); time.sleep(0.2); print('loss=3', flush=True); time.sleep(60)"
        )
        program = pod.program(sys.executable, "-c", stubborn, str(pod.metrics))
        sidecar = pod.sidecar(*MAXIMIZE, *RULE, "-s-earlystop", address, KATIB_POD_GRACE_SECONDS="1")

        assert program.wait(60) == 0
        assert sidecar.wait(60) == 0
        assert service.stopped == ["tune-abc"]
        assert [pid for pid in all_processes() if f"tree-of-{pod.metrics}".encode() in command_line(pid)] == []


def test_a_trial_without_early_stopping_service_for_now_keeps_asking(pod: Pod) -> None:
    with early_stopping() as (_, address):
        pass
    program = pod.program("sh", "-c", CLIMB)
    sidecar = pod.sidecar(*MAXIMIZE, *RULE, "-s-earlystop", address, KATIB_GIVE_UP_SECONDS="3")

    assert program.wait(60) == 0
    assert sidecar.wait(60) == 0
    assert "trying again to tell" in pod.output(sidecar)
    assert pod.readings() == ["0.5", "2"]


# --- costs ------------------------------------------------------------------------------------------------------------


def test_a_sidecar_at_work_is_small_and_idle(pod: Pod) -> None:
    pod.program("sh", "-c", "for i in 1 2 3; do echo loss=0.$i; done; exec sleep 60")
    sidecar = pod.sidecar()
    eventually(lambda: pod.readings() == ["0.1", "0.2", "0.3"])

    status = Path(f"/proc/{sidecar.pid}/status").read_text()
    resident_kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

    assert read_process(sidecar.pid) is not None
    assert resident_kilobytes < 60 * 1024
