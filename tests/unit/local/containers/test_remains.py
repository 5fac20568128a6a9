from __future__ import annotations

import json
import logging
import os
import subprocess
from pathlib import Path

import pytest

from katib.places.machine.containers.arguments import RuntimeProgram
from katib.places.machine.containers.choice import ContainerRuntime, keep_clean, removal_script, remove_all

CLIENT = """#!/bin/sh
# Keeps containers and networks as lines of two files, and notes what is removed.
cd {directory}
case "$1 $2" in
    "ps "*) cat ps;;
    "network ls") cat network;;
    "network rm") shift 2; echo "$@" >> removed; : > network; exit {code};;
    "rm "*) echo "$@" >> removed; : > ps; [ -e late ] && mv late ps; exit {code};;
esac
exit 0
"""


def client(directory: Path, ps: str = "", network: str = "", late: str = "", code: int = 0) -> Path:
    (directory / "ps").write_text(ps)
    (directory / "network").write_text(network)
    if late:
        (directory / "late").write_text(late)
    (directory / "sleep").write_text("#!/bin/sh\n")
    (directory / "sleep").chmod(0o755)
    path = directory / "my client"
    path.write_text(CLIENT.format(directory=directory, code=code))
    path.chmod(0o755)
    return path


def execute(script: str, directory: Path) -> None:
    """Run a script whose pauses take no time."""
    environment = {"PATH": f"{directory}:/usr/bin:/bin"}
    subprocess.run(["/bin/sh", "-c", script], env=environment, check=False, timeout=60)


def removed(directory: Path) -> list[str]:
    file = directory / "removed"
    return file.read_text().splitlines() if file.exists() else []


def test_the_script_of_the_guard_removes_containers_and_networks_of_its_engine_and_those_that_come_late(
    tmp_path: Path,
) -> None:
    path = client(tmp_path, "a\nb\n", "n\n", late="c\n")
    script = removal_script(RuntimeProgram.PODMAN, str(path), "abc")

    execute(script, tmp_path)

    assert removed(tmp_path) == [
        "rm --force --volumes --time 0 --ignore a b",
        "rm --force --volumes --time 0 --ignore c",
        "n",
    ]
    assert "label=katib.engine=abc" in script


def test_the_script_removes_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    execute(removal_script(RuntimeProgram.DOCKER, str(client(tmp_path)), "abc"), tmp_path)

    assert removed(tmp_path) == []


def test_an_engine_says_what_an_earlier_one_left_and_nothing_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runtime, note, environ = (
        ContainerRuntime(RuntimeProgram.DOCKER, str(client(tmp_path, "a\n"))),
        tmp_path / "note",
        os.environ,
    )

    caplog.set_level(logging.INFO)
    with keep_clean(note, tmp_path, runtime, environ):
        pass
    at_the_end = list(caplog.messages)
    client(tmp_path, "b\n")
    note.write_text(json.dumps({"program": "docker", "path": runtime.path}))
    with keep_clean(note, tmp_path, None, environ):
        pass

    assert [line.split()[-1] for line in removed(tmp_path)] == ["a", "b"]
    assert at_the_end == []
    assert caplog.messages == ["Containers or networks of an engine that has ended are removed"]


@pytest.mark.parametrize(("late", "is_clean"), [("", True), ("c\n", False)], ids=["removed by others", "still there"])
def test_what_another_process_removes_at_the_same_time_is_removed(tmp_path: Path, late: str, is_clean: bool) -> None:
    path = client(tmp_path, "a\n", late=late, code=1)

    assert remove_all(RuntimeProgram.DOCKER, str(path), "owner", {"PATH": "/usr/bin:/bin"}) is is_clean
