"""`katib confirm`: the best configurations of a search, run again with other seeds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import katib as product
from tests.support.cli import KATIB, environment, katib_here, katib_json
from tests.support.processes import Launch
from tests.support.waiting import eventually

# The noise of x=1 is small, so that the order of the means is that of the squares; seeds of every third run may fail.
TRAIN = """
import os, pathlib, random, sys
x, seed = float(sys.argv[1]), int(sys.argv[2])
with open("seeds", "a") as file:
    file.write(f"{os.environ['KATIB_TRIAL_NAME']} {seed}\\n")
if pathlib.Path("hangs").exists():
    __import__("time").sleep(600)
if pathlib.Path("fails").exists() and seed % 3 == 0:
    sys.exit("boom")
random.seed(seed)
print(f"loss={(x - 1) ** 2 + random.gauss(5, 0.01)} other={x}")
"""
COMMAND = ("--", sys.executable, "train.py", "{x}", "{seed}")
SEARCH = ("tune", "-q", "-p", "x=1,3,7,9", "--minimize", "loss", "--trials", "4", "--algorithm", "grid", *COMMAND)


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    """A directory in which the search `train` ended."""
    (tmp_path / "train.py").write_text(TRAIN)
    done = katib_here(*SEARCH, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def confirmed(directory: Path, *options: str) -> Any:
    done = katib_here("confirm", "train", "-q", "-o", "json", *options, cwd=directory)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def configurations(found: Any) -> dict[str, Any]:
    return {row["parameters"]["x"]: row for row in found["configurations"]}


def test_each_configuration_runs_with_seeds_of_its_own_and_the_best_mean_is_named(searched: Path) -> None:
    found = confirmed(searched, "--top", "3", "--repeats", "3")
    rows = configurations(found)
    seeds = [line.split()[1] for line in (searched / "seeds").read_text().splitlines()]
    best = katib_here("best", "train", cwd=searched)
    named = katib_json("best", "train", cwd=searched)
    table = katib_here("confirm", "train", "--repeats", "3", cwd=searched)

    assert list(rows) == ["1", "3", "7"]
    assert [len(row["values"]) for row in rows.values()] == [3, 3, 3]
    assert len(set(seeds)) == len(seeds) == 4 + 9
    assert rows["1"]["low"] < rows["1"]["mean"] < rows["1"]["high"]
    assert rows["1"]["probability"] > 0.99
    assert rows["7"]["behind"] > 0.99
    assert found["best"] == rows["1"]["trial"] == named["metadata"]["name"]
    assert found["optimism"] == pytest.approx(rows["1"]["mean"] - rows["1"]["searchValue"])
    assert found["verdict"] in best.stdout
    assert found["verdict"] in table.stdout
    assert [line.split()[0] for line in table.stdout.splitlines() if line.startswith("train-") and "x=" in line] == [
        row["trial"] for row in found["configurations"]
    ]


@pytest.mark.parametrize(("name", "place"), [("train", "findings"), ("train-confirm", "verdict")])
def test_why_tells_what_it_found(searched: Path, name: str, place: str) -> None:
    found = confirmed(searched, "--top", "2", "--repeats", "2")

    assert found["verdict"] in str(katib_json("why", name, cwd=searched)[place])


def test_more_runs_and_configurations_are_added_to_those_that_are_there(searched: Path) -> None:
    confirmed(searched, "--top", "2", "--repeats", "2")
    before = katib_json("trials", "train-confirm", cwd=searched)["items"]
    rows = configurations(confirmed(searched, "--top", "3", "--repeats", "3"))
    after = katib_json("trials", "train-confirm", cwd=searched)["items"]

    assert {x: len(row["values"]) for x, row in rows.items()} == {"1": 3, "3": 3, "7": 3}
    assert [one["metadata"]["uid"] for one in after[:4]] == [one["metadata"]["uid"] for one in before]


def test_one_run_of_each_tells_no_probability_and_a_program_without_noise_is_noticed(searched: Path) -> None:
    once = confirmed(searched, "--top", "2", "--repeats", "1")
    (searched / "train.py").write_text("import sys\nprint(f'loss={float(sys.argv[1])}')")
    katib_here("delete", "train-confirm", cwd=searched)
    same = confirmed(searched, "--top", "2", "--repeats", "2")

    assert (once["best"], [row["probability"] for row in once["configurations"]]) == ("", [None, None])
    assert [row["probability"] for row in same["configurations"]] == [1.0, 0.0]
    assert any("KATIB_SEED" in note for note in same["notes"])


def test_runs_without_a_value_are_named_and_run_again_when_that_is_wanted(searched: Path) -> None:
    (searched / "fails").touch()
    found = confirmed(searched, "--top", "2", "--repeats", "6")
    lost = [name for row in found["configurations"] for name in row["lost"]]
    (searched / "fails").unlink()
    whole = confirmed(searched, "--top", "2", "--repeats", "6", "--retry-failed")
    seeds = [tuple(line.split()) for line in (searched / "seeds").read_text().splitlines()]

    assert 0 < len(lost) < 12
    assert all(name in " ".join(found["notes"]) for name in lost)
    assert [len(row["values"]) for row in whole["configurations"]] == [6, 6]
    assert len(set(seeds)) == len(seeds) - len(lost)  # they kept their seeds


def test_an_interrupted_confirmation_continues(searched: Path, launch: Launch) -> None:
    (searched / "hangs").touch()
    words = ["confirm", "train", "--top", "2", "--repeats", "2"]
    running = launch([*KATIB, *words], cwd=searched, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: len((searched / "seeds").read_text().splitlines()) > 4)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    (searched / "hangs").unlink()
    rows = confirmed(searched, "--top", "2", "--repeats", "2")["configurations"]

    assert running.returncode == 130
    assert b"`katib confirm train --top 2 --repeats 2`" in err
    assert [len(row["values"]) for row in rows] == [2, 2]


def test_what_cannot_be_confirmed_is_one_line(searched: Path) -> None:
    def refusal(*words: str) -> str:
        done = katib_here("confirm", *words, cwd=searched)
        assert done.returncode == 2
        return done.stderr

    (searched / "fails.py").write_text("raise SystemExit(1)")
    line = ("tune", "-q", "-p", "x=0.0..1.0", "--minimize", "loss", "--trials", "3", "--name", "none")
    katib_here(*line, "--", sys.executable, "fails.py", "{x}", cwd=searched)
    nothing = refusal("none")
    many = refusal("train", "--top", "50", "--repeats", "200")
    confirmed(searched, "--top", "1", "--repeats", "1")
    itself = refusal("train-confirm")
    katib_here(SEARCH[0], "--restart", *SEARCH[1:], cwd=searched)
    earlier = refusal("train")
    unknown = refusal("nobody")

    assert all(text.count("\n") == 1 for text in (nothing, many, itself, earlier, unknown))
    assert "no trial succeeded with a value" in nothing
    assert "confirm train" in itself
    assert "katib delete train-confirm" in earlier
    assert "nobody" in unknown


def test_of_several_objectives_the_first_one_decides(searched: Path) -> None:
    line = ("tune", "-q", "-p", "x=1,3,7,9", "--minimize", "loss", "--minimize", "other", "--trials", "4")
    katib_here(*line, "--algorithm", "grid", "--name", "two", *COMMAND, cwd=searched)
    found = json.loads(katib_here("confirm", "two", "--repeats", "2", "-q", "-o", "json", cwd=searched).stdout)

    assert list(configurations(found)) == ["1", "3", "7"]
    assert "Of several objectives, loss decides." in found["notes"]


def test_callers_evaluate_the_runs_of_what_they_evaluated(tmp_path: Path) -> None:
    def loss(trial: product.sdk.AskedTrial) -> float:
        return float(trial.parameters["x"]) + trial.seed / 2**31 / 100

    with product.create("mine", {"x": product.search.double(0, 1)}, data_dir=tmp_path, max_trials=3) as search:
        for trial in search.ask_until_done():
            trial.tell(loss(trial))
    begun = product.open("mine", data_dir=tmp_path).confirm(top=2, repeats=2)
    with product.open(begun.confirmed_by, data_dir=tmp_path).resume() as runs:
        for trial in runs.ask_until_done():
            trial.tell(loss(trial))
    found = product.open("mine", data_dir=tmp_path).confirm(top=2, repeats=2)

    assert (begun.runs, begun.best, found.runs) == (0, "", 4)
    assert [len(set(row.values)) for row in found.configurations] == [2, 2]
    assert product.open("mine", data_dir=tmp_path).best.name == found.best


def test_a_result_in_python_confirms_itself(searched: Path) -> None:
    found = product.open("train", data_dir=searched / ".katib").confirm(top=2, repeats=2)

    assert (found.runs, found.state, len(found.configurations)) == (4, "Succeeded", 2)
    assert product.open("train", data_dir=searched / ".katib").best.name == found.best


def test_a_confirmed_experiment_shows_the_mean_everywhere_and_takes_its_confirmation_with_it(searched: Path) -> None:
    mean = min(row["mean"] for row in confirmed(searched, "--top", "2", "--repeats", "3")["configurations"])
    newest = katib_here("confirm", "-q", "-o", "json", "--top", "2", "--repeats", "3", cwd=searched)
    best = katib_json("best", "train", cwd=searched)
    listed = katib_json("get", "experiment", cwd=searched)["items"]
    values = [
        float(found["observation"]["metrics"][0]["latest"])
        for found in (best["status"], *(one["status"]["currentOptimalTrial"] for one in listed))
    ]
    deleted = katib_here("delete", "train", cwd=searched)

    assert json.loads(newest.stdout)["experiment"] == "train"  # not its confirmation, which is newer
    assert values == pytest.approx([mean] * 3, rel=1e-6)
    assert deleted.stdout.count("deleted") == 2
    assert katib_here("get", "-o", "name", cwd=searched).stdout == ""


def test_a_search_repeats_its_trials_and_tells_how_sure_the_best_is(searched: Path) -> None:
    words = ("tune", "--repeats", "3", "--name", "repeated", "-p", "x=1,3,7,9", "--minimize", "loss", "--trials", "14")
    done = katib_here(*words, "--parallel", "1", "--algorithm", "grid", *COMMAND, cwd=searched)
    found = katib_json("best", "repeated", cwd=searched)
    trials = katib_json("trials", "repeated", cwd=searched)["items"]
    table = katib_here("trials", "repeated", cwd=searched)
    seeds = dict(line.split() for line in (searched / "seeds").read_text().splitlines())
    runs = [trial for trial in trials if trial["metadata"]["name"].startswith(found["metadata"]["name"])]
    values = [float(run["status"]["observation"]["metrics"][0]["latest"]) for run in runs]
    confirmation = confirmed_name(searched, "repeated")

    assert done.returncode == 0
    assert len(runs) == 3
    assert len({seeds[run["metadata"]["name"]] for run in runs}) == 3
    assert float(found["status"]["observation"]["metrics"][0]["latest"]) == pytest.approx(sum(values) / 3, rel=1e-6)
    assert f"{found['metadata']['name']} has the best mean" in done.stdout
    assert "katib confirm repeated" in done.stdout
    assert "(3)" in table.stdout
    assert confirmation["configurations"][0]["trial"] == found["metadata"]["name"]


def test_a_search_that_had_parameters_twice_tells_that_its_best_value_may_be_luck(searched: Path) -> None:
    words = ("tune", "-q", "--name", "twice", "-p", "x=1,9", "--minimize", "loss", "--algorithm", "random")
    katib_here(*words, "--trials", "6", *COMMAND, cwd=searched)
    best, why = katib_here("best", "twice", cwd=searched), katib_here("why", "twice", cwd=searched)
    once = katib_here("best", "train", cwd=searched)

    assert "Trials with equal parameters differ by about 0.0" in best.stdout
    assert "the best with probability over 99%" in best.stdout
    assert "Trials with equal parameters differ by about 0.0" in why.stdout
    assert "equal parameters" not in once.stdout


def confirmed_name(directory: Path, name: str) -> Any:
    return katib_json("confirm", name, "-q", "--top", "2", "--repeats", "2", cwd=directory)
