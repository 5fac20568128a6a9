"""What a user reads who gives wrong input: one line each, the exit code 2, never a traceback."""

from __future__ import annotations

import copy
import json
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import katib, katib_here, katib_json
from tests.support.experiments import a_double, an_experiment
from tests.support.golden import Golden
from tests.support.wrong_files import GOOD, WRONG_FILES


@pytest.mark.parametrize("name", WRONG_FILES)
def test_run_explains_a_wrong_file_in_one_line_as_validate_does(tmp_path: Path, name: str) -> None:
    """`tests/golden/wrong_files.txt` shows the lines to a reviewer."""
    (tmp_path / "x.yaml").write_text(WRONG_FILES[name])

    judged, run = (katib_here(command, "x.yaml", cwd=tmp_path) for command in ("validate", "run"))

    assert (judged.returncode, judged.stdout, judged.stderr.count("\n")) == (2, "", 1)
    assert judged.stderr.startswith("x.yaml:")
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"error: {judged.stderr}")


def test_an_experiment_whose_trials_callers_evaluate_is_valid_and_no_run_waits_for_them(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(an_experiment(trialTemplate=None)))

    judged, run = (katib_here(command, "x.yaml", cwd=tmp_path) for command in ("validate", "run"))

    assert (judged.returncode, judged.stdout) == (0, "x.yaml: ok\n")
    assert judged.stderr.startswith("x.yaml: note: there is no spec.trialTemplate")
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert run.stderr.startswith("error: x.yaml: spec.trialTemplate: ")


def a_directory(path: Path) -> None:
    path.mkdir()


def bytes_of_an_image(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n")


def nothing(_path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "line"),
    [
        pytest.param(nothing, "no such file or directory; it was looked for in {folder}", id="missing"),
        pytest.param(a_directory, "is a directory; name the experiment file in it", id="a directory"),
        pytest.param(bytes_of_an_image, "byte 0 is not UTF-8; save it as UTF-8 text", id="an image"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], None], line: str) -> None:
    make(tmp_path / "x.yaml")

    done = katib_here("run", "x.yaml", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, f"error: x.yaml: {line.format(folder=tmp_path.resolve())}\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    (tmp_path / "x.yaml").chmod(0)

    done = katib("run", "x.yaml", cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("error: x.yaml: permission denied; ")


ARGUMENTS = {
    "unknown command": ["rum", "x.yaml"],
    "unknown option": ["run", "x.yaml", "--fast"],
    "no file": ["run"],
    "output form": ["run", "x.yaml", "-o", "xml"],
    "beyond this machine": ["serve", "--host", "0.0.0.0"],
    "server address": ["best", "x", "--server", "foo"],
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_are_explained_in_one_line(tmp_path: Path, arguments: list[str], golden: Golden) -> None:
    done = (katib if "serve" in arguments else katib_here)(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    golden(done.stderr)


def test_a_port_in_use_is_named(tmp_path: Path, golden: Golden) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = katib("serve", "--port", str(port), cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    golden(done.stderr.replace(str(port), "PORT"))


def test_a_file_that_changed_too_much_is_refused_with_what_changed(tmp_path: Path, golden: Golden) -> None:
    def write(high: str, trials: int) -> None:
        raw = an_experiment(
            maxTrialCount=trials,
            parallelTrialCount=1,
            resumePolicy="LongRunning",
            parameters=[a_double("lr", high=high)],
        )
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(raw))

    write("0.1", 1)
    assert katib_here("run", "x.yaml", "-q", cwd=tmp_path).returncode == 0
    write("9", 2)

    done = katib_here("run", "x.yaml", cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    golden(done.stderr)
    assert katib_json("get", "experiment", "demo", cwd=tmp_path)["status"]["trialsSucceeded"] == 1


@pytest.mark.parametrize("form", ["trial", "experiment"])
def test_a_name_is_taken_as_it_was_printed(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(an_experiment(maxTrialCount=1, parallelTrialCount=1)))
    assert katib_here("run", path, "-q", cwd=tmp_path).returncode == 0
    listing = ["trials", "demo"] if form == "trial" else ["get"]
    name = katib_here(*listing, "-o", "name", cwd=tmp_path).stdout.strip()
    assert name.startswith(f"{form}/")

    done = [katib_here(command, name, cwd=tmp_path) for command in ("get", "describe", "why")]

    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]


JUNK: list[Any] = [
    None, "", "x", "\0", "é\u2028", "${trialParameters.", "nan", -1, 0, 2**70, 1.5, float("inf"), True, [], {}, [[]],
    {"a": {}}, [None], "x" * 5000, "2026-01-01", {1: 2},
]  # fmt: skip


def mutated(rng: random.Random) -> str:
    """Return an experiment with one to three places replaced, removed or doubled, sometimes cut off."""
    raw = copy.deepcopy(an_experiment())
    for _ in range(rng.randint(1, 3)):
        holder: Any = raw
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
                holder = holder[key]
                continue
            if rng.random() < 0.2:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(rng.choice(JUNK))
            break
    text = yaml.safe_dump(raw, allow_unicode=rng.random() < 0.5) if rng.random() < 0.8 else json.dumps(raw)
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.15 else text


def test_a_hundred_mutated_files_are_judged_line_by_line(tmp_path: Path) -> None:
    rng = random.Random(20)
    names = [f"{number}.yaml" for number in range(100)]
    for name in names:
        (tmp_path / name).write_text(mutated(rng))

    done = katib_here("validate", *names, cwd=tmp_path)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    lines = done.stderr.splitlines() + done.stdout.splitlines()
    assert {line.split(":")[0] for line in lines} == set(names)


def test_run_ends_in_order_whatever_the_file_is(tmp_path: Path) -> None:
    rng = random.Random(21)
    for number in range(12):
        path = tmp_path / f"{number}.yaml"
        path.write_text(mutated(rng))

        done = katib_here("run", path, "--data-dir", tmp_path / f"data-{number}", cwd=tmp_path)

        assert done.returncode in (0, 1, 2), done.stderr
        assert "Traceback" not in done.stderr
        assert "bug" not in done.stderr
