"""`hydra/sweeper=katib`, by Hydra itself: its grammar as a search space, and programs that it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import katib
from tests.support.waiting import eventually

pytest.importorskip("hydra", reason="hydra-core is not installed", exc_type=ImportError)

from hydra.core.override_parser.overrides_parser import OverridesParser

from katib.integrations.hydra import parameter_of, space_of, values_of
from katib.sdk.results import TuneResult
from tests.support.refusals import refused

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, time
import hydra, katib

@hydra.main(version_base=None, config_path=None, config_name="config")
def main(cfg):
    if cfg.get("hang"):
        print("hangs", flush=True)
        time.sleep(600)
    if cfg.get("kill") and cfg.model.layers == 3:
        os.kill(os.getpid(), 9)
    loss = cfg.model.lr + cfg.model.layers
    for step in range(10_000 if cfg.kill and cfg.model.layers == 2 else 3):
        katib.report(loss=loss * 100, step=step)
    return loss

from hydra.core.config_store import ConfigStore
ConfigStore.instance().store("config", {
    "defaults": ["_self_", {"override hydra/sweeper": "katib"}],
    "model": {"lr": 0.1, "layers": 1}, "kill": False, "hang": False,
})
main()
"""
SPACE = ("model.lr=tag(log, interval(1e-4, 1))", "model.layers=range(1, 4)", "+opt=choice(sgd, adam)")


def parsed(line: str) -> Any:
    return OverridesParser.create().parse_override(line)


@pytest.mark.parametrize(
    ("sweep", "space"),
    [
        ("interval(0, 1)", {"min": "0.0", "max": "1.0"}),
        ("tag(log, interval(0.1, 1))", {"min": "0.1", "max": "1.0", "distribution": "logUniform"}),
        ("int(interval(1, 8))", {"min": "1", "max": "8"}),
        ("range(1, 4)", {"min": "1", "max": "3"}),
        ("range(8, 0, step=-2)", {"min": "2", "max": "8", "step": "2"}),
        ("range(0, 1, step=0.25)", {"min": "0.0", "max": "0.75", "step": "0.25"}),
        ("choice(a, 'b c', 3, true)", {"list": ["a", "b\\ c", "3", "True"]}),
        ("a,b", {"list": ["a", "b"]}),
    ],
    ids=["interval", "log", "int", "range", "downwards", "float-range", "choice", "commas"],
)
def test_the_grammar_of_overrides_is_a_search_space(sweep: str, space: dict[str, Any]) -> None:
    assert parameter_of(parsed(f"x={sweep}")).space == space


def test_constants_are_overrides_of_every_job_and_the_last_of_a_key_counts() -> None:
    space = space_of([parsed(line) for line in ("x=1", "x=choice(a, b)", "~y", "+z=choice(1, 2)", "~z", "++w=[1,2]")])

    assert space.overrides({"x": "a"}) == ["~y", "~z", "++w=[1,2]", "x=a"]
    with refused("hydra-space"):
        space_of([parsed("x=1")])


@pytest.mark.parametrize(
    ("returned", "values"),
    [(1, {"loss": 1.0}), ([1], {"loss": 1.0}), ({"loss": 2, "size": 3}, {"loss": 2.0, "size": 3.0}), (None, {})],
    ids=["number", "list", "by-name", "nothing"],
)
def test_what_a_function_returns(returned: Any, values: Mapping[str, float]) -> None:
    assert values_of(returned, ["loss"]) == values


def program(directory: Path, *overrides: str, name: str = "mine", **more: Any) -> list[str]:
    path = directory / "train.py"
    path.write_text(PROGRAM)
    options = {"name": name, "objective": "loss", "algorithm": "random", "max_trials": 9, **more}
    return [
        sys.executable,
        str(path),
        "-m",
        *SPACE,
        *(f"hydra.sweeper.{k}={v}" for k, v in options.items()),
        *overrides,
    ]


def environment(directory: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(directory)}


def run(directory: Path, *overrides: str, **more: Any) -> tuple[int, str]:
    line = program(directory, *overrides, **more)
    ran = subprocess.run(
        line, check=False, cwd=directory, env=environment(directory), capture_output=True, text=True, timeout=120
    )
    return ran.returncode, ran.stdout + ran.stderr


def found(directory: Path, name: str = "mine") -> TuneResult:
    return katib.open(name, data_dir=directory / ".katib")


@pytest.mark.slow
def test_a_sweep_evaluates_trials_one_at_a_time_and_writes_what_was_found(tmp_path: Path) -> None:
    code, printed = run(tmp_path, "hydra.job.chdir=true", "hydra.sweep.dir=sweep")
    result = found(tmp_path)

    assert code == 0, printed
    assert [trial.state for trial in result.trials] == ["Succeeded"] * 9
    assert {type(value) for value in result.best.parameters.values()} == {float, int, str}
    assert f"best_value: {result.best.value}" in (tmp_path / "sweep" / "optimization_results.yaml").read_text()
    assert (tmp_path / "sweep" / "8" / ".hydra" / "overrides.yaml").is_file()


@pytest.mark.slow
def test_many_at_once_a_killed_job_fails_its_trial_and_a_report_ends_a_bad_one(tmp_path: Path) -> None:
    first = [f"{{model.lr: 0.{n + 1}, model.layers: {layers}, opt: sgd}}" for n, layers in enumerate((1, 1, 1, 3, 2))]
    stopping = "early_stopping_settings: {min_trials_required: 3, start_step: 1}"
    code, printed = run(
        tmp_path,
        "kill=true",
        f"+hydra.sweeper.options={{initial_trials: [{', '.join(first)}], {stopping}}}",
        parallel=2,
        max_trials=5,
        early_stopping="medianstop",
    )

    assert code == 0, printed
    assert [trial.state for trial in found(tmp_path).trials] == ["Succeeded"] * 3 + ["Failed", "EarlyStopped"]


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [1, 2])
def test_ctrl_c_ends_a_sweep_which_goes_on_by_its_name(tmp_path: Path, parallel: int) -> None:
    lease = "+hydra.sweeper.options={lease_seconds: 1}"
    with (tmp_path / "printed").open("w") as out:
        line = program(tmp_path, "hang=true", lease, parallel=parallel, max_trials=3)
        sweep = subprocess.Popen(
            line, cwd=tmp_path, env=environment(tmp_path), stdout=out, stderr=out, start_new_session=True
        )
        eventually(lambda: (tmp_path / "printed").read_text().count("hangs") == parallel)
        sweep.send_signal(signal.SIGINT)
        sweep.wait(30)

    code, printed = run(tmp_path, lease, parallel=parallel, max_trials=3)

    assert code == 0, printed
    assert [trial.state for trial in found(tmp_path).trials] == ["Succeeded"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "cause"),
    [
        (["hydra.sweeper.algorithm=nonesuch"], 'katib: algorithm: "nonesuch" is unknown; use one of'),
        (["+hydra.sweeper.options.wrong=1"], "katib.create has no argument wrong"),
        (["+hydra.sweeper.options.sampler=tpe"], "no argument sampler; use algorithm, such as tpe"),
        (["wrong=1"], "Key 'wrong' is not in struct"),
    ],
    ids=["algorithm", "option", "option of another sweeper", "key"],
)
def test_what_is_wrong_is_one_line_before_anything_runs(tmp_path: Path, overrides: list[str], cause: str) -> None:
    code, printed = run(tmp_path, *overrides)

    assert code == 1
    assert cause in printed
    assert "Traceback" not in printed
