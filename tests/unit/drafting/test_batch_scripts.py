"""What `sbatch` submits, as a command and the options of a trial's job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from katib.errors import InvalidError
from katib.service.drafting.batch_scripts import Batch, batch_notes, batch_of
from katib.service.drafting.experiments import Metrics, command_template, parse_parameter
from tests.support.golden import Golden
from tests.support.refusals import refused

SCRIPT = """#!/bin/bash -l
#SBATCH --array=0-5%2 -p gpu
# any comment
#SBATCH -t 00:05:00 --exclusive   # five minutes

#SBATCH -o 'logs/%A %a.out' -QW -N1
srun python train.py --lr "$1"
#SBATCH --mem=1G
"""
BASH = ("/bin/bash", "-l")
FOUND = {"partition": "gpu", "time": "00:05:00", "exclusive": "", "nodes": "1"}
OURS = ("array", "output", "quiet", "wait")


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.sh").write_text("echo loss=1\n")
    (tmp_path / "array.sh").write_text("#SBATCH -p gpu\nset -- 0.1 0.2\nshift $SLURM_ARRAY_TASK_ID\n")
    (tmp_path / "open.sh").write_text("#SBATCH -p 'gpu\n")
    (tmp_path / "odd.sh").write_text("#!/bin/sh\n#SBATCH -p gpu more\n")
    (tmp_path / "train.sbatch").write_text(SCRIPT)


@pytest.mark.parametrize(
    ("line", "command", "options", "left_out"),
    [
        ("sbatch train.sbatch {lr}", (*BASH, "train.sbatch", "{lr}"), FOUND, OURS),
        ("/usr/bin/sbatch -p big train.sbatch", (*BASH, "train.sbatch"), {**FOUND, "partition": "big"}, OURS),
        ("sbatch --mem {m}G -n4 plain.sh", ("sh", "plain.sh"), {"mem": "{m}G", "ntasks": "4"}, ()),
        ("sbatch --ntasks=1 -- plain.sh -x", ("sh", "plain.sh", "-x"), {"ntasks": "1"}, ()),
        ("sbatch --export=NONE -N2 plain.sh", ("sh", "plain.sh"), {"export": "NONE", "nodes": "2"}, ()),
        ("sbatch --wrap=echo -t 5", ("sh", "-c", "echo"), {"time": "5"}, ()),
        ("./train.sbatch {lr}", (*BASH, "./train.sbatch", "{lr}"), FOUND, OURS),
        ("bash train.sbatch", ("bash", "train.sbatch"), FOUND, OURS),
    ],
)
def test_a_batch_script_is_a_command_and_its_options(
    line: str, command: tuple[str, ...], options: Mapping[str, str], left_out: tuple[str, ...]
) -> None:
    expected = Batch(command, options, left_out, submits=line.startswith(("sbatch ", "/usr/bin/sbatch ")))

    assert batch_of(line.split()) == batch_of([line]) == expected


def test_variables_and_the_directory_of_a_job_are_those_of_its_container(tmp_path: Path) -> None:
    batch = batch_of(["sbatch", "-D", "sub", "--export=ALL,LR={lr},MODE=a", "plain.sh"])
    space = [parse_parameter("lr=1..3")]

    assert batch is not None
    assert (batch.command, batch.left_out) == (("sh", str(tmp_path / "plain.sh")), ())

    made = command_template(batch.command, space, Metrics(), batch=batch)
    (container,) = made.template["trialSpec"]["spec"]["template"]["spec"]["containers"]

    assert made.notes == ()
    assert container["workingDir"] == str(tmp_path / "sub")
    assert container["env"][1:] == [{"name": "LR", "value": "${trialParameters.lr}"}, {"name": "MODE", "value": "a"}]


def test_the_number_of_a_task_may_have_another_use_where_values_are_arguments() -> None:
    assert batch_of(["sbatch", "array.sh", "{lr}"]) is not None


def test_a_line_for_the_shell_stays_one_and_its_quotes_count() -> None:
    quoted = batch_of(["sbatch -t 5 --wrap='echo a | cat'"])

    assert batch_of(["./train.sbatch {lr} | tail -1"]) is batch_of(["./train.sbatch 'open"]) is None
    assert batch_of(["sbatch --wait plain.sh; cat out"]) is None  # it waits, and shows what the job printed
    assert quoted == Batch(("sh", "-c", "echo a | cat"), {"time": "5"}, submits=True)


@pytest.mark.parametrize("line", ["sbatch plain.sh {lr} | cat", "module load x && sbatch plain.sh"])
def test_a_line_for_the_shell_submits_no_job_of_its_own(line: str) -> None:
    with refused("batch-script"):
        batch_of([line])


def test_a_note_says_what_of_a_batch_script_counts() -> None:
    batch = Batch(("sh", "a.sh"), {"time": "5"}, left_out=("array", "output"))

    assert list(batch_notes(batch, counts=True)) == [
        "each trial is a job with time=5",
        "array, output of the batch script: left out, as each trial has its own",
    ]
    assert list(batch_notes(Batch(("a",)), counts=False)) == []


@pytest.mark.parametrize("line", ["sh plain.sh", "python train.py", "missing.sh", "sh -c 'echo loss=1'"])
def test_other_commands_are_none_of_slurm(line: str) -> None:
    assert batch_of(line.split()) is None


@pytest.mark.parametrize(
    "line", ["sbatch", "sbatch missing.sh", "sbatch -p", "sbatch -y x.sh", "./open.sh", "sh odd.sh", "sbatch array.sh"]
)
def test_what_sbatch_would_not_take_is_refused(line: str, golden: Golden) -> None:
    with pytest.raises(InvalidError) as error:
        batch_of(line.split())

    golden(str(error.value).removeprefix("./"))
