"""Every command that a message of `katib run`, `katib tune`, `katib why` and `katib suspend` names is run as printed.

Where a remedy promises an effect, the effect is looked at. That no message names a command which there is not is tested
in `tests/unit/cli/test_printed_commands.py`.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import KATIB, a_server, environment, katib, katib_here, katib_json
from tests.support.processes import Launch
from tests.support.scripts import GOOD, program, write
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

SLOW = "import time\ntime.sleep(600)\n"
WORKS_ONCE = "import os, sys\nif os.path.exists('ok'): sys.exit(3)\nopen('ok', 'w').close()\n" + GOOD
RUNS = ("run", "tune", "serve", "logs")
"""Commands that need a process of their own."""


def commands(text: str) -> list[str]:
    """Return the commands that a text names: in backticks, and behind "Next:"."""
    following = [command for line in re.findall("^Next: (.*)$", text, re.MULTILINE) for command in line.split(", ")]
    return list(dict.fromkeys([*re.findall("`(katib [^`]+)`", text), *following]))


def follow(line: str, directory: Path, launch: Launch) -> subprocess.CompletedProcess[str]:
    """Type a command as it is printed; the page is stopped when it is there, a log when it is shown."""
    words = shlex.split(line)
    assert words[0] == "katib"
    if words[1] == "ui":
        return follow_page(words, directory, launch)
    return (katib if words[1] in RUNS else katib_here)(*words[1:], cwd=directory)


def follow_page(words: list[str], directory: Path, launch: Launch) -> subprocess.CompletedProcess[str]:
    env = environment(BROWSER="true", XDG_STATE_HOME=str(directory / "state"))
    process = launch([*KATIB, *words[1:]], cwd=directory, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()  # a link is for a terminal only; other lines follow when the page is there
    process.send_signal(signal.SIGINT)
    code = process.wait(60)
    return subprocess.CompletedProcess(words, 0 if code == 130 else code, "", "")


def states(directory: Path, name: str = "demo") -> list[str]:
    trials = katib_json("trials", name, cwd=directory)["items"]
    return sorted(t["status"]["conditions"][-1]["type"] for t in trials)


@dataclass(frozen=True)
class Ending:
    """A way in which an experiment ends.

    Attributes:
        text: Of the program.
        code: Of the run.
        says: What it says among other things.
        names: The commands that the run and `katib why` name, without the names of trials.
        spec: Of the experiment.
        left: The states of the trials afterwards.
    """

    text: str
    says: str
    names: frozenset[str]
    left: tuple[str, ...]
    code: int = 1
    spec: dict[str, Any] = field(default_factory=dict)


LOOK = frozenset({"katib logs TRIAL", "katib why demo"})
AGAIN = frozenset({"katib run demo.yaml"})
SEEN = frozenset({"katib trials demo --sort objective", "katib why demo", "katib ui demo"})
ALL_GOOD = ("Succeeded",) * 4

ENDINGS = {
    "budget-used-up": Ending(
        GOOD, "all 4 trials of its budget are done", SEEN | {"katib run --more 4 demo.yaml"}, ("Succeeded",) * 8, code=0
    ),
    "goal-reached": Ending(
        GOOD,
        "reached the goal with",
        SEEN,
        ("Succeeded",),
        code=0,
        spec={"objective": {"type": "minimize", "objectiveMetricName": "loss", "goal": 1e9}},
    ),
    "failed-alike": Ending("raise ValueError('x')\n", "its first 3 trials failed alike", LOOK | AGAIN, ALL_GOOD),
    "no-metric": Ending("print('los 0.5')\n", "loss", LOOK | AGAIN, ALL_GOOD),
    "exit-code": Ending("raise SystemExit(3)\n", "exit code 3", LOOK | AGAIN, ALL_GOOD),
    "module-missing": Ending("import no_such_module\n", "No module named", LOOK | AGAIN, ALL_GOOD),
    "failures-used-up": Ending(
        WORKS_ONCE,
        "maxFailedTrialCount is 2",
        SEEN | {"katib logs TRIAL", "katib run --retry-failed demo.yaml"},
        ALL_GOOD,
        spec={"maxFailedTrialCount": 2},
    ),
    "no-trial-is-feasible": Ending(
        "import sys\nprint(f'loss={sys.argv[1]} memory=9')\n",
        "No trial satisfies memory <= 8",
        frozenset({"katib why demo", "katib run --more 4 demo.yaml"}),
        ("Succeeded",) * 8,
        code=0,
        spec={
            "objective": {
                "type": "minimize",
                "objectiveMetricName": "loss",
                "constraints": [{"metricName": "memory", "max": 8}],
            }
        },
    ),
}


@pytest.mark.parametrize(
    ("ending", "data"),
    [
        *(pytest.param(ending, "", id=name) for name, ending in ENDINGS.items()),
        pytest.param(ENDINGS["budget-used-up"], "the data", id="data-dir"),
        pytest.param(ENDINGS["failures-used-up"], "the data", id="data-dir-failures"),
    ],
)
def test_what_the_end_of_a_run_and_why_name_can_be_typed_and_helps(
    tmp_path: Path, launch: Launch, ending: Ending, data: str
) -> None:
    write(tmp_path, **ending.spec)
    program(tmp_path, ending.text)
    place = ["--data-dir", data] if data else []
    done = katib("run", "demo.yaml", *place, cwd=tmp_path)
    why = katib_here("why", "demo", *place, cwd=tmp_path)
    printed = list(dict.fromkeys([*commands(done.stdout), *commands(why.stdout)]))
    program(tmp_path, GOOD)
    followed = {line: follow(line, tmp_path, launch) for line in sorted(printed, key=lambda line: "katib run" in line)}

    assert done.returncode == ending.code, done.stdout + done.stderr
    assert ending.says in done.stdout + why.stdout
    assert {line: result.stderr for line, result in followed.items() if result.returncode} == {}
    option = f" {shlex.join(place)}" if place else ""
    unplaced = (re.sub(r"demo-\w{8}", "TRIAL", line.replace(option, "")) for line in printed)
    assert set(unplaced) == ending.names
    assert all(option in line for line in printed)
    if not data:
        assert tuple(states(tmp_path)) == ending.left


def test_the_refusal_of_more_trials_at_the_goal_names_what_helps(tmp_path: Path) -> None:
    objective = {"type": "minimize", "objectiveMetricName": "loss", "goal": 1e9}
    write(tmp_path, objective=objective)
    program(tmp_path, GOOD)
    katib("run", "demo.yaml", cwd=tmp_path)
    refused = katib("run", "demo.yaml", "--more", "2", cwd=tmp_path)
    write(tmp_path, objective={**objective, "goal": -1.0})
    done = katib("run", "demo.yaml", "--restart", cwd=tmp_path)

    assert "; change objective.goal and use --restart" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["Succeeded"] * 4


def test_the_command_that_an_interrupted_run_names_goes_on_and_so_does_that_of_why_and_watch(
    tmp_path: Path, launch: Launch
) -> None:
    write(tmp_path)
    program(tmp_path, SLOW)
    process = launch([*KATIB, "run", "demo.yaml"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    eventually(lambda: katib_here("get", "trials", cwd=tmp_path).stdout.count("Running"), "a trial runs")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    named = [
        commands(err),
        commands(katib_here("why", "demo", cwd=tmp_path).stdout),
        commands(katib("watch", "demo", cwd=tmp_path).stderr),
    ]
    program(tmp_path, GOOD)
    done = katib(*shlex.split(named[0][0])[1:], cwd=tmp_path)

    assert re.search(r"^note: demo-\w+ was cut off", done.stderr, re.MULTILINE)
    assert named == [["katib run demo.yaml"]] * 3
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["Succeeded"] * 4


def test_a_name_that_is_taken_by_another_search_is_free_with_the_option_that_is_named(
    tmp_path: Path, launch: Launch
) -> None:
    line = ["tune", "--name", "demo", "--minimize", "loss", "--trials", "2", "--parallel", "1"]
    words = ["--", sys.executable, "train.py", "{x}"]
    program(tmp_path, SLOW)
    process = launch([*KATIB, *line, "-p", "x=0.0..1.0", *words], cwd=tmp_path, env=environment())
    eventually(lambda: katib_here("get", "trials", cwd=tmp_path).stdout.count("Running"), "a trial runs")
    process.send_signal(signal.SIGINT)
    process.wait(60)
    program(tmp_path, GOOD)
    refused = katib(*line, "-p", "x=0.0..2.0", *words, cwd=tmp_path)
    done = katib(*line, "--restart", "-p", "x=0.0..2.0", *words, cwd=tmp_path)

    assert refused.returncode == 2
    assert "--restart" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert states(tmp_path) == ["Succeeded"] * 2
    assert states(tmp_path, "demo-1") == ["Killed"]


def test_what_pause_and_why_name_lets_it_go_on(tmp_path: Path) -> None:
    write(tmp_path)
    raw = yaml.safe_load((tmp_path / "demo.yaml").read_text())
    raw["metadata"]["namespace"] = "team"
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(raw))
    program(tmp_path, SLOW)
    place = ("--data-dir", "the data", "-n", "team")
    with a_server(tmp_path, "--data-dir", "the data"):
        katib("run", "demo.yaml", *place, "--detach", cwd=tmp_path)

        def running() -> list[str]:
            listed = katib_json("trials", "demo", *place, cwd=tmp_path)["items"]
            said = {t["metadata"]["name"]: t.get("status", {}).get("conditions", []) for t in listed}
            return [name for name, conditions in said.items() if conditions and conditions[-1]["type"] == "Running"]

        def is_suspended() -> bool:
            return "is suspended" in katib_here("why", trial, *place, cwd=tmp_path).stdout

        eventually(running, "a trial runs")
        (trial,) = running()
        suspended = katib_here("pause", trial, *place, cwd=tmp_path)
        eventually(is_suspended, "its job is suspended")
        (resume,) = commands(suspended.stdout)
        named = commands(katib_here("why", trial, *place, cwd=tmp_path).stdout)
        resumed = katib_here(*shlex.split(resume)[1:], cwd=tmp_path)
        eventually(lambda: not is_suspended(), "it continues")
        stopped = katib_here("stop", "demo", *place, cwd=tmp_path)
        eventually(lambda: "was stopped" in katib_here("why", "demo", *place, cwd=tmp_path).stdout, "it is stopped")
        (again,) = commands(katib_here("why", "demo", *place, cwd=tmp_path).stdout)
        going_on = katib_here(*shlex.split(again)[1:], cwd=tmp_path)

    assert [done.returncode for done in (suspended, resumed, stopped, going_on)] == [0, 0, 0, 0]
    assert sorted(shlex.split(resume)) == sorted(shlex.split(named[0]))
    assert stopped.stdout.startswith("experiment/demo: stopped")
    assert going_on.stdout == "experiment/demo: resumed\n"
