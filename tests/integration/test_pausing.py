"""Trials that are paused beside `katib run`, by Ctrl-C or by a crash, and continue from their checkpoints."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from katib.doors.rest.door import open_door
from tests.support.cli import KATIB, environment, katib, katib_here, katib_json
from tests.support.golden import Golden
from tests.support.waiting import eventually
from tests.support.warm import WarmPopen

STEPS = 12
TRAINING = f"""
import os, signal, sys, time
from pathlib import Path
import katib

file = Path(os.environ["KATIB_CHECKPOINT_DIR"], "step")
step = int(file.read_text()) if file.exists() else 0
with open(os.environ["KATIB_TRIAL_NAME"], "a") as starts:
    starts.write(f"{{step}} ")
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
while step < {STEPS}:
    if asked:
        file.write_text(str(step))
        sys.exit(0)
    step += 1
    katib.report(loss=step + float(sys.argv[1]), step=step)
    if step == 4:
        file.write_text("2")  # what comes after it is lost in a crash
    until = Path("go") if step == 6 else Path("on") if step == 9 else None
    while until is not None and not until.exists() and not asked:
        time.sleep(0.02)
"""
LINE = ["tune", "-p", "lr=0.1,0.2,0.3", "--minimize", "loss", "--trials", "3", "--parallel", "1", "--algorithm", "grid"]
COMMAND = [*LINE, "--name", "demo", "--checkpoint", "--", "python", "train.py", "{lr}"]


def states(directory: Path) -> dict[str, str]:
    """Return the states of all trials, in order of their creation."""
    shown = katib_here("trials", "demo", "-o", "json", cwd=directory)
    items = json.loads(shown.stdout)["items"] if shown.returncode == 0 else []
    return {
        item["metadata"]["name"]: next(
            (c["type"] for c in reversed(item.get("status", {}).get("conditions", [])) if c["status"] == "True"), ""
        )
        for item in items
    }


def steps(directory: Path, trial: str) -> list[int]:
    return [reading.get("step") for reading in katib_json("metrics", trial, cwd=directory)]


@contextmanager
def started(directory: Path, *options: str) -> Iterator[WarmPopen]:
    at = COMMAND.index("--")
    argv = [*KATIB, *COMMAND[:at], *options, *COMMAND[at:]]
    with WarmPopen(argv, cwd=directory, env=environment(), text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_a_paused_trial_gives_its_place_away_and_trials_go_on_from_their_checkpoints(
    tmp_path: Path, end: signal.Signals, golden: Golden
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    with started(tmp_path) as process:
        eventually(lambda: states(tmp_path), "the first trial")
        first = next(iter(states(tmp_path)))
        eventually(lambda: steps(tmp_path, first)[-1:] == [6], "six steps")
        paused = katib_here("pause", first, cwd=tmp_path)
        eventually(lambda: len(states(tmp_path)) == 2, "a trial in its place")
        second = list(states(tmp_path))[1]
        eventually(lambda: steps(tmp_path, second)[-1:] == [6], "six steps of the second one")
        held = states(tmp_path)
        process.send_signal(end)
        process.wait(30)
    at_rest = [katib_here(word, first, cwd=tmp_path).returncode for word in ("resume", "pause")]
    for name in ("go", "on"):
        (tmp_path / name).touch()
    with started(tmp_path) as process:
        eventually(lambda: list(states(tmp_path).values())[1:] == ["Succeeded", "Succeeded"], "the end of both others")
        still = states(tmp_path)
        resumed = katib_here("resume", first, cwd=tmp_path)
        assert process.wait(60) == 0
    begun = {trial: (tmp_path / trial).read_text().split() for trial in states(tmp_path)}

    golden(paused.stdout.replace(first, "FIRST"))
    assert (held[first], still[first]) == ("Created", "Created")
    assert at_rest == [0, 0]
    assert resumed.stdout == f"trial/{first}: resumed\n"
    assert begun[first] == ["0", "6"]
    assert begun[second] == ["0", "6" if end == signal.SIGINT else "2"]
    for trial in (first, second):
        assert steps(tmp_path, trial) == list(range(1, STEPS + 1))


LAST_MOMENT = """
import os, time
from pathlib import Path
import katib

file = Path(os.environ["KATIB_CHECKPOINT_DIR"], "step")
step = int(file.read_text()) if file.exists() else 0
if step:
    raise SystemExit  # all is done
katib.report(loss=1, step=1)
while not Path("go").exists():
    time.sleep(0.02)
katib.report(loss=2, step=2)
while not Path("on").exists():
    time.sleep(0.02)
katib.report(loss=3, step=3)
print("loss=", end="", flush=True)  # of a line that is never whole
file.write_text("3")
time.sleep(600)
"""


def test_what_a_program_reports_in_the_last_moment_before_a_kill_is_stored_before_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAST_MOMENT)
    with started(tmp_path, "--trials", "1") as process:
        eventually(lambda: states(tmp_path), "the trial")
        (trial,) = states(tmp_path)
        eventually(lambda: steps(tmp_path, trial) == [1], "the first step")
        with closing(sqlite3.connect(tmp_path / ".katib/katib.db", isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # nothing can be stored
            (tmp_path / "go").touch()
            (log,) = (tmp_path / ".katib/trials").rglob("main.log")
            eventually(lambda: "step=2" in log.read_text(), "the second step")
            process.send_signal(signal.SIGSTOP)  # nothing is read
            (tmp_path / "on").touch()
            (folder,) = (tmp_path / ".katib/checkpoints/default/demo").glob("[!.]*")
            eventually(lambda: (folder / "step").exists() and (folder / "step").read_text(), "the third step")
            process.kill()
            process.wait(30)
    with started(tmp_path, "--trials", "1") as process:
        assert process.wait(60) == 0

    assert states(tmp_path) == {trial: "Succeeded"}
    assert steps(tmp_path, trial) == [1, 2, 3]


def test_an_experiment_is_paused_with_all_that_runs(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    with started(tmp_path) as process:
        eventually(lambda: states(tmp_path), "the first trial")
        (trial,) = states(tmp_path)
        eventually(lambda: steps(tmp_path, trial)[-1:] == [6], "six steps")
        paused = katib_here("pause", "demo", cwd=tmp_path)
        eventually(lambda: states(tmp_path)[trial] == "Created", "the pause")
        made = len(states(tmp_path))
        for name in ("go", "on"):
            (tmp_path / name).touch()
        resumed = katib_here("resume", "demo", cwd=tmp_path)
        assert process.wait(60) == 0

    golden(paused.stdout)
    assert made == 1
    assert resumed.stdout == "experiment/demo: resumed\n"
    assert set(states(tmp_path).values()) == {"Succeeded"}
    assert steps(tmp_path, trial) == list(range(1, STEPS + 1))


ENDS_WELL = """
import signal, sys, time
from pathlib import Path
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
x = sys.argv[1]
Path(f"begun-{x}").touch()
while not Path("end").exists():
    time.sleep(0.02)
print(f"loss={x}")
"""


def test_a_trial_keeps_its_place_while_its_programs_end_and_one_that_ends_well_has_succeeded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDS_WELL)
    line = [*KATIB, *LINE, "--name", "demo", "--", "python", "train.py", "{lr}"]

    def news(trial: str) -> list[str]:
        shown = katib_json("get", "trial", trial, "-o", "json", cwd=tmp_path)
        return [c["status"] for c in shown["status"]["conditions"] if c["reason"] == "TrialSuspended"]

    with WarmPopen(line, cwd=tmp_path, env=environment(), text=True) as process:
        eventually((tmp_path / "begun-0.1").exists)
        (first,) = states(tmp_path)
        katib_here("pause", first, cwd=tmp_path)
        eventually(lambda: news(first) == ["True"], "the pause, while the program runs")
        during = states(tmp_path)
        (tmp_path / "end").touch()
        assert process.wait(60) == 0

    assert during == {first: "Running"}
    assert list(states(tmp_path).values()) == ["Succeeded"] * 3


def test_a_directory_with_any_path_has_a_door(tmp_path: Path) -> None:
    """The path of a Unix socket may have 107 bytes."""
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    with open_door(object(), directory):  # type: ignore[arg-type]
        asked = katib("pause", "demo", "--data-dir", str(directory), cwd=tmp_path)

    assert "no server answers" not in asked.stderr
    assert not any(directory.iterdir())
