"""Jobs as real processes, judged by what is in the store and on the disk afterwards."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from katib.engine.algorithm_services.config import ServicesConfig
from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import Key, Object
from katib.engine.stores.sql import SqlStore
from katib.errors import Backoff
from katib.model.configuration import read_configuration
from katib.model.files.directories import has_room
from katib.model.names import METRICS_REPORT_ANNOTATION
from katib.places.machine.jobs.batch.job import JOB, BatchJob
from katib.places.machine.jobs.conditions import end_of
from katib.places.machine.jobs.controller import RESTARTED_ANNOTATION
from katib.places.machine.jobs.dependencies import Collection
from katib.places.machine.jobs.kind import ObservedJob, Plan
from katib.places.machine.pods.log_file import LogLimits, log_parts
from katib.places.machine.pods.plans import read_note
from katib.places.machine.pods.records import Delays, PodRecord
from katib.places.machine.pods.requests import Capacity
from katib.places.machine.processes.proc import is_running
from katib.places.machine.trials.monitors import OutputMonitor
from metrics_collector.collector import Collector
from metrics_collector.parsers import TextParser
from metrics_collector.reporter import Reporter
from metrics_collector.sources import ProgramOutput
from tests.support.controllers import RecordedEvents
from tests.support.golden import Golden
from tests.support.local_jobs import PRIMARY, Monitors, Owner, home, job, shell
from tests.support.memory_store import MemoryStore
from tests.support.observations import MemoryObservationLog
from tests.support.planning import trial
from tests.support.processes import DAEMON, hanging_program, marked, read_pid
from tests.support.waiting import eventually

LONG = "sleep 600"

ENGINE_WITH_JOBS = """
import os, sys, threading
sys.path.insert(0, os.getcwd())
from pathlib import Path
from katib.engine.databases.sqlite import open_database
from katib.engine.stores.sql import SqlStore
from katib.places.machine.jobs.batch.job import JOB
from tests.support.local_jobs import home, job, shell
from tests.support.processes import DAEMON

root = Path(sys.argv[1])
(root / "daemon.py").write_text(DAEMON)
store = SqlStore(open_database(root / "objects.db"), {JOB})
daemon = f"{sys.executable} -I -S {root}/daemon.py {root}/daemon"
with home(root, store=store) as h:
    h.submit(job(shell(f"echo x >>{root}/starts; {daemon}; while [ ! -e {root}/go ]; do sleep 0.01; done")))
    threading.Event().wait()
"""
"""A stand-in for the engine with a job that starts a daemon and waits; it is there to be killed."""


def container(*command: str, **fields: Any) -> dict[str, Any]:
    return {"name": "main", "command": list(command), **fields}


class TestOutcome:
    def test_a_job_runs_its_command_and_completes(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            end = h.run(job(shell("echo loss=1; echo oops >&2")))

            assert (end["type"], end["reason"]) == ("Complete", "CompletionsReached")
            assert h.log() == "loss=1\noops\n"
            assert bytes(h.monitors.opened[0].data) == b"loss=1\noops\n"
            status = h.status()
            assert (status["succeeded"], status.get("active", 0)) == (1, 0)
            assert status["startTime"] <= status["completionTime"]

    def test_a_short_job_costs_one_write(self, tmp_path: Path) -> None:
        writes = []

        class CountingStore(MemoryStore):
            def update_status(self, obj: Object) -> Object:
                writes.append(obj)
                return super().update_status(obj)

        with home(tmp_path, store=CountingStore({JOB}), settle_seconds=60.0) as h:
            h.run(job(shell("echo loss=1")))

            assert len(writes) == 1

    def test_a_short_job_is_planned_when_it_starts_and_when_its_pod_has_ended_and_not_between(
        self, tmp_path: Path
    ) -> None:
        unfinished: list[PodRecord] = []

        class WatchedJob(BatchJob):
            def plan(self, observed: ObservedJob) -> Plan:
                unfinished.extend(record for record in observed.pods if not record.is_finished)
                return super().plan(observed)

        with home(tmp_path, kinds=(WatchedJob(),), settle_seconds=60.0) as h:
            h.run(job(shell("echo loss=1; sleep 0.1")))

        assert unfinished == []

    def test_the_next_pod_starts_at_once_however_long_a_status_has_to_hold(self, tmp_path: Path) -> None:
        with home(tmp_path, settle_seconds=3600.0) as h:
            end = h.run(job(shell("true"), completions=3, parallelism=1))

        assert end["type"] == "Complete"

    def test_a_failed_command_is_named_with_its_exit(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            end = h.run(job(shell("exit 3"), backoffLimit=0))

            assert (end["type"], end["reason"]) == ("Failed", "BackoffLimitExceeded")
            assert '"main" of pod j-' in end["message"]
            assert "exited with 3" in end["message"]
            assert "completionTime" not in h.status()

    def test_the_last_line_of_a_failed_command_is_in_the_message(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            end = h.run(job(shell("echo one; echo 'no such data' >&2; exit 3")))

            assert end["message"].endswith(": no such data")

    @pytest.mark.parametrize("restart", ["Never", "OnFailure"])
    def test_without_a_back_off_limit_a_failed_command_is_not_tried_again(self, tmp_path: Path, restart: str) -> None:
        with home(tmp_path) as h:
            end = h.run(job(shell(f"echo x >>{tmp_path}/tries; exit 1"), restart=restart))

            assert end["reason"] == "BackoffLimitExceeded"
            assert (tmp_path / "tries").read_text() == "x\n"

    @pytest.mark.parametrize("restart", ["Never", "OnFailure"])
    def test_of_tries_that_fail_before_a_status_settles_each_is_told(self, tmp_path: Path, restart: str) -> None:
        told: list[str] = []
        script = f"echo x >>{tmp_path}/tries; echo boom $(wc -l <{tmp_path}/tries); exit 1"
        quick = Delays(recreate=Backoff(0.001, 1.0), restart=Backoff(0.001, 1.0))

        class Listener(Owner):
            def retried(self, job: Object, how: str) -> None:
                told.append(how.split(" begins", maxsplit=1)[0])

        with home(tmp_path, delays=quick, settle_seconds=2.0, owner=Listener(tmp_path)) as h:
            end = h.run(job(shell(script), restart=restart, backoffLimit=3))

        assert end["reason"] == "BackoffLimitExceeded"
        assert told == [f"boom {count} (exit code 1); try {count + 1} of 4" for count in (1, 2, 3)]

    def test_a_killed_command_is_named_with_its_signal(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            assert "was killed by SIGSEGV" in h.run(job(shell("kill -SEGV $$"), backoffLimit=0))["message"]

    def test_a_missing_command_fails_at_once_and_says_what_to_do(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            end = h.run(job(container("no-such-program")))

            assert (end["type"], end["reason"]) == ("Failed", "PodCannotStart")
            assert '"no-such-program" not found' in end["message"]
            assert h.status().get("failed") == 1

    def test_a_missing_config_map_fails_at_once_and_is_named(self, tmp_path: Path, golden: Golden) -> None:
        env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]
        with home(tmp_path) as h:
            end = h.run(job(shell("true", env=env)))

            assert end["reason"] == "PodCannotStart"
            golden(end["message"])

    def test_a_request_beyond_the_machine_fails_at_once(self, tmp_path: Path) -> None:
        with home(tmp_path, machine={"capacity": Capacity(Decimal(2), Decimal(2**30))}) as h:
            assert "needs 8 GPU" in h.run(job(shell("true", resources={"limits": {"nvidia.com/gpu": 8}})))["message"]

    def test_failures_are_retried_until_one_succeeds(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            end = h.run(job(shell(f"echo x >>{tmp_path}/tries; [ $(wc -l <{tmp_path}/tries) = 3 ]"), backoffLimit=6))

            assert end["type"] == "Complete"
            assert h.status()["failed"] == 2
            assert len(h.log_files()) == 3

    def test_on_failure_restarts_in_place(self, tmp_path: Path) -> None:
        script = f"echo try; echo x >>{tmp_path}/tries; [ $(wc -l <{tmp_path}/tries) = 3 ]"
        with home(tmp_path) as h:
            assert h.run(job(shell(script), restart="OnFailure", backoffLimit=6))["type"] == "Complete"
            assert h.log() == "try\n" * 3
            assert len(h.monitors.opened) == 1
            assert bytes(h.monitors.opened[0].data) == b"try\n" * 3

    def test_on_failure_ends_at_the_back_off_limit(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            end = h.run(job(shell("exit 1"), restart="OnFailure", backoffLimit=2))

            assert end["reason"] == "BackoffLimitExceeded"
            assert len(h.log_files()) == 1

    def test_the_deadline_ends_the_pods(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            h.submit(job(shell(f"echo $$ >{tmp_path}/pid; exec {LONG}")))
            read_pid(tmp_path / "pid")
            h.update(lambda obj: obj["spec"].update(activeDeadlineSeconds=1))
            end = h.wait_for_end()

            assert (end["type"], end["reason"]) == ("Failed", "DeadlineExceeded")
            assert not is_running(read_pid(tmp_path / "pid"))

    def test_a_pod_that_ignores_the_polite_end_is_killed_after_its_grace(self, tmp_path: Path) -> None:
        script = f"trap '' TERM; echo $$ >{tmp_path}/pid; while :; do sleep 0.05; done"
        with home(tmp_path) as h:
            h.submit(job(shell(script), pod={"terminationGracePeriodSeconds": 0.2}))
            read_pid(tmp_path / "pid")
            h.update(lambda obj: obj["spec"].update(activeDeadlineSeconds=1))

            assert h.wait_for_end()["reason"] == "DeadlineExceeded"
            assert not is_running(read_pid(tmp_path / "pid"))

    def test_three_completions_run_two_at_a_time(self, tmp_path: Path) -> None:
        script = (
            f"echo x >>{tmp_path}/starts; n=$(wc -l <{tmp_path}/starts); "
            f"[ $n = 3 ] || while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
        )
        with home(tmp_path) as h:
            h.submit(job(shell(script), completions=3, parallelism=2))
            eventually(lambda: h.status().get("ready") == 2)
            eventually(lambda: (tmp_path / "starts").exists() and (tmp_path / "starts").read_text() == "x\nx\n")

            (tmp_path / "go").touch()

            assert h.wait_for_end()["type"] == "Complete"
            assert h.status()["succeeded"] == 3

    def test_indexed_pods_know_their_index(self, tmp_path: Path) -> None:
        spec = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
        with home(tmp_path) as h:
            h.run(job(shell(f"echo $HOSTNAME >{tmp_path}/$JOB_COMPLETION_INDEX"), **spec))

            assert [(tmp_path / str(i)).read_text() for i in range(3)] == ["j-0\n", "j-1\n", "j-2\n"]
            assert h.status()["completedIndexes"] == "0-2"

    def test_a_finished_job_goes_when_its_time_to_live_is_over_and_its_trial_allows(self, tmp_path: Path) -> None:
        allowed = threading.Event()
        with home(tmp_path, owner=Owner(tmp_path, releases=allowed.is_set)) as h:
            h.run(job(shell("true"), ttlSecondsAfterFinished=0))
            assert h.store.list(JOB).items

            allowed.set()

            eventually(lambda: not h.store.list(JOB).items)


class TestPods:
    def test_init_containers_run_one_by_one_before_the_others(self, tmp_path: Path) -> None:
        order = tmp_path / "order"
        init = [
            shell(f"sleep 0.05; echo first >>{order}", name="first"),
            shell(f"echo second >>{order}", name="second"),
        ]
        with home(tmp_path) as h:
            h.run(job(shell(f"echo main >>{order}"), pod={"initContainers": init}))

            assert order.read_text().split() == ["first", "second", "main"]

    def test_a_failing_init_container_keeps_the_others_from_starting(self, tmp_path: Path) -> None:
        init = [shell("exit 7", name="setup")]
        with home(tmp_path) as h:
            end = h.run(job(shell(f"touch {tmp_path}/ran"), backoffLimit=0, pod={"initContainers": init}))

            assert 'container "setup"' in end["message"]
            assert "exited with 7" in end["message"]
            assert not (tmp_path / "ran").exists()

    def test_a_sidecar_starts_first_and_ends_with_the_main_container(self, tmp_path: Path) -> None:
        sidecar = shell(f"echo $$ >{tmp_path}/pid; exec {LONG}", name="side", restartPolicy="Always")
        with home(tmp_path) as h:
            script = f"while [ ! -s {tmp_path}/pid ]; do sleep 0.01; done; kill -0 $(cat {tmp_path}/pid)"

            assert h.run(job(shell(script), backoffLimit=0, pod={"initContainers": [sidecar]}))["type"] == "Complete"
            assert not is_running(read_pid(tmp_path / "pid"))

    def test_a_sidecar_that_waits_to_be_started_again_does_not_keep_its_pod(self, tmp_path: Path) -> None:
        sidecar = shell(f"echo >>{tmp_path}/tries; exit 1", name="side", restartPolicy="Always")
        with home(tmp_path, delays=Delays(restart=Backoff(60.0, 60.0))) as h:
            script = f"while [ $(wc -l <{tmp_path}/tries) -lt 2 ]; do sleep 0.01; done; sleep 0.2"

            assert h.run(job(shell(script), backoffLimit=0, pod={"initContainers": [sidecar]}))["type"] == "Complete"

    def test_several_containers_run_together_and_all_must_succeed(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            end = h.run(job(shell(f"touch {tmp_path}/a"), shell("exit 4", name="other"), backoffLimit=0))

            assert 'container "other"' in end["message"]
            assert (tmp_path / "a").exists()

    def test_a_daemon_left_behind_is_gone_when_the_job_is_complete(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            h.run(job(container(sys.executable, "-I", "-S", "-c", DAEMON, str(tmp_path / "pid"))))

            assert not is_running(read_pid(tmp_path / "pid"))

    def test_a_daemon_that_holds_the_output_open_does_not_delay_the_end(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            h.run(job(shell(f"echo before; (trap '' TERM HUP; {LONG}) & echo $! >{tmp_path}/pid; echo after")))

            assert h.log() == "before\nafter\n"
            assert not is_running(read_pid(tmp_path / "pid"))

    def test_closing_the_output_early_does_not_end_the_container(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            assert h.run(job(shell(f"echo x; exec >&- 2>&-; sleep 0.3; touch {tmp_path}/late")))["type"] == "Complete"
            assert (tmp_path / "late").exists()

    def test_binary_junk_without_a_final_newline_arrives_unchanged(self, tmp_path: Path) -> None:
        junk = bytes(range(256)) * 1000
        (tmp_path / "junk").write_bytes(junk)
        with home(tmp_path) as h:
            h.run(job(container("cat", str(tmp_path / "junk"))))

            assert bytes(h.monitors.opened[0].data) == junk
            assert h.log_files()[-1].read_bytes() == junk

    def test_a_line_of_100_megabytes_passes(self, tmp_path: Path) -> None:
        with home(tmp_path, monitors=Monitors({"keep": False})) as h:
            assert h.run(job(shell("head -c 100000000 /dev/zero; sleep 0")))["type"] == "Complete"
            assert h.monitors.opened[0].size == 100_000_000

    def test_a_chatty_pod_does_not_starve_another(self, tmp_path: Path) -> None:
        with home(tmp_path, monitors=Monitors({"keep": False})) as h:
            h.submit(job(shell("yes | head -c 1000000000"), name="chatty"))
            eventually(lambda: h.monitors.opened and h.monitors.opened[0].size > 1_000_000)

            assert h.run(job(shell("echo loss=1"), name="quiet"))["type"] == "Complete"

    def test_the_user_s_files_are_in_the_working_directory(self, tmp_path: Path) -> None:
        workspace = tmp_path / "workspace"
        (workspace / "sub").mkdir(parents=True)
        (workspace / "sub" / "train.sh").write_text("pwd; echo $KATIB_TRIAL_NAME; ls -d $KATIB_TRIAL_DIR")
        with home(tmp_path, owner=Owner(workspace)) as h:
            h.run(job(container("sh", "train.sh", workingDir="sub")))

            lines = h.log().splitlines()
            assert lines[:2] == [str(workspace / "sub"), "j"]
            assert lines[2].startswith(str(h.root / "ns" / "j"))

    def test_volumes_are_directories_that_containers_share(self, tmp_path: Path) -> None:
        mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        init = [shell("echo 5 >/data/x", name="setup", **mount)]
        pod = {"initContainers": init, "volumes": [{"name": "data", "emptyDir": {}}]}
        with home(tmp_path) as h:
            h.run(job(shell("cat /data/x", **mount), pod=pod))

            assert h.log() == "5\n"

    def test_a_path_that_the_engine_rewrites_lies_in_the_pod_s_directory(self, tmp_path: Path) -> None:
        class Rewriting(Monitors):
            def collection(self, job: Object, pod_labels: Mapping[str, str]) -> Collection:
                return Collection({}, {"/var/log/katib": "metrics"})

        with home(tmp_path, monitors=Rewriting()) as h:
            h.run(job(shell("echo loss=1 >/var/log/katib/metrics.log")))

            assert (h.monitors.opened[0].directory / "metrics" / "metrics.log").read_text() == "loss=1\n"

    def test_a_pod_s_processes_are_noted_on_disk(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            h.run(job(shell(f"echo $$ >{tmp_path}/pid")))

            note = read_note(h.monitors.opened[0].directory)
            assert note["processes"][0]["container"] == "main"
            assert note["processes"][0]["pid"] == read_pid(tmp_path / "pid")
            assert note["processes"][0]["startTime"] > 0


class TestMonitors:
    def test_a_verdict_stops_the_pod_and_completes_the_job_as_early_stopped(self, tmp_path: Path) -> None:
        with home(tmp_path, monitors=Monitors({"stop_when": b"loss=9"})) as h:
            end = h.run(job(shell(f"echo $$ >{tmp_path}/pid; echo loss=9; exec {LONG}")))

            assert (end["type"], end["reason"], end["message"]) == ("Complete", "EarlyStopped", "rule met")
            assert not is_running(read_pid(tmp_path / "pid"))

    def test_the_end_is_written_only_when_all_metrics_are_stored(self, tmp_path: Path) -> None:
        with home(tmp_path, monitors=Monitors({"hold_close": True})) as h:
            h.submit(job(shell("echo loss=1")))
            eventually(lambda: h.monitors.opened and h.monitors.opened[0].done)
            assert end_of(h.status()) is None

            h.monitors.opened[0].release()

            assert h.wait_for_end()["type"] == "Complete"

    def test_a_missing_metric_is_explained_on_the_job(self, tmp_path: Path, golden: Golden) -> None:
        with home(tmp_path, monitors=Monitors({"explanation": '1 line, none matched "loss"'})) as h:
            h.run(job(shell("echo accuracy=1")))

            golden(h.get()["metadata"]["annotations"][METRICS_REPORT_ANNOTATION])

    def test_a_monitor_that_fails_does_not_take_the_job_along(self, tmp_path: Path) -> None:
        class Real(Monitors):
            def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> OutputMonitor:
                output, reporter = ProgramOutput(TextParser(["loss"])), Reporter(MemoryObservationLog().report)
                reporter.close(1)
                return OutputMonitor(
                    trial=trial(),
                    source=output,
                    collector=Collector("loss", [], output),
                    reporter=reporter,
                    events=RecordedEvents(),
                    stored=None,
                    rewind=None,
                )

        with home(tmp_path, monitors=Real()) as h:
            assert h.run(job(shell("echo loss=1; sleep 0.2; echo loss=2")))["type"] == "Complete"
            report = "reading the metrics failed: the reporter is closed"
            assert h.get()["metadata"]["annotations"][METRICS_REPORT_ANNOTATION] == report
            assert h.log() == "loss=1\nloss=2\n"

    def test_a_monitor_without_room_on_the_disk_fails_its_pod_and_nobody_else(self, tmp_path: Path) -> None:
        class Full(Monitors):
            def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with home(tmp_path, monitors=Full(), machine={"capacity": Capacity(Decimal(1), Decimal(1 << 30), ())}) as h:
            ends = [h.run(job(shell("true"), name=name, backoffLimit=0)) for name in ("a", "b")]

            assert [end["type"] for end in ends] == ["Failed", "Failed"]

    def test_a_backlogged_monitor_holds_the_output_back(self, tmp_path: Path) -> None:
        with home(tmp_path, monitors=Monitors({"backlogged": True, "keep": False})) as h:
            h.submit(job(shell(f"head -c 10000000 /dev/zero; touch {tmp_path}/done")))
            eventually(lambda: h.monitors.opened)
            eventually(lambda: h.status().get("ready") == 1)
            assert h.monitors.opened[0].size == 0
            assert not (tmp_path / "done").exists()

            h.monitors.opened[0].backlogged = False

            assert h.wait_for_end()["type"] == "Complete"
            assert h.monitors.opened[0].size == 10_000_000

    def test_every_line_is_read_though_the_log_keeps_the_last_ones_only(self, tmp_path: Path) -> None:
        with home(tmp_path, log_limits=LogLimits(max_bytes=10_000, max_files=3)) as h:
            h.run(job(shell("seq 100000")))
            [log] = h.log_files()
            kept = b"".join(part.read_bytes() for part in log_parts(log))
            printed = b"".join(b"%d\n" % number for number in range(1, 100_001))

            assert bytes(h.monitors.opened[0].data) == printed
            assert 20_000 < len(kept) <= 30_000
            assert printed.endswith(kept)

    def test_files_are_looked_at_while_the_container_runs(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            h.submit(job(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done")))
            eventually(lambda: h.monitors.opened and h.monitors.opened[0].polls >= 2)
            (tmp_path / "go").touch()
            h.wait_for_end()


class TestCommands:
    def test_deleting_a_job_ends_its_processes(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            h.submit(job(container(sys.executable, "-I", "-S", "-c", DAEMON, str(tmp_path / "pid"), "stay")))
            daemon = read_pid(tmp_path / "pid")
            eventually(lambda: h.status().get("ready") == 1)

            h.store.delete(JOB, Key("ns", "j"))

            eventually(lambda: not is_running(daemon))

    def test_a_job_of_the_same_name_waits_for_the_deleted_one_to_end(self, tmp_path: Path) -> None:
        slow = f"trap 'sleep 0.3; rm {tmp_path}/lock; exit' TERM; touch {tmp_path}/lock; while :; do sleep 0.01; done"
        with home(tmp_path) as h:
            h.submit(job(shell(slow)))
            eventually((tmp_path / "lock").exists)
            h.store.delete(JOB, Key("ns", "j"))

            assert h.run(job(shell(f"[ ! -e {tmp_path}/lock ]"), backoffLimit=0))["type"] == "Complete"
            assert RESTARTED_ANNOTATION not in (h.get()["metadata"].get("annotations") or {})

    def test_deleting_a_job_that_waits_for_its_restart_is_done_at_once(self, tmp_path: Path) -> None:
        with home(tmp_path, delays=Delays(restart=Backoff(600.0, 600.0))) as h:
            h.submit(job(shell(f"echo x >>{tmp_path}/tries; exit 1"), restart="OnFailure", backoffLimit=6))
            eventually(lambda: (tmp_path / "tries").exists() and (tmp_path / "tries").read_text() == "x\nx\n")
            h.store.delete(JOB, Key("ns", "j"))

            eventually(lambda: not h.runner.runs(Key("ns", "j")))

    def test_deleting_a_job_that_waits_for_resources_makes_way_for_others(self, tmp_path: Path) -> None:
        big = {"resources": {"requests": {"cpu": 2}}}
        with home(tmp_path, machine={"capacity": Capacity(Decimal(2), Decimal(2**30))}) as h:
            h.submit(job(shell(LONG, resources={"requests": {"cpu": 1}}), name="first"))
            eventually(lambda: h.status("first").get("ready") == 1)
            h.submit(job(shell("true", **big), name="second"))
            eventually(lambda: h.runner.waiting_reason("ns", "second"))
            h.submit(job(shell("true", resources={"requests": {"cpu": 1}}), name="third"))
            eventually(lambda: h.runner.waiting_reason("ns", "third"))

            h.store.delete(JOB, Key("ns", "second"))

            assert h.wait_for_end("third")["type"] == "Complete"

    def test_suspending_ends_the_pods_and_resuming_starts_anew(self, tmp_path: Path) -> None:
        """Also where the program handles the signal; only one that ends with 0 has succeeded, as on Kubernetes."""
        waits = "trap 'exit 3' TERM; while :; do sleep 0.05; done"
        script = f"echo $$ >>{tmp_path}/pids; [ $(wc -l <{tmp_path}/pids) = 2 ] || {{ {waits}; }}"
        with home(tmp_path) as h:
            h.submit(job(shell(script)))
            first = read_pid(tmp_path / "pids")
            eventually(lambda: h.status().get("ready") == 1)

            h.update(lambda obj: obj["spec"].update(suspend=True))

            eventually(lambda: not is_running(first))
            eventually(lambda: h.status().get("conditions", [{}])[0].get("reason") == "JobSuspended")
            assert "startTime" not in h.status()

            h.update(lambda obj: obj["spec"].update(suspend=False))

            assert h.wait_for_end()["type"] == "Complete"
            assert h.status()["conditions"][0]["reason"] == "JobResumed"
            assert "failed" not in h.status()

    def test_a_program_that_was_just_started_counts_as_running_once_its_job_is_suspended(self, tmp_path: Path) -> None:
        """Otherwise the next trial would begin beside it."""
        script = f"trap '' TERM; echo $$ >>{tmp_path}/pids; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
        with home(tmp_path, settle_seconds=3600.0) as h:
            h.submit(job(shell(script)))
            read_pid(tmp_path / "pids")

            h.update(lambda obj: obj["spec"].update(suspend=True))

            eventually(lambda: (standing := h.runner.standing(Key("ns", "j"))) is not None and standing.runs)
            (tmp_path / "go").touch()

    def test_pods_wait_for_the_resources_they_request(self, tmp_path: Path) -> None:
        big = {"resources": {"requests": {"cpu": 2}}}
        script = f"touch {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
        with home(tmp_path, machine={"capacity": Capacity(Decimal(2), Decimal(2**30))}) as h:
            h.submit(job(shell(script, **big), name="first"))
            eventually((tmp_path / "up").exists)
            h.submit(job(shell("true", **big), name="second"))
            eventually(lambda: h.runner.waiting_reason("ns", "second"))
            assert h.runner.waiting_reason("ns", "second").startswith("waits for 2 cpu")
            h.run(job(shell("true"), name="modest"))

            (tmp_path / "go").touch()

            assert h.wait_for_end("second")["type"] == "Complete"
            assert h.runner.waiting_reason("ns", "second") == ""

    def test_leased_gpus_are_the_only_visible_ones(self, tmp_path: Path) -> None:
        gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
        with home(tmp_path, machine={"capacity": Capacity(Decimal(2), Decimal(2**30), ("4", "5"))}) as h:
            h.run(job(shell("echo $CUDA_VISIBLE_DEVICES", **gpu)))

            assert h.log() == "4\n"

    @pytest.mark.parametrize(("below", "condition"), [("new", "Complete"), ("file/new", "Failed")])
    def test_a_directory_of_the_host_is_made_or_the_job_says_why_not(
        self, tmp_path: Path, below: str, condition: str
    ) -> None:
        (tmp_path / "file").touch()
        mount = {"volumeMounts": [{"name": "v", "mountPath": "/data", "subPath": "sub"}]}
        volume = {"volumes": [{"name": "v", "hostPath": {"path": str(tmp_path / below)}}]}
        with home(tmp_path) as h:
            end = h.run(job(shell("echo x >/data/made", **mount), pod=volume))

        assert end["type"] == condition
        assert (tmp_path / below / "sub" / "made").exists() == (condition == "Complete")
        assert condition == "Complete" or str(tmp_path / below) in end["message"]

    def test_a_failing_job_says_what_it_waits_for(self, tmp_path: Path) -> None:
        with home(tmp_path, delays=Delays()) as h:
            h.submit(job(shell("exit 3"), backoffLimit=6))
            eventually(lambda: h.status().get("failed") == 1)

            eventually(lambda: "exited with 3; the next try starts at 20" in h.runner.waiting_reason("ns", "j"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB for the directories of pods."""
    disk = tmp_path / "trials"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(path: Path) -> None:
    """Write a file until its file system is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


class TestDisasters:
    def test_a_file_system_that_does_not_answer_holds_up_its_own_job_only(self, tmp_path: Path) -> None:
        with home(tmp_path) as h, hanging_program(tmp_path / "program") as program:
            h.submit(job({"name": PRIMARY, "command": [str(program)]}, name="hanging"))
            eventually(lambda: h.status("hanging").get("active") == 1)

            assert h.run(job(shell("echo there")))["type"] == "Complete"
            assert h.log() == "there\n"
            assert "ready" not in h.status("hanging")

            h.store.delete(JOB, Key("ns", "hanging"))
            assert h.runner.wait_until_gone(Key("ns", "hanging"), 10)

    def test_stopping_leaves_jobs_unfinished_and_the_next_start_runs_them_anew(self, tmp_path: Path) -> None:
        store = MemoryStore({JOB})
        script = f"echo $$ >>{tmp_path}/pids; [ $(wc -l <{tmp_path}/pids) = 2 ] || exec {LONG}"
        with home(tmp_path, store=store) as h:
            h.submit(job(shell(script), backoffLimit=0))
            first = read_pid(tmp_path / "pids")
            eventually(lambda: h.status().get("ready") == 1)
        assert not is_running(first)
        assert end_of(store.get(JOB, Key("ns", "j"))["status"]) is None

        with home(tmp_path, store=store) as h:
            assert h.wait_for_end()["type"] == "Complete"
            assert h.monitors.discarded == ["j"]
            assert "restarted at" in h.get()["metadata"]["annotations"][RESTARTED_ANNOTATION]

    @pytest.mark.parametrize("name", ["job.json", "pod/pod.json"], ids=["an earlier version", "this version"])
    def test_a_job_that_was_cut_off_before_its_first_status_is_known_by_what_it_left(
        self, tmp_path: Path, name: str
    ) -> None:
        store = MemoryStore({JOB})
        uid = store.create(job(shell("true")))["metadata"]["uid"]
        note = tmp_path / "trials" / "ns" / "j" / name
        note.parent.mkdir(parents=True)
        note.write_text(json.dumps({"uid": uid}) if name == "job.json" else f'{{"job": "{uid}"}}\n{{"proc')

        with home(tmp_path, store=store) as h:
            assert h.wait_for_end()["type"] == "Complete"
            assert h.monitors.discarded == ["j"]
            assert not note.exists()

    def test_a_finished_job_is_not_run_again_by_the_next_start(self, tmp_path: Path) -> None:
        store = MemoryStore({JOB})
        with home(tmp_path, store=store) as h:
            h.run(job(shell(f"echo x >>{tmp_path}/runs")))
        with home(tmp_path, store=store) as h:
            h.run(job(shell("true"), name="other"))

            assert (tmp_path / "runs").read_text() == "x\n"
            assert h.monitors.discarded == []

    def test_a_pod_lost_with_the_guard_is_replaced_and_costs_no_try(self, tmp_path: Path) -> None:
        script = f"echo $$ >>{tmp_path}/pids; [ $(wc -l <{tmp_path}/pids) = 2 ] || exec {LONG}"
        with home(tmp_path) as h:
            h.submit(job(shell(script)))
            first = read_pid(tmp_path / "pids")
            eventually(lambda: h.status().get("ready") == 1)
            connection = h.processes._connection
            assert connection is not None

            os.kill(connection.pid, signal.SIGKILL)

            assert h.wait_for_end()["type"] == "Complete"
            assert "failed" not in h.status()
            assert not is_running(first)

    def test_a_program_that_cannot_be_started_for_now_is_started_later(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            assert h.run(job(shell("true"), name="first"))["type"] == "Complete"
            connection = h.processes._connection
            assert connection is not None
            limits = resource.prlimit(connection.pid, resource.RLIMIT_NOFILE)

            resource.prlimit(connection.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
            h.submit(job(shell("echo there"), backoffLimit=0))
            eventually(lambda: "too many files are open" in h.runner.waiting_reason("ns", "j"))
            resource.prlimit(connection.pid, resource.RLIMIT_NOFILE, limits)

            assert h.wait_for_end()["type"] == "Complete"
            assert "failed" not in h.status()
            assert h.log() == "there\n"

    def test_a_program_that_waits_for_a_shortage_to_pass_can_be_deleted(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            assert h.run(job(shell("true"), name="first"))["type"] == "Complete"
            connection = h.processes._connection
            assert connection is not None
            limits = resource.prlimit(connection.pid, resource.RLIMIT_NOFILE)

            resource.prlimit(connection.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
            h.submit(job(shell("true")))
            eventually(lambda: "too many files are open" in h.runner.waiting_reason("ns", "j"))
            h.store.delete(JOB, Key("ns", "j"))

            assert h.runner.wait_until_gone(Key("ns", "j"), 60)
            resource.prlimit(connection.pid, resource.RLIMIT_NOFILE, limits)
            assert h.run(job(shell("true"), name="next"))["type"] == "Complete"

    def test_a_disk_that_others_fill_ends_no_job(self, tmp_path: Path, small_disk: Path) -> None:
        with home(tmp_path, monitors=Monitors({"keep": False})) as h:
            gate = "while [ ! -e {} ]; do sleep 0.01; done; "
            h.submit(job(shell(gate.format(tmp_path / "go") + "head -c 1000000 /dev/zero; echo end")))
            h.submit(job(shell(gate.format(tmp_path / "then") + "echo more"), name="later"))
            eventually(lambda: h.status().get("ready") == h.status("later").get("ready") == 1)
            fill(small_disk / "ballast")
            (tmp_path / "go").touch()
            end = h.wait_for_end()

            assert end["type"] == "Complete"
            assert re.search(r"the log main.log lacks \d+ bytes: No space left on device", end["message"])
            assert h.monitors.opened[0].size == 1_000_004

            h.submit(job(shell("true"), name="next"))
            eventually(lambda: "No space left on device" in h.runner.waiting_reason("ns", "next"))
            (small_disk / "ballast").unlink()

            assert h.wait_for_end("next")["type"] == "Complete"
            (tmp_path / "then").touch()
            assert "lacks" not in h.wait_for_end("later").get("message", "")
            assert h.log(name="later") == "more\n"

    def test_a_job_that_fills_the_disk_is_ended_and_the_others_go_on(self, tmp_path: Path, small_disk: Path) -> None:
        with home(tmp_path, monitors=Monitors({"keep": False})) as h:
            h.submit(job(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo done"), name="quiet"))
            eventually(lambda: h.status("quiet").get("ready") == 1)

            end = h.run(job(shell("while :; do echo many words; done"), restart="OnFailure"))

            assert (end["type"], end["reason"]) == ("Failed", "PodEvicted")
            assert re.search("the disk is full, and pod j-.* has filled it with 1.0 MiB of output", end["message"])
            assert h.status()["failed"] == 1
            first, *words, last = filter(None, h.log().splitlines())
            gap = re.compile(r"\[katib\] \d+ bytes of output are missing here: the disk was full")
            assert gap.fullmatch(first)
            assert gap.fullmatch(last)
            assert set(words[1:-1]) == {"many words"}
            h.run(job(shell("echo another"), name="next"))
            (tmp_path / "go").touch()
            assert h.wait_for_end("quiet")["type"] == "Complete"
            assert h.log(name="quiet") == "done\n"

    @pytest.mark.parametrize(
        ("place", "removed"),
        [("$KATIB_TRIAL_DIR/sub", ", which is removed"), ("{disk}", "")],
        ids=["its own directory", "elsewhere"],
    )
    def test_a_job_whose_files_fill_the_disk_is_ended_and_the_file_is_named(
        self, tmp_path: Path, small_disk: Path, place: str, removed: str
    ) -> None:
        writes = f"mkdir -p {place}; (exec > {place}/big; cat /dev/zero 2>&-; sleep 1000) & wait"
        reserve = small_disk / "reserve"
        reserve.write_bytes(bytes(100_000))
        with home(tmp_path, monitors=Monitors({"keep": False}), reserve=reserve) as h:
            h.submit(job(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo done"), name="quiet"))
            eventually(lambda: h.status("quiet").get("ready") == 1)
            h.submit(job(shell(writes.replace("{disk}", str(small_disk)))))
            eventually(lambda: not has_room(small_disk))
            h.runner.disk_full()
            end = h.wait_for_end()

            assert (end["type"], end["reason"]) == ("Failed", "PodEvicted")
            found = re.search(
                r"the largest is (\S+/big) with 0.[89] MiB(.*); write less, or to another disk", end["message"]
            )
            assert found is not None, end["message"]
            assert found[2] == removed
            assert Path(found[1]).exists() == (not removed)
            assert has_room(small_disk, 90_000)
            assert not reserve.exists()
            (tmp_path / "go").touch()
            assert h.wait_for_end("quiet")["type"] == "Complete"

    def test_output_limited_to_less_than_the_disk_ends_no_job(self, tmp_path: Path, small_disk: Path) -> None:
        """What the message of the test before tells one to do."""
        config = read_configuration(ServicesConfig, "{containerLogMaxSize: 64Ki, containerLogMaxFiles: 3}", "f")
        limits = LogLimits(config.container_log_max_bytes, config.container_log_max_files)
        with home(tmp_path, monitors=Monitors({"keep": False}), log_limits=limits) as h:
            end = h.run(job(shell("seq 1000000")))

            assert end["type"] == "Complete"
            assert "lacks" not in end.get("message", "")
            assert h.monitors.opened[0].size == 6_888_896
            assert sum(part.stat().st_size for part in log_parts(h.log_files()[0])) <= 3 * (64 << 10)

    def test_stopping_does_not_wait_for_readings_that_cannot_be_stored(self, tmp_path: Path) -> None:
        runs, ends = threading.Event(), []

        def run() -> None:
            with home(tmp_path, monitors=Monitors({"hold_close": True})) as h:
                h.submit(job(shell("sleep 1000")))
                eventually(lambda: h.status().get("ready") == 1)
                runs.set()
            ends.append(end_of(h.status()))

        thread = threading.Thread(target=run)
        thread.start()
        runs.wait()

        eventually(lambda: not thread.is_alive(), "the runner's end", seconds=6)
        assert ends == [None]

    def test_a_killed_engine_is_continued_by_the_next(self, tmp_path: Path) -> None:
        script = tmp_path / "engine.py"
        script.write_text(ENGINE_WITH_JOBS)
        with subprocess.Popen([sys.executable, str(script), str(tmp_path)], cwd=Path.cwd()) as engine:
            daemon = read_pid(tmp_path / "daemon")
            engine.send_signal(signal.SIGKILL)
        eventually(lambda: not is_running(daemon))

        with open_database(tmp_path / "objects.db") as database, home(tmp_path, store=SqlStore(database, {JOB})) as h:
            eventually(lambda: (tmp_path / "starts").read_text().count("\n") == 2)
            (tmp_path / "go").touch()

            assert h.wait_for_end()["type"] == "Complete"
            assert h.monitors.discarded == ["j"]
            assert "failed" not in h.status()
            assert (tmp_path / "starts").read_text().count("\n") == 2

    def test_nothing_is_left_when_everything_is_stopped(self, tmp_path: Path) -> None:
        with home(tmp_path) as h:
            engine_id = h.processes.engine_id
            h.submit(job(container(sys.executable, "-I", "-S", "-c", DAEMON, str(tmp_path / "pid"), "stay")))
            read_pid(tmp_path / "pid")

        assert marked(engine_id) == []


@pytest.mark.slow
def test_ten_million_lines_are_read_in_good_time(tmp_path: Path) -> None:
    with home(tmp_path, monitors=Monitors({"keep": False})) as h:
        assert h.run(job(shell("yes loss=0.5 | head -n 10000000")))["type"] == "Complete"
        assert h.monitors.opened[0].size == 90_000_000
