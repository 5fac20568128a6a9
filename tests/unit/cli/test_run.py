from __future__ import annotations

import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from katib.doors.cli.run.ending import ended_lines
from tests.support.golden import Golden
from tests.support.processes import Launch
from tests.support.tuning import MemoryTuningService, condition, document, make_experiment, make_trial
from tests.support.warm import FAKE_ENGINE
from tests.unit.cli.conftest import Katib

PROGRAM = FAKE_ENGINE
ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 60


def test_a_run_that_found_no_metric_ends_with_what_to_do(golden: Golden) -> None:
    experiment = make_experiment("demo", condition("Failed", message="no trial has loss"))
    message = 'Metrics are not available: 1 line, none matched "loss"; remedy: name "val_loss"'
    lost = make_trial("demo-0", condition("MetricsUnavailable", message=message))
    lines = list(ended_lines(experiment, None, [lost], seconds=1, place="", last_line="val_loss: 0.2"))

    golden(lines[-3:])


def test_a_piped_run_prints_a_line_for_each_moment_and_a_summary_and_stops_the_engine(
    katib: Katib, file: Path, engine: ModuleType, golden: Golden
) -> None:
    result = katib("run", "demo.yaml")
    lines = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in result.out.splitlines()]

    assert result.code == 0
    golden(lines[0])
    golden(lines[-3])
    golden(lines[-2])
    golden(lines[-1])
    assert [e.stopped for e in engine.engines] == [True]


def test_earlier_trials_of_a_table_go_with_the_experiment(
    katib: Katib, file: Path, tmp_path: Path, service: MemoryTuningService
) -> None:
    file.write_text(document("demo").replace('"random"', '"house-special"'))
    (tmp_path / "earlier.csv").write_text("x,loss\n0.5,0.7\n")

    assert katib("run", str(file), "--warm-start", "earlier.csv").code == 0
    (experiment,) = service.experiments()
    assert experiment.encode()["spec"]["warmStart"]["trials"] == [
        {"parameterAssignments": [{"name": "x", "value": "0.5"}], "metrics": [{"name": "loss", "value": "0.7"}]}
    ]


def test_experiments_to_learn_from_are_added_to_those_of_the_file(
    katib: Katib, file: Path, service: MemoryTuningService
) -> None:
    for name in ("first", "second"):
        file.write_text(document(name))
        assert katib("run", str(file)).code == 0
    raw = json.loads(document("demo").replace('"random"', '"house-special"'))
    raw["spec"]["warmStart"] = {"experiments": ["first"]}
    file.write_text(json.dumps(raw))

    assert katib("run", str(file), "--learn-from", "second", "--learn-from", "first").code == 0
    demo = next(found.encode()["spec"] for found in service.experiments() if found.name == "demo")
    assert demo["warmStart"] == {"experiments": ["first", "second"]}


def test_auto_learns_from_nothing_where_that_is_wanted(katib: Katib, file: Path, service: MemoryTuningService) -> None:
    assert katib("run", str(file), "--learn-from", "none").code == 0
    (demo,) = service.experiments()
    assert demo.metadata.annotations["katib.kubeflow.org/learns-from"] == "none"


def test_a_table_that_cannot_be_used_is_refused_before_anything_runs(
    katib: Katib, file: Path, tmp_path: Path, service: MemoryTuningService, golden: Golden
) -> None:
    (tmp_path / "earlier.csv").write_text("y,loss\n0.5,0.7\n")

    result = katib("run", str(file), "--warm-start", "earlier.csv")

    assert (result.code, list(service.experiments())) == (2, [])
    golden(result.err)


def test_a_finished_experiment_is_told_again_with_how_to_run_more(
    katib: Katib, file: Path, service: MemoryTuningService, golden: Golden
) -> None:
    first = katib("run", "demo.yaml")
    trials = service.trials("default", "demo").total
    second = katib("run", "demo.yaml")

    assert second.code == 0
    assert "demo succeeded" in second.out
    assert service.trials("default", "demo").total == trials
    assert "nothing was run" not in first.out
    golden(second.out.splitlines()[-1])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], "error: no experiment file was named; try `katib run demo.yaml`", id="no file"),
        pytest.param(["."], "error: .: is a directory; try `katib run demo.yaml`", id="a directory"),
        pytest.param(
            ["dmo.yaml"],
            "error: dmo.yaml: no such file or directory; try `katib run demo.yaml`",
            id="a misspelled file",
        ),
    ],
)
def test_a_run_without_a_file_names_the_one_that_is_there(
    katib: Katib, tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "other.yaml").write_text("kind: ConfigMap")
    (tmp_path / "demo.yaml").write_text("apiVersion: kubeflow.org/v1beta1\nkind: Experiment\n")
    result = katib("run", *arguments)

    assert (result.code, result.err) == (2, f"{expected}\n")


@pytest.mark.parametrize("folder", ["..", "sub"])
def test_a_file_in_a_folder_nearby_is_named(
    katib: Katib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, golden: Golden
) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / folder / "demo.yaml").write_text("apiVersion: kubeflow.org/v1beta1\nkind: Experiment\n")
    monkeypatch.chdir(here)

    golden(katib("run", "demo.yaml").err)


def test_without_a_file_the_command_tells_its_form(katib: Katib, golden: Golden) -> None:
    result = katib("run")

    assert result.code == 2
    golden(result.err)

    result = katib()

    assert (result.code, result.err) == (0, "")
    assert "katib run experiment.yaml" in result.out


@pytest.mark.parametrize("quiet", [False, True])
def test_a_failed_experiment_is_exit_code_one_and_says_why(katib: Katib, tmp_path: Path, quiet: bool) -> None:
    (tmp_path / "bad.yaml").write_text(document("bad"))
    result = katib("run", "bad.yaml", *(["-q"] if quiet else []))

    assert result.code == 1
    printed = result.err if quiet else result.out
    assert "maxFailedTrialCount is 1" in printed
    assert not (quiet and result.out)


def test_a_broken_file_starts_nothing_and_leaves_no_data_directory_behind(
    katib: Katib, tmp_path: Path, engine: ModuleType
) -> None:
    (tmp_path / "broken.yaml").write_text("a: b: c")
    for place in ((), ("--data-dir", "new")):
        result = katib("run", "broken.yaml", *place)

        assert result.code == 2
        assert result.err.startswith("error: broken.yaml")
    assert not any(e.started for e in engine.engines)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)], ids=["json", "yaml"])
def test_with_an_output_form_stdout_holds_the_experiment_only(
    katib: Katib, file: Path, form: str, read: Callable[[str], Any]
) -> None:
    result = katib("run", "demo.yaml", "-o", form)

    assert read(result.out)["status"]["conditions"][-1]["type"] == "Succeeded"
    assert "demo: minimize loss" in result.err


def test_quiet_prints_nothing_but_sets_the_exit_code(katib: Katib, file: Path) -> None:
    assert katib("run", "demo.yaml", "-q") == (0, "", "")


def test_later_commands_are_told_with_the_data_directory_of_the_run(katib: Katib, file: Path) -> None:
    result = katib("run", "demo.yaml", "--data-dir", "elsewhere", "-n", "team")

    assert "katib why demo -n team --data-dir elsewhere" in result.out


def test_log_records_keep_what_they_carry(katib: Katib, file: Path) -> None:
    katib("run", "demo.yaml")
    carried = {"name": "katib.x", "levelname": "WARNING", "msg": "Job is restarted", "job": "default/t"}
    line = logging.getLogger().handlers[0].format(logging.makeLogRecord(carried))

    assert line.endswith("WARNING katib.x: Job is restarted job=default/t")


def test_a_terminal_gets_a_table_that_ends_with_the_summary(file: Path, launch: Launch) -> None:
    text, code = _run_on_a_terminal(launch, ["run", str(file)], cwd=file.parent, until="demo-0000")

    assert code == 0
    assert "\x1b[" in text
    for part in ("running", "parameters", "demo-0000", "best so far", "3/3 trials", "demo succeeded"):
        assert part in text


def test_a_dumb_terminal_gets_the_lines_of_a_pipe(file: Path, launch: Launch) -> None:
    text, code = _run_on_a_terminal(launch, ["run", str(file)], cwd=file.parent, until="demo-0000", TERM="dumb")

    assert code == 0
    assert "demo-0000 succeeded" in text
    assert "\x1b[" not in text


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(file: Path, launch: Launch, golden: Golden) -> None:
    process = _start(launch, file)
    _read_until(process, "demo-0000 started")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)

    assert process.returncode == 130
    golden(err)


def test_a_second_ctrl_c_does_not_wait_for_anything(
    file: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_STOP", "600")
    process = _start(launch, file)
    _read_until(process, "demo-0000 started")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "stopping;" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)

    assert process.wait(DEADLINE_SECONDS) == 130


def test_the_entry_point_turns_results_into_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("[")
    done = subprocess.run(
        [*PROGRAM, "validate", "broken.yaml"], cwd=tmp_path, env=_environment(), capture_output=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith(b"broken.yaml")


def _environment(pause: float = 0) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_PAUSE": str(pause), "TERM": "xterm", "COLUMNS": "120"}


def _start(launch: Launch, file: Path) -> subprocess.Popen[str]:
    return launch(
        [*PROGRAM, "run", str(file)],
        cwd=file.parent,
        env=_environment(pause=600),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the program ended without saying {words!r}")


def _run_on_a_terminal(launch: Launch, args: list[str], *, cwd: Path, until: str, **env: str) -> tuple[str, int]:
    """Return what is shown there, and the exit code; no trial ends before these words are shown."""
    controller, terminal = pty.openpty()
    gate, shown = cwd / "gate", b""
    variables = {**_environment(), "FAKE_GATE": str(gate), **env}
    try:
        process = launch([*PROGRAM, *args], cwd=cwd, env=variables, stdout=terminal, stderr=terminal, close_fds=True)
        os.close(terminal)
        for chunk in _chunks(controller):
            shown += chunk
            if until.encode() in shown:
                gate.touch()
        return shown.decode(), process.wait(DEADLINE_SECONDS)
    finally:
        os.close(controller)


def _chunks(descriptor: int) -> Iterator[bytes]:
    end = time.monotonic() + DEADLINE_SECONDS
    while select.select([descriptor], [], [], max(0, end - time.monotonic()))[0]:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # the other side of a terminal was closed
            return
        if not chunk:
            return
        yield chunk
