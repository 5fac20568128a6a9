"""`katib tune`: from a program of one's own to its best values in one line."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from katib.places.machine.claims import holder_of
from tests.support.cli import KATIB, environment, katib, katib_here, katib_json
from tests.support.golden import Golden
from tests.support.processes import Launch
from tests.support.waiting import eventually

TRAIN = """
import json, sys
x = float(sys.argv[1]) if not sys.argv[1].endswith(".json") else json.load(open(sys.argv[1]))["x"]
print(f"epoch=1 loss={(x - 1) ** 2}")
if len(sys.argv) > 2:
    with open(sys.argv[2], "w") as file:
        file.write(json.dumps({"deviation": abs(x - 1), "epoch": 1}))
"""
X = ("-p", "x=-3.0..3.0", "--minimize", "loss", "--trials", "3")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def tune(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return katib("tune", *arguments, cwd=cwd)


@pytest.mark.parametrize(
    ("place", "package"),
    [
        ("tensorboard:runs", "tensorboardX"),
        pytest.param("mlflow:sqlite:///mlflow.db", "mlflow", marks=pytest.mark.slow),
    ],
)
def test_trials_are_logged_elsewhere_as_they_end(directory: Path, place: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed", exc_type=ImportError)
    done = tune(*X, "--log-to", place, "--", sys.executable, "train.py", "{x}", cwd=directory)

    assert done.returncode == 0
    assert "--log-to" not in done.stderr
    form, _, where = place.partition(":")
    assert katib("export", "train", "--to", form, "-o", where, cwd=directory).stdout == f"{where}: 0 trials written\n"
    assert form == "mlflow" or len(list((directory / "runs").iterdir())) == 3


def test_a_place_that_takes_no_trials_is_named_and_the_run_goes_on(directory: Path) -> None:
    (directory / "runs").write_text("a file")
    done = tune(*X, "--log-to", "tensorboard:runs", "--", sys.executable, "train.py", "{x}", cwd=directory)
    wrong = tune(*X, "--log-to", "wandb", "--", "true", "{x}", cwd=directory)

    assert done.returncode == 0
    assert "note: --log-to: runs/train-" in done.stderr
    assert ": not a directory; " in done.stderr
    (directory / "runs").unlink()
    tune(*X, "--log-to", "tensorboard:runs", "--", sys.executable, "train.py", "{x}", cwd=directory)
    assert len(list((directory / "runs").iterdir())) == 3
    assert wrong.returncode == 2
    assert '"wandb"' in wrong.stderr


def test_beside_a_run_of_the_directory_a_line_waits_until_ctrl_c_or_its_turn(directory: Path, launch: Launch) -> None:
    line = "tune -p lr=0..1:double --minimize loss --trials 1"
    slow = [*KATIB, *line.split(), "--name", "slow", "--", "sh", "-c", "sleep 8; echo loss={lr}"]
    other = launch(slow, cwd=directory, env=environment(), stdout=subprocess.DEVNULL)
    eventually(lambda: holder_of(directory / ".katib") is not None)
    words = rf"note: waiting for .*tune \(process {other.pid}\), which works in .katib; --data-dir with .*\n"

    second = [*KATIB, *line.split(), "--name", "second", "--", "echo", "loss={lr}"]
    waiting = launch(second, cwd=directory, env=environment(), stderr=subprocess.PIPE, text=True)
    assert waiting.stderr is not None
    assert re.fullmatch(words, waiting.stderr.readline())
    waiting.send_signal(signal.SIGINT)
    assert (waiting.wait(), waiting.stderr.read().strip()) == (130, "")

    done = katib_here(*second[len(KATIB) :], cwd=directory)
    assert (done.returncode, other.wait()) == (0, 0), done.stderr


def test_the_same_line_shows_an_ended_experiment_again_and_another_line_makes_the_next_one(
    directory: Path, golden: Golden
) -> None:
    line = (*X, "--", sys.executable, "train.py", "{x}")
    first, again = tune(*line, cwd=directory), tune(*line, cwd=directory)
    other = tune("-p", "y=1..2", *line, cwd=directory)

    assert (first.returncode, first.stderr) == (0, "")
    assert "train succeeded" in first.stdout
    assert (again.returncode, other.returncode) == (0, 0)
    golden(other.stderr)
    assert sorted(path.name for path in directory.iterdir()) == [".katib", "train.py"]
    assert {e["metadata"]["name"] for e in katib_json("get", cwd=directory)["items"]} == {"train", "train-2"}


def test_a_line_says_what_it_learns_from_and_nothing_of_the_template_that_it_stands_for(directory: Path) -> None:
    command = ("--", sys.executable, "train.py", "{x}")
    tune("-p", "x=-3.0..3.0", "--minimize", "loss", "--trials", "10", "--parallel", "4", *command, cwd=directory)
    (note,) = tune(*X, "--name", "other", *command, cwd=directory).stderr.splitlines()

    assert note.startswith("note: auto learns from train")


def test_the_saved_file_runs_as_the_line_does(directory: Path) -> None:
    line = (*X, "--save", "mine.yaml", "--name", "mine", "--dry-run", "--", sys.executable, "train.py", "{x}")
    dry = tune(*line, cwd=directory)
    done = katib("run", "mine.yaml", cwd=directory)

    assert (dry.returncode, dry.stdout) == (0, "")
    assert "mine succeeded" in done.stdout


def test_a_full_disk_keeps_the_file_that_was_there(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    def full(_path: Path, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (directory / "x.yaml").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        saved = katib_here("tune", *X, "--save", "x.yaml", "--", "true", cwd=directory)
        made = katib_here("init", "-p", "x=1..2", "--minimize", "loss", "--", "true", "{x}", cwd=directory)

    assert "error: x.yaml: no space left on device; " in saved.stderr
    golden(made.stderr)
    assert (directory / "x.yaml").read_text() == "mine"
    assert not (directory / "experiment.yaml").exists()


def test_output_that_a_full_disk_does_not_take_is_named(directory: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*KATIB, "algorithms"], cwd=directory, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert done.stderr.endswith(
        b"error: the output: no space left on device; free some space there, and repeat the command\n"
    )
    assert b"bug" not in done.stderr


def test_a_tilde_that_the_shell_left_is_the_home_directory(directory: Path, tmp_path: Path, golden: Golden) -> None:
    words = ("tune", *X, "--save=~/x.yaml", "--data-dir=~/runs", "--dry-run", "--", "true", "{x}")
    done = katib_here(*words, cwd=directory, HOME=str(tmp_path))
    shown = katib_here("get", "--data-dir=~/runs", cwd=directory, HOME=str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.yaml").is_file()
    golden(shown.stderr)


@pytest.mark.parametrize(
    "command", [("best",), ("tune", *X, "--", "true", "{x}"), ("delete", "train")], ids=lambda c: c[0]
)
def test_a_data_directory_of_another_account_is_named(directory: Path, command: tuple[str, ...]) -> None:
    (directory / ".katib").mkdir(mode=0)
    line = [*KATIB, *command]
    if os.geteuid() == 0:  # root reads everything, unless it gives that right away
        line = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *line]
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv")
    done = subprocess.run(line, cwd=directory, env=environment(), capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert ".katib: permission denied; " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_dry_run_prints_the_file_and_runs_nothing(directory: Path) -> None:
    done = tune(*X, "--timeout", "2m", "--dry-run", "--", sys.executable, "train.py", "{x}", cwd=directory)

    assert "kind: Experiment" in done.stdout
    assert "activeDeadlineSeconds: 120" in done.stdout
    assert not (directory / ".katib").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--minimize", "loss"), ("{parameters}",)),
        (("--minimize", "deviation", "--metrics", "json"), ("{parameters}", "{metrics}")),
        (("--minimize", "deviation", "--metrics", "json:out.json"), ("{x}", "out.json")),
        (("--minimize", "lo", "--metrics-format", r"1 (lo)ss=([\d.]+)"), ("{x}",)),
    ],
)
def test_values_and_metrics_travel_in_files(directory: Path, options: tuple[str, ...], words: tuple[str, ...]) -> None:
    line = ("-p", "x=-3.0..3.0", *options, "--trials", "2", "-o", "json")
    done = tune(*line, "--", sys.executable, "train.py", *words, cwd=directory)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["currentOptimalTrial"]["observation"]["metrics"][0]["name"] == options[1]


def test_an_interrupted_line_goes_on_when_it_is_repeated(directory: Path) -> None:
    (directory / "train.py").write_text("import time\ntime.sleep(0.3)\n" + TRAIN)
    line = ("-p", "x=-3.0..3.0", "--minimize", "loss", "--trials", "8", "--parallel", "1")
    command = (*line, "--", sys.executable, "train.py", "{x}")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*KATIB, "tune", *command], cwd=directory, env=environment(), stdout=pipe, stderr=pipe, text=True
    ) as first:
        assert first.stdout is not None
        next(text for text in first.stdout if "succeeded" in text)
        first.send_signal(signal.SIGINT)
        _, errors = first.communicate(timeout=60)
    again = tune(*command, cwd=directory)

    assert shlex.join(["katib", "tune", *line]) in errors
    assert "train succeeded: all 8 trials" in again.stdout
    assert [e["metadata"]["name"] for e in katib_json("get", cwd=directory)["items"]] == ["train"]


@pytest.mark.parametrize(
    "line",
    [
        "-p x=3..1 --minimize loss -- true",
        "-p x=1..3 -- true",
        "-p x=1..3 --minimize loss",
        "-p x=1..3 --maximize loss --minimize loss -- true",
        "--n_jobs 2 -p x=1..3 --minimize loss -- true",
        "\u2013minimize loss -p x=1..3 -- true",
        "--min loss -p x=1..3 -- true",
        "-n 3 -p x=1..3 --minimize loss -- true",
        "--paralel 2 -p x=1..3 -- true",
        "-p n=1..3 -p x=0.0..1.0 --algorithm grid --minimize loss -- true {x} {n}",
        "-p x=0.0..1.0 --minimize loss --metrics-format (loss) -- true {x}",
        "-p x=1..3 --minimize loss --metrics json --metrics-format (loss)=(.*) -- true {metrics}",
        "-p lr=1..3 --minimize loss -- true {lrr}",
    ],
)
def test_a_wrong_line_is_one_error_and_leaves_nothing(directory: Path, line: str, golden: Golden) -> None:
    done = tune(*line.split(), cwd=directory)

    assert (done.returncode, done.stdout) == (2, "")
    golden(done.stderr)
    assert not (directory / ".katib").exists()


def test_a_job_for_kubectl_is_tuned_as_it_is(directory: Path) -> None:
    container = {"name": "training", "image": "none", "command": [sys.executable, "train.py", "{x}"]}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    (directory / "fit.yaml").write_text(json.dumps({"apiVersion": "batch/v1", "kind": "Job", "spec": spec}))
    done = tune(*X, "--", "kubectl", "apply", "-f", "fit.yaml", cwd=directory)
    written = katib("init", "--minimize", "loss", "-p", "x=0..1", "--yes", "fit.yaml", cwd=directory)
    checked = katib("validate", "experiment.yaml", cwd=directory)
    wrong = tune(*X, "--", "missing.yaml", cwd=directory)

    assert (done.returncode, done.stdout.count("succeeded in")) == (0, 3), done.stderr
    assert (written.returncode, checked.returncode) == (0, 0), written.stderr + checked.stderr
    assert wrong.stderr.startswith("error: missing.yaml: ")


def test_the_options_of_a_batch_script_count_in_slurm_only(directory: Path, golden: Golden) -> None:
    (directory / "train.sbatch").write_text('#SBATCH --partition=gpu\npython train.py "$1"\n')
    done = tune(*X, "--", "./train.sbatch", "{x}", cwd=directory)
    submitted = tune(*X, "--", "sbatch", "train.sbatch", "{x}", cwd=directory)

    assert done.returncode == 0, done.stderr
    assert "note: partition=gpu: " in done.stderr
    assert "--on slurm" in done.stderr
    golden(submitted.stderr)


def test_a_range_of_whole_numbers_with_too_few_of_them_is_mentioned(directory: Path, golden: Golden) -> None:
    command = ("--", sys.executable, "train.py", "{x}{y}")
    line = ("-p", "x=0..1", "-p", "y=a,b", "--minimize", "loss", "--trials", "8", *command)

    golden(tune(*line, cwd=directory).stderr)
    remedied = [word.replace("x=0..1", "x=0..1:double") for word in line]
    assert "combinations" not in tune(*remedied, cwd=directory).stderr


@pytest.mark.parametrize("command", [("delete",), ("tag", "--note", "text")], ids=["delete", "tag"])
def test_where_nothing_was_run_a_command_that_changes_something_leaves_nothing(
    tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "katib.doors.cli.connection.DEFAULT_SERVER", "http://127.0.0.1:1"
    )  # at the usual one may be a server
    done = katib_here(*command, "train", cwd=tmp_path)

    assert done.returncode == 1
    assert "`katib serve`" in done.stderr
    assert not any(tmp_path.iterdir())


def test_without_a_server_experiments_are_tagged_and_deleted_where_they_are(directory: Path) -> None:
    (directory / "forever.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    assert tune(*X, "--", sys.executable, "train.py", "{x}", cwd=directory).returncode == 0
    line = [*KATIB, "tune", *X, "--", sys.executable, "forever.py", "{x}"]
    with subprocess.Popen(line, cwd=directory, env=environment(), stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        next(text for text in run.stdout if "started" in text)
        run.kill()

    assert katib("tag", "train", "baseline", cwd=directory).stdout.startswith("experiment/train: tags baseline")
    for name in ("train", "forever"):
        done = katib("delete", name, cwd=directory)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"experiment/{name} deleted\n", "")
        begun = [log.read_text() for log in (directory / ".katib" / "trials").rglob("*.log")]
        assert set(begun) == ({"begun\n"} if name == "train" else set())  # and none has begun again

    assert katib_json("get", "-o", "json", cwd=directory)["items"] == []
    assert not any((directory / ".katib" / "trials").rglob("*.log"))


@pytest.mark.parametrize("place", [{"KATIB_CONTEXT": "prod"}, {"KATIB_SERVER": "http://127.0.0.1:1"}], ids="".join)
def test_the_next_commands_ask_here_also_where_the_environment_names_another_place(
    directory: Path, place: dict[str, str]
) -> None:
    done = katib("tune", *X, "--", sys.executable, "train.py", "{x}", cwd=directory, **place)
    _, _, commands = done.stdout.rpartition("Next: ")

    assert commands.count("--data-dir .katib") == 3, done.stderr
    for command in commands.strip().split(", ")[:2]:
        shown = katib_here(*command.split()[1:], cwd=directory, **place)
        assert (shown.returncode, "train" in shown.stdout) == (0, True), shown.stderr


def test_a_run_begins_with_the_values_of_today_and_tells_what_was_won(directory: Path) -> None:
    (directory / "train.yaml").write_text("model: {x: 3.0}\n")
    (directory / "train.py").write_text(
        "import sys, yaml; x = float(yaml.safe_load(open(sys.argv[1]))['model']['x'])\n"
    )
    with (directory / "train.py").open("a") as script:
        script.write("print(f'loss={(x - 1) ** 2}')\n")
    line = ("-p", "x=0.0..4.0", "--where", "x != 1", "--minimize", "loss", "--trials", "6", "--parallel", "1")

    done = tune(*line, "--", sys.executable, "train.py", "{config:train.yaml}", cwd=directory)

    default = katib_json("get", "experiment", "train", cwd=directory)["status"]["defaultTrial"]
    assert done.returncode == 0
    assert default["parameterAssignments"] == [{"name": "x", "value": "3.0"}]
    assert default["observation"]["metrics"][0]["latest"] == "4.0"
    for command in (["best"], ["why"], ["describe"]):
        assert default["comparison"] in katib_here(*command, cwd=directory).stdout
    assert default["comparison"] in done.stdout


@pytest.mark.parametrize(
    "algorithm", ["random", "grid", "sobol", "tpe", "gp", "cmaes", "bayesianoptimization", "nsga2"]
)
def test_no_trial_of_a_run_violates_a_constraint(directory: Path, algorithm: str) -> None:
    line = ("-p", "x=1..6", "-p", "y=1..6", "--where", "x * y <= 8", "--where", "x > 1 or y > 2", "--trials", "8")

    done = tune(
        *line, "--minimize", "loss", "--algorithm", algorithm, "--", sys.executable, "train.py", "{x}", cwd=directory
    )

    trials = katib_json("trials", "train", cwd=directory)["items"]
    points = [{a["name"]: int(a["value"]) for a in trial["spec"]["parameterAssignments"]} for trial in trials]
    assert done.returncode == 0
    assert len(points) == 8
    assert [p for p in points if p["x"] * p["y"] > 8 or (p["x"] == 1 and p["y"] <= 2)] == []
    assert "All trials satisfy x * y <= 8 and x > 1 or y > 2." in katib_here("why", cwd=directory).stdout
