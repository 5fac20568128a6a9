from __future__ import annotations

from pathlib import Path

from tests.support.local_jobs import Monitors, home, job, shell


def test_a_job_runs_its_command_and_completes(tmp_path: Path) -> None:
    with home(tmp_path) as h:
        end = h.run(job(shell("echo loss=1; echo oops >&2")))

        assert (end["type"], end["reason"]) == ("Complete", "CompletionsReached")
        assert h.log() == "loss=1\noops\n"
        assert bytes(h.monitors.opened[0].data) == b"loss=1\noops\n"
        assert h.status()["succeeded"] == 1
