"""A seed for each trial: in its command, its files and its environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import katib
from katib.model.names import trial_seed
from tests.support.cli import katib_here, katib_json

TRAIN = """
import os, pathlib, sys
name, seed, config = sys.argv[1:]
assert name == os.environ["KATIB_TRIAL_NAME"]
with open("seen", "a") as file:
    file.write(f"{name} {seed} {os.environ['KATIB_SEED']} {pathlib.Path(config).read_text().split()[1]}\\n")
if not pathlib.Path("works").exists():
    sys.exit("not yet")
print(f"loss={int(seed) / 2**31}")
"""


def test_a_trial_has_one_seed_everywhere_and_keeps_it_when_it_runs_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "conf.yaml").write_text("start: {seed}\n")
    words = (sys.executable, "train.py", "{trial}", "{seed}", "{config:conf.yaml}")
    line = ("-p", "x=0.0..1.0", "--minimize", "loss", "--trials", "3", "--parallel", "1", "--", *words)

    failed = katib_here("tune", *line, cwd=tmp_path)
    (tmp_path / "works").touch()
    done = katib_here("tune", "--retry-failed", *line, cwd=tmp_path)
    rows = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    seeds = {name: str(trial_seed("default", name)) for name, *_ in rows}

    assert (failed.returncode, done.returncode) == (1, 0), done.stderr
    assert len(rows) == 6
    assert len(set(seeds.values())) == 3
    assert all(found == [seeds[name]] * 3 for name, *found in rows)
    assert {one["metadata"]["name"] for one in katib_json("trials", "train", cwd=tmp_path)["items"]} == seeds.keys()


def seed(x: float) -> int:
    return int(os.environ["KATIB_SEED"])


@pytest.mark.parametrize("preload", [None, ["wave"]], ids=["jobs", "warm"])
def test_a_function_finds_the_seed_of_its_trial(preload: list[str] | None, tmp_path: Path) -> None:
    space = {"x": katib.search.double(0, 1)}
    result = katib.tune(seed, space, objective="seed", max_trials=3, preload=preload, data_dir=tmp_path)

    assert {t.name: t.value for t in result.trials} == {t.name: trial_seed("default", t.name) for t in result.trials}
