"""`katib init`: from a script to a file that `katib run` takes."""

from __future__ import annotations

import os
import pty
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.cli import KATIB, environment, katib, katib_here
from tests.support.golden import Golden
from tests.support.processes import Launch

TRAIN = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.01)
p.add_argument("--opt", choices=["adam", "sgd"], default="adam")
a = p.parse_args()
print(f"epoch=1 accuracy={1 - a.lr}")
"""


QUESTIONS = {
    "Command that trains once [python train.py]:": "",
    "Parameters [lr=": "lr=0.001..0.1",
    "Metric [accuracy]:": "",
    "Direction [maximize]:": "minimize",
    "Trials [20]:": "7",
}
"""What is asked, with what was found, and what is answered."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_without_a_terminal_all_is_found_in_the_script_and_the_file_runs(directory: Path, golden: Golden) -> None:
    made = katib_here("init", "--trials", "2", cwd=directory)
    spec = yaml.safe_load((directory / "experiment.yaml").read_text())["spec"]
    done = katib("run", "experiment.yaml", cwd=directory)

    assert made.returncode == 0
    golden(made.stdout)
    assert spec["objective"] == {"type": "maximize", "objectiveMetricName": "accuracy"}
    assert [parameter["name"] for parameter in spec["parameters"]] == ["lr", "opt"]
    assert done.returncode == 0, done.stderr


def test_flags_answer_the_questions(directory: Path) -> None:
    flags = ("--command", "python train.py", "-p", "lr=1..2:double", "--minimize", "loss", "--trials", "3", "--yes")
    made = katib_here("init", *flags, "--file", "mine.yaml", cwd=directory)
    spec = yaml.safe_load((directory / "mine.yaml").read_text())["spec"]

    assert made.returncode == 0, made.stderr
    assert (spec["objective"]["type"], spec["maxTrialCount"], len(spec["parameters"])) == ("minimize", 3, 1)


@pytest.mark.parametrize("words", [("--", "python", "train.py"), ("python train.py",), ("train.py",)], ids=str)
def test_the_command_may_stand_behind_the_options_as_in_tune(directory: Path, words: tuple[str, ...]) -> None:
    made = katib_here("init", "--trials", "3", *words, cwd=directory)
    spec = yaml.safe_load((directory / "experiment.yaml").read_text())["spec"]
    (container,) = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]

    assert made.returncode == 0, made.stderr
    assert container["command"][:2] == ["python", "train.py"]


def test_values_of_a_configuration_file_are_found_and_searched(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("optimizer: {lr: 0.01, name: adam}\nseed: 1\nlayers: 2\n")
    (tmp_path / "train.py").write_text(
        "import sys\ntext = open(sys.argv[1].split('=')[1]).read()\nprint(f'loss={len(text)}')\n"
    )
    made = katib("init", "--yes", "--trials", "2", "--", "python", "train.py", "--config=train.yaml", cwd=tmp_path)
    named = ("-p", "layers=1..2", "--minimize", "loss", "--file", "named.yaml", "--", "cat", "{config:train.yaml}")
    katib("init", "--yes", *named, cwd=tmp_path)
    spec = yaml.safe_load((tmp_path / "experiment.yaml").read_text())["spec"]
    pod = spec["trialTemplate"]["trialSpec"]["spec"]["template"]
    (text,) = pod["metadata"]["annotations"].values()
    done = katib("run", "experiment.yaml", cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    assert [parameter["name"] for parameter in spec["parameters"]] == ["layers", "optimizer.lr"]
    assert pod["spec"]["containers"][0]["command"] == ["python", "train.py", "--config=/etc/katib/train.yaml"]
    assert text.startswith("optimizer: {lr: !!float ${trialParameters.optimizer.lr}, name: adam}\nseed: 1\n")
    assert (
        "command:\n              - cat\n              - /etc/katib/train.yaml\n"
        in (tmp_path / "named.yaml").read_text()
    )
    assert done.returncode == 0, done.stderr


def test_an_option_that_is_none_is_not_taken_for_a_command(directory: Path, golden: Golden) -> None:
    made = katib_here("init", "--n-trials", "3", "--", "python", "train.py", cwd=directory)

    assert made.returncode == 2
    golden(made.stderr)


def test_a_file_that_is_there_stays(directory: Path, golden: Golden) -> None:
    (directory / "experiment.yaml").write_text("mine")
    made = katib_here("init", "--yes", cwd=directory)

    assert made.returncode == 2
    golden(made.stderr)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("echo loss=$1", ["./train.sh", "${trialParameters.lr}"]),
        ("echo loss=$LR", ["env", "LR=${trialParameters.lr}", "./train.sh"]),
    ],
    ids=["argument", "variable"],
)
def test_a_shell_script_is_run_once_and_later_with_the_value_where_it_reads_it(
    tmp_path: Path, text: str, command: list[str]
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    made = katib_here("init", "-p", "lr=0.5..1", "./train.sh", cwd=tmp_path)
    spec = yaml.safe_load((tmp_path / "experiment.yaml").read_text())["spec"]
    (container,) = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]

    assert made.returncode == 0, made.stderr
    assert (spec["objective"]["objectiveMetricName"], container["command"]) == ("loss", command)


def test_a_line_for_the_shell_is_taken_as_it_is_and_an_option_that_is_a_guess_is_said(
    tmp_path: Path, golden: Golden
) -> None:
    flags = ("init", "-p", "lr=0.5..1", "--force")
    line = katib_here(*flags, "echo loss={lr} | tail -1", cwd=tmp_path)
    spec = yaml.safe_load((tmp_path / "experiment.yaml").read_text())["spec"]
    (container,) = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]
    guess = katib_here(*flags, "--minimize", "loss", "--", "true", "x", cwd=tmp_path)
    unclosed = katib_here(*flags, "echo 'x", cwd=tmp_path)

    assert line.returncode == 0, line.stderr
    assert container["command"] == ["sh", "-c", "echo loss=${trialParameters.lr} | tail -1"]
    golden(guess.stderr)
    golden(unclosed.stderr)


def test_at_a_terminal_each_question_shows_what_was_found_and_an_answer_replaces_it(
    directory: Path, launch: Launch
) -> None:
    controller, terminal = pty.openpty()
    process = launch(
        [*KATIB, "init"],
        cwd=directory,
        env=environment(),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        close_fds=True,
    )
    os.close(terminal)
    shown, answers = "", dict(QUESTIONS)
    with suppress(OSError):  # the other side of the terminal was closed
        while chunk := os.read(controller, 65536):
            shown += chunk.decode()
            if (asked := next((question for question in answers if question in shown), None)) is not None:
                os.write(controller, f"{answers.pop(asked)}\n".encode())
    os.close(controller)
    spec = yaml.safe_load((directory / "experiment.yaml").read_text())["spec"]

    assert process.wait(60) == 0
    assert answers == {}
    assert ": python train.py" in shown
    assert "`katib run experiment.yaml`" in shown
    assert spec["objective"] == {"type": "minimize", "objectiveMetricName": "accuracy"}
    assert [parameter["name"] for parameter in spec["parameters"]] == ["lr"]
    assert spec["maxTrialCount"] == 7


def test_what_is_not_found_names_its_option(tmp_path: Path, golden: Golden) -> None:
    made = katib_here("init", cwd=tmp_path)

    assert made.returncode == 2
    golden(made.stderr)


FLAGS = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.01)
p.add_argument("--amp", action="store_true")
p.add_argument("--quiet", action="store_true")
p.add_argument("--bias", action=argparse.BooleanOptionalAction, default=True)
a = p.parse_args()
print(f"learning_rate={a.lr} lr={a.lr} loss={a.lr + a.amp + 2 * a.bias}")
"""

BOXED = '''
import sys
HELP = """
 Usage: train [OPTIONS]

╭─ Options ──────────────────────────────────────────────────────────────────╮
│ *  --name                   TEXT        Of the run. [required]             │
│    --lr                     FLOAT       Learning rate [default: 1]         │
│    --optimizer  -o          [adam|sgd]  [default: adam]                    │
│    --layers                 INTEGER     Hidden layers                      │
│                                         [default: 4]                       │
│    --amp        --no-amp                Mixed precision [default: no-amp]  │
│    --nesterov                           Nesterov momentum                  │
│    --install-completion                 Install completion                 │
│    --help                               Show this message and exit.        │
╰────────────────────────────────────────────────────────────────────────────╯
"""
print(HELP if "--help" in sys.argv else f"loss={len(sys.argv)}")
'''


def test_flags_of_a_script_are_offered_and_are_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FLAGS)
    made = katib_here("init", "--trials", "6", cwd=tmp_path)
    experiment = yaml.safe_load((tmp_path / "experiment.yaml").read_text())
    spaces = {one["name"]: one["feasibleSpace"].get("list") for one in experiment["spec"]["parameters"]}

    assert made.returncode == 0, made.stderr
    assert spaces == {"lr": None, "amp": ["--amp", ""], "bias": ["--bias", "--no-bias"]}
    assert experiment["spec"]["objective"]["objectiveMetricName"] == "loss"

    done = katib("run", "experiment.yaml", cwd=tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [("--amp",), ("{amp}",)], ids=["the option is there", "a placeholder"])
def test_a_flag_of_tune_is_there_or_not(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "train.sh").write_text('echo "loss=$#"\n')
    parameters = ("-p", "lr=1,2", "-p", "amp=flag", "--trials", "4", "--algorithm", "grid", "--minimize", "loss")
    done = katib("tune", *parameters, "--", "sh", "train.sh", "{lr}", *words, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    results = {line.split("(")[0].split()[-1] for line in done.stdout.splitlines() if line.startswith("Best trial")}
    assert results == {"loss=1"}


def test_options_of_help_in_a_box_are_found(tmp_path: Path) -> None:
    (tmp_path / "train").write_text(f"#!/usr/bin/env python3{BOXED}")
    (tmp_path / "train").chmod(0o755)
    made = katib_here("init", "--command", "./train", "--yes", cwd=tmp_path)
    parameters = yaml.safe_load((tmp_path / "experiment.yaml").read_text())["spec"]["parameters"]
    spaces = {one["name"]: one["feasibleSpace"].get("list") or one["feasibleSpace"]["max"] for one in parameters}

    assert made.returncode == 0, made.stderr
    assert spaces == {
        "lr": "4",
        "optimizer": ["adam", "sgd"],
        "layers": "16",
        "amp": ["--amp", "--no-amp"],
        "nesterov": ["--nesterov", ""],
    }


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param("import sys\nsys.exit('no data')", "it failed with exit code 1: no data", id="a crash"),
        pytest.param("raise ValueError('bad')", "it failed with exit code 1: ValueError: bad", id="an exception"),
        pytest.param("print('learning_rate=0.1')", "it printed no line such as name=0.5", id="no metric"),
    ],
)
def test_a_program_without_a_metric_in_the_probe_is_said(tmp_path: Path, script: str, said: str) -> None:
    (tmp_path / "train.py").write_text(script)
    made = katib_here("init", "-p", "lr=1,2", "--", "python", "train.py", cwd=tmp_path)

    assert made.returncode == 2
    assert f"note: {said}\n" in made.stderr
    assert "error: metric: " in made.stderr


def test_a_metric_that_a_program_logs_is_found(tmp_path: Path) -> None:
    """Logging writes to standard error."""
    script = "import logging\nlogging.basicConfig(level=logging.INFO)\nlogging.info('epoch 1 - val_loss: 0.5')\n"
    (tmp_path / "train.py").write_text(script)
    made = katib_here("init", "-p", "lr=1,2", "--yes", "--", "python", "train.py", "{lr}", cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    experiment = yaml.safe_load((tmp_path / "experiment.yaml").read_text())
    assert experiment["spec"]["objective"]["objectiveMetricName"] == "val_loss"
