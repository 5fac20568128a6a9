"""Edit, run, edit, run: what becomes of an experiment that is there already when its command comes again."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import KATIB, a_server, environment, katib, katib_here, katib_json
from tests.support.golden import Golden
from tests.support.processes import Launch
from tests.support.scripts import GOOD, experiments, program, run, trials, write

FAILS_ONCE = "import os, sys\nif not os.path.exists('ok') and not os.mkdir('ok'): sys.exit(1)\n" + GOOD
FAILING = "import sys\nprint('reads its data')\nraise ValueError('no such column')\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path)
    (tmp_path / "train.py").write_text(GOOD)
    return tmp_path


@pytest.fixture(params=["alone", "beside a server"])
def place(directory: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The directory, also with a server that works on it."""
    with nullcontext() if request.param == "alone" else a_server(directory):
        yield directory


def test_rounds_of_edit_and_run_with_a_failing_script_need_the_same_command_only(place: Path) -> None:
    texts = (FAILING, FAILING.replace("ValueError", "KeyError"), "import json\n" + FAILING, GOOD)
    codes, notes = [], []
    for text in texts:
        (place / "train.py").write_text(text)
        done = run(place)
        codes.append(done.returncode)
        notes.append(done.stderr)

    assert codes == [1, 1, 1, 0]
    assert "changed since" not in notes[0]
    assert all("train.py changed since" in note for note in notes[1:])
    assert experiments(place) == {"demo": ("Succeeded", 4)}


def test_when_what_the_program_reads_was_missing_the_same_command_runs_it_again(place: Path) -> None:
    (place / "train.py").write_text("open('data.csv')\n" + GOOD)
    first = run(place)
    named = katib_here("why", "demo", cwd=place).stdout
    (place / "data.csv").touch()
    second = run(place)

    assert (first.returncode, second.returncode) == (1, 0)
    assert "`katib run demo.yaml`" in named
    assert "3 trials run again" in second.stderr
    assert experiments(place) == {"demo": ("Succeeded", 4)}


def test_an_experiment_goes_on_where_its_directory_was_moved_to(directory: Path) -> None:
    (directory / "project").mkdir()
    write(directory / "project", maxTrialCount=2)
    (directory / "project" / "train.py").write_text(GOOD)
    first = run(directory / "project")
    place = (directory / "project").rename(directory / "moved")
    shown = run(place)
    write(place, maxTrialCount=4)
    done = run(place)

    assert (first.returncode, shown.returncode, done.returncode) == (0, 0, 0), shown.stderr + done.stderr
    assert "changed since" not in shown.stderr
    assert {state for state, _ in trials(place).values()} == {"Succeeded"}
    assert experiments(place) == {"demo": ("Succeeded", 4)}


def test_a_smaller_budget_starts_what_failed_again_and_disturbs_nothing_that_ended(directory: Path) -> None:
    (directory / "train.py").write_text(FAILING)
    run(directory)
    write(directory, maxTrialCount=3)
    failed = run(directory)
    states = experiments(directory)
    (directory / "train.py").write_text(GOOD)
    run(directory)
    write(directory, maxTrialCount=2)
    ended, retried = run(directory), run(directory, "--retry-failed")

    assert "demo-1" in failed.stderr
    assert {name: state for name, (state, _) in states.items()} == {"demo-1": "Failed", "demo": "Failed"}
    assert (ended.returncode, retried.returncode) == (3, 2)
    assert "--restart" in ended.stderr
    assert "--restart" in retried.stderr
    assert experiments(directory)["demo"][0] == "Succeeded"


def test_an_edit_of_a_module_that_the_script_imports_counts(directory: Path) -> None:
    (directory / "train.py").write_text("import sys\nimport model\nprint(f'loss={model.loss(float(sys.argv[1]))}')\n")
    (directory / "model.py").write_text("def loss(lr): raise ValueError\n")
    first = run(directory)
    (directory / "model.py").write_text("def loss(lr): return lr\n")
    second = run(directory)

    assert (first.returncode, second.returncode) == (1, 0)
    assert "model.py changed since" in second.stderr


def test_all_failed_experiment_of_another_search_starts_again_and_the_old_one_is_kept(directory: Path) -> None:
    (directory / "train.py").write_text(FAILING)
    run(directory)
    write(directory, algorithm={"algorithmName": "tpe"})
    done = run(directory)

    assert "spec.algorithm.algorithmName" in done.stderr
    assert "demo-1" in done.stderr
    assert experiments(directory) == {"demo-1": ("Failed", 3), "demo": ("Failed", 3)}


@pytest.mark.parametrize(("option", "left"), [("--restart", {"demo-1": 4, "demo": 4}), ("--more=2", {"demo": 6})])
def test_an_ended_experiment_starts_again_or_goes_on(place: Path, option: str, left: dict[str, int]) -> None:
    run(place)
    old = trials(place)
    done = run(place, option)
    kept = trials(place, "demo-1") if "demo-1" in left else trials(place)

    assert done.returncode == 0, done.stderr
    assert {name: count for name, (_, count) in experiments(place).items()} == left
    assert old.items() <= kept.items()
    assert all(katib_json("metrics", trial, cwd=place) for trial in old)


def test_failed_trials_run_again_with_their_values_and_the_others_stay(place: Path) -> None:
    (place / "train.py").write_text(FAILS_ONCE)
    first = run(place)
    before = trials(place)
    why = katib_here("why", "demo", cwd=place).stdout
    done = run(place, "--retry-failed")
    after = trials(place)

    assert "1 of 4 trials failed" in first.stdout
    assert "`katib run --retry-failed demo.yaml`" in why
    assert (first.returncode, done.returncode) == (0, 0)
    assert sorted(state for state, _ in before.values()) == ["Failed", "Succeeded", "Succeeded", "Succeeded"]
    assert {name: value for name, (_, value) in after.items()} == {name: value for name, (_, value) in before.items()}
    assert {state for state, _ in after.values()} == {"Succeeded"}


def test_the_kept_experiment_is_whole(directory: Path) -> None:
    run(directory)
    trial = next(iter(trials(directory)))
    run(directory, "--restart")

    assert katib_here("why", "demo-1", cwd=directory).stdout.startswith("demo-1 succeeded")
    assert katib("logs", trial, cwd=directory).stdout.startswith("loss=")
    assert katib_json("metrics", trial, cwd=directory)
    assert trial not in trials(directory)
    run(directory, "--restart")
    assert set(experiments(directory)) == {"demo", "demo-1", "demo-2"}


def test_a_raised_budget_is_kept_when_the_file_comes_again(directory: Path) -> None:
    run(directory)
    run(directory, "--more", "2")

    assert run(directory).returncode == 0
    assert experiments(directory) == {"demo": ("Succeeded", 6)}


def test_a_larger_budget_in_the_file_goes_on_whatever_the_resume_policy(directory: Path) -> None:
    run(directory)
    raw = yaml.safe_load((directory / "demo.yaml").read_text())
    raw["spec"]["maxTrialCount"] = 6
    (directory / "demo.yaml").write_text(yaml.safe_dump(raw))
    done = run(directory)

    assert raw["spec"].get("resumePolicy", "Never") == "Never"
    assert "2 trials larger" in done.stderr
    assert experiments(directory) == {"demo": ("Succeeded", 6)}


@pytest.mark.slow
def test_a_budget_of_time_stops_what_runs_and_the_remedy_goes_on_as_printed(directory: Path) -> None:
    write(directory, maxTrialCount=6, parallelTrialCount=2)
    program(directory, "import time\ntime.sleep(60)\n" + GOOD)
    spent = run(directory, "--budget", "2s")
    first = trials(directory)
    why = katib_here("why", "demo", cwd=directory).stdout
    refused = run(directory, "--more", "1").stderr
    program(directory, GOOD)
    done = katib(*shlex.split(why.partition("`katib ")[2].partition("`")[0]), cwd=directory)

    assert (spent.returncode, done.returncode) == (1, 0)
    assert why.startswith("demo failed: its budget of 2s")
    assert [state for state, _ in first.values()] == ["Killed", "Killed"]
    assert "larger --budget" in refused
    assert "4s" in done.stderr
    assert "s of 4s" in katib_here("get", "-o", "wide", cwd=directory).stdout
    assert experiments(directory) == {"demo": ("Succeeded", 6)}


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--retry-failed", "experiment demo: none of its trials failed; use --more N or --restart"),
        ("--more=1", "experiment demo: it reached its goal; change objective.goal and use --restart"),
    ],
)
def test_what_would_end_at_once_is_refused(directory: Path, option: str, error: str) -> None:
    write(directory, objective={"type": "minimize", "objectiveMetricName": "loss", "goal": 1e9})
    run(directory)
    done = run(directory, option)

    assert done.returncode == 2
    assert error in done.stderr


def test_off_a_terminal_a_change_is_a_code_of_its_own_and_names_the_options(place: Path, golden: Golden) -> None:
    run(place, "-q")
    (place / "train.py").write_text(GOOD + "# edited\n")
    edited = run(place)
    (place / "train.py").write_text(GOOD)
    for file in ("demo.yaml", "other.yaml"):
        write(place, file=file, algorithm={"algorithmName": "tpe"})
    changes = {file: katib("run", file, cwd=place) for file in ("demo.yaml", "other.yaml")}

    assert (edited.returncode, edited.stdout) == (3, "")
    golden(edited.stderr)
    for file, done in changes.items():
        assert done.returncode == 3
        assert f"spec.algorithm.algorithmName in {file}" in done.stderr


def test_contradicting_options_are_refused(directory: Path, golden: Golden) -> None:
    done = katib_here("run", "demo.yaml", "--restart", "--more", "3", cwd=directory)

    assert done.returncode == 2
    golden(done.stderr)


def test_an_option_without_an_experiment_is_refused(directory: Path, golden: Golden) -> None:
    done = run(directory, "--retry-failed")

    assert done.returncode == 2
    golden(done.stderr)


def test_the_last_lines_of_a_failed_run_and_why_name_the_trial_its_last_line_and_a_command(
    directory: Path, golden: Golden
) -> None:
    (directory / "train.py").write_text(FAILING)
    done = run(directory)
    why = katib_here("why", "demo", cwd=directory).stdout
    trial = next(name for name, (state, _) in trials(directory).items() if state == "Failed")

    assert done.returncode == 1
    last = done.stdout.splitlines()[-3:]
    assert ": ValueError: no such column" in last[0]
    golden(line.replace(trial, "TRIAL") for line in last[1:3])
    assert ": ValueError: no such column" in why
    assert "`katib run demo.yaml`" in why
    assert "`katib logs demo-" in why


def test_a_metric_that_is_never_printed_is_said_with_the_last_line_of_the_output(
    directory: Path, golden: Golden
) -> None:
    (directory / "train.py").write_text("print('epoch 1 los 0.5')\n")
    done = run(directory)

    assert done.returncode == 1
    *_, where, remedy, _ = done.stdout.splitlines()
    assert ": epoch 1 los 0.5" in where
    golden(remedy)


@pytest.mark.parametrize(
    ("printed", "given", "changes"),
    [
        ("epoch 1 loss is 0.5", {}, "filter"),
        ("train loss: 0.1, val loss: 0.5", {}, "name"),
        ("loss=5e-1", {"metricsFormat": [r"([\w|-]+)\s*=\s*((-?\d+)(\.\d+)?)"]}, "no filter"),
    ],
)
def test_the_remedy_of_a_run_without_a_value_makes_the_next_one_read_it(
    directory: Path, printed: str, given: dict[str, Any], changes: str
) -> None:
    (directory / "train.py").write_text(f"print({printed!r})\n")
    if given:
        write(directory, metricsCollectorSpec={"collector": {"kind": "StdOut"}, "source": {"filter": given}})
    remedy = run(directory).stdout.splitlines()[-2]
    source, objective = {"filter": given}, "loss"
    if changes == "filter":
        source = {"filter": {"metricsFormat": [remedy.split("'")[1]]}}
    elif changes == "name":
        assert '"train loss" or "val loss"' in remedy
        source, objective = {}, "val loss"
    else:
        assert remedy.startswith("Remove metricsFormat ")
        source = {}
    write(
        directory,
        metricsCollectorSpec={"collector": {"kind": "StdOut"}, "source": source},
        objective={"type": "minimize", "objectiveMetricName": objective},
    )
    done = run(directory, "--restart")

    assert done.returncode == 0
    assert f"{objective}=0.5" in done.stdout or f"{objective}=5e-1" in done.stdout


def test_json_of_a_run_that_failed_stays_json(directory: Path) -> None:
    (directory / "train.py").write_text(FAILING)

    assert json.loads(run(directory, "-o", "json").stdout)["status"]["conditions"][-1]["type"] == "Failed"


def test_at_a_terminal_it_asks_and_an_answer_runs_it(directory: Path, launch: Launch) -> None:
    run(directory)
    (directory / "train.py").write_text(GOOD + "# edited\n")
    controller, terminal = pty.openpty()
    process = launch(
        [*KATIB, "run", "demo.yaml"],
        cwd=directory,
        env=environment(),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        close_fds=True,
    )
    os.close(terminal)
    shown, answered = b"", False
    with suppress(OSError):  # the other side of the terminal was closed
        while chunk := os.read(controller, 65536):
            shown += chunk
            if not answered and b"What now?" in shown:
                os.write(controller, b"r\n")
                answered = True
    os.close(controller)

    assert process.wait(60) == 0
    assert b"demo has ended, and train.py changed since." in shown
    assert experiments(directory) == {"demo-1": ("Succeeded", 4), "demo": ("Succeeded", 4)}


def timeless(shown: str) -> list[str]:
    """Return the words of an output without the ages of trials, and without when a command showed what happened."""
    return re.sub(r"\d\d:\d\d:\d\d|(\d+[hms])+\b", "", shown).split()


def test_commands_that_read_mean_the_newest_experiment_without_a_name(directory: Path) -> None:
    run(directory)
    (directory / "train.py").write_text(GOOD + "# edited\n")
    run(directory, "--restart")
    for command in ("best", "trials", "why", "describe", "watch"):
        named = katib_here(command, "demo", cwd=directory)
        newest = katib_here(command, cwd=directory)

        assert timeless(newest.stdout) == timeless(named.stdout), command
        assert newest.stderr.startswith("demo, the newest of 2")
        assert newest.stderr.endswith(":\n" + named.stderr)


def test_commands_that_read_say_that_there_is_no_experiment(directory: Path, golden: Golden) -> None:
    run(directory)
    katib_here("delete", "demo", cwd=directory)

    golden(katib_here("best", cwd=directory).stderr)


def test_commands_mean_the_namespace_that_all_experiments_are_in(directory: Path) -> None:
    file, text = directory / "demo.yaml", (directory / "demo.yaml").read_text()
    file.write_text(text.replace("namespace: default", "namespace: kubeflow"))
    run(directory)
    for command in (
        ("get",),
        ("get", "experiment", "demo"),
        ("best", "demo"),
        ("trials",),
        ("why",),
        ("watch", "demo"),
    ):
        named = katib_here(*command, "-n", "kubeflow", cwd=directory)
        meant = katib_here(*command, cwd=directory)

        assert "demo" in meant.stdout, meant.stderr
        assert timeless(meant.stdout) == timeless(named.stdout)

    file.write_text(text)
    run(directory)  # in the default one, which is meant from now on
    assert "kubeflow" not in katib_here("describe", "demo", cwd=directory).stdout
    assert katib_here("delete", "demo", cwd=directory).stdout == "experiment/demo deleted\n"
    assert "kubeflow" in katib_here("describe", "demo", cwd=directory).stdout
    assert katib_here("delete", "demo", cwd=directory).stdout == "experiment/demo deleted\n"
    assert katib_here("get", "-A", cwd=directory).stdout == ""
