"""Tuning Python functions for real: scripts and functions of every shape, each trial a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import katib
from katib.errors import InvalidError
from katib.model.types import Experiment, Trial
from katib.places.machine import open_offline
from katib.places.machine.claims import holder_of
from katib.sdk import TrialResult
from katib.service.tuning.states import failure_of, state_of
from tests.support.cli import a_server, environment, katib_here, marked_processes
from tests.support.golden import Golden
from tests.support.processes import Launch
from tests.support.refusals import refused
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
X = {"x": katib.search.double(0.25, 1, step=0.25)}


@pytest.fixture
def tune(tmp_path: Path) -> Callable[..., katib.TuneResult]:
    """`katib.tune` in a directory of the test: quiet, small, and the same on every run."""

    def call(function: Callable[..., Any], parameters: Mapping[str, Any], **options: Any) -> katib.TuneResult:
        usual = {"max_trials": 3, "parallel": 3, "algorithm": "random", "settings": {"random_state": 1}}
        return katib.tune(function, parameters, **{**usual, "data_dir": tmp_path, "verbose": False, **options})

    return call


def values(trials: tuple[TrialResult, ...]) -> list[float | None]:
    return [trial.value for trial in trials]


def test_the_best_arguments_of_a_function_are_found(tune: Callable[..., katib.TuneResult], golden: Golden) -> None:
    offset = 2

    def loss(x: float, layers: int, act: tuple[int, ...] | None, width: float, *, scale: int) -> float:
        assert isinstance(layers, int)
        assert act is None or isinstance(act, tuple)
        assert width in (0.5, 8)
        return x * scale + offset

    result = tune(
        loss,
        {
            **X,
            "layers": katib.search.int(1, 100, log=True),
            "act": katib.search.categorical([None, (8, 4)]),
            "width": katib.search.discrete([0.5, 8]),
            "scale": 10,
        },
        max_trials=4,
    )

    golden(result.reason)
    assert result.best.value == min(t.value for t in result.trials if t.value is not None)
    assert [t.value for t in result.trials] == [10 * t.parameters["x"] + 2 for t in result.trials]
    assert set(result.best.parameters) == {"x", "layers", "act", "width"}
    assert {t.state for t in result.trials} == {"Succeeded"}


def test_a_lambda_of_one_mapping_with_awkward_names(tune: Callable[..., katib.TuneResult]) -> None:
    result = tune(lambda c: c["lr-max"] + c["a.b"], {"lr-max": X["x"], "a.b": X["x"]}, max_trials=2)

    assert [t.value for t in result.trials] == [sum(t.parameters.values()) for t in result.trials]


def test_a_function_may_report_itself_or_return_a_mapping(tune: Callable[..., katib.TuneResult]) -> None:
    def curve(x: float) -> dict[str, float] | None:
        for step in range(3):
            katib.report(loss=x - step, accuracy=1)
        return {"loss": x - 3} if x > 0.5 else None

    result = tune(curve, X, objective="loss", additional_metrics=["accuracy"])

    assert values(result.trials) == [t.parameters["x"] - (3 if t.parameters["x"] > 0.5 else 2) for t in result.trials]


def test_the_goal_ends_the_search(tune: Callable[..., katib.TuneResult], golden: Golden) -> None:
    result = tune(lambda x: x, X, direction="maximize", goal=0.25, max_trials=50, parallel=1)

    golden(result.reason)
    assert len(result.trials) == 1


def test_hopeless_trials_are_stopped_early(tune: Callable[..., katib.TuneResult]) -> None:
    def curve(x: float, base: float) -> None:
        import time

        for _ in range(20_000 if base else 200):  # a hopeless one continues until it is stopped
            katib.report(loss=base + x)
            time.sleep(0.01 if base else 0)

    def by_order(marks: Any) -> Callable[[float], None]:
        def loss(x: float) -> None:
            first = len(list(marks.iterdir())) < 2
            (marks / os.urandom(4).hex()).touch()
            curve(x, 0 if first else 100)

        return loss

    import tempfile

    with tempfile.TemporaryDirectory() as marks:
        result = tune(
            by_order(Path(marks)),
            X,
            objective="loss",
            max_trials=4,
            parallel=1,
            early_stopping="medianstop",
            early_stopping_settings={"min_trials_required": 2, "start_step": 5},
        )

    assert [t.state for t in result.trials] == ["Succeeded", "Succeeded", "EarlyStopped", "EarlyStopped"]
    assert result.trials[2].value is not None


def test_the_same_name_goes_further_when_the_budget_is_raised(tune: Callable[..., katib.TuneResult]) -> None:
    first = tune(lambda x: x, X, name="mine", max_trials=2)
    same = tune(lambda x: x, X, name="mine", max_trials=2)
    more = tune(lambda x: x + 100, X, name="mine", max_trials=3)

    assert same == first
    assert more.trials[:2] == first.trials
    assert (more.trials[2].value or 0) > 100


def test_a_data_directory_that_was_moved_goes_on_with_its_names(
    tune: Callable[..., katib.TuneResult], tmp_path: Path
) -> None:
    def search(place: str, trials: int, factor: int) -> katib.TuneResult:
        return tune(lambda x: factor * x, X, name="mine", max_trials=trials, parallel=1, data_dir=tmp_path / place)

    first = search("old", 1, 1)
    (tmp_path / "old").rename(tmp_path / "new")
    again = search("new", 2, 10)

    assert again.trials[0] == first.trials[0]
    assert again.trials[1].value == 10 * again.trials[1].parameters["x"]


def test_a_search_runs_beside_an_open_experiment_of_its_program(
    tune: Callable[..., katib.TuneResult], tmp_path: Path
) -> None:
    with katib.create("asked", X, data_dir=tmp_path, algorithm="random") as experiment:
        result = tune(lambda x: x, X)
        trial = experiment.ask()

    assert len(result.trials) == 3
    assert trial is not None


def test_a_list_that_is_not_searched_is_noted(
    tune: Callable[..., katib.TuneResult], capsys: pytest.CaptureFixture[str]
) -> None:
    tune(lambda x, act: x * len(act), {**X, "act": ["relu", "tanh"]}, max_trials=1, verbose=True)

    said = "parameters[\"act\"]: each trial gets ['relu', 'tanh']; to search it, write katib.search.categorical(["
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("preload", [None, ["wave"]], ids=["jobs", "warm"])
def test_a_function_is_fixed_and_run_again_under_its_name(
    tune: Callable[..., katib.TuneResult], preload: list[str] | None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(x: float, k: int = 0) -> float:
        raise ValueError(x, k)

    def search(function: Callable[..., float], space: Mapping[str, Any] = X, **options: Any) -> katib.TuneResult:
        return tune(function, space, name="s", algorithm="grid", preload=preload, verbose=True, settings={}, **options)

    with pytest.raises(katib.TuneError):
        search(broken)
    fixed = search(lambda x: x)
    assert sorted(filter(None, values(fixed.trials))) == [0.25, 0.5, 0.75]
    assert "failed trials run again" in capsys.readouterr().err

    assert search(lambda x: 7 * x).trials == fixed.trials
    assert "raise max_trials above 3" in capsys.readouterr().err
    for space, change in (
        ({"x": katib.search.double(0.25, 2, step=0.25)}, r'parameters\["x"\]\.max changed from "1" to "2"'),
        ({**X, "k": katib.search.int(1, 2)}, r'parameters\["k"\] added'),
    ):
        with pytest.raises(InvalidError, match=f": {change}"):
            search(lambda x, k=0: x + k, space)

    again = search(lambda x, k: x * k, {**X, "k": katib.search.int(2, 2)}, restart=True)
    assert sorted(filter(None, values(again.trials))) == [0.5, 1, 1.5]
    with refused("update-immutable"):
        search(lambda x: x)
    assert katib.open("s-1", data_dir=tmp_path).best.value == 0.25


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"max_failed": 1}, "max failed count has reached", id="by too many failures"),
        pytest.param({}, "none of its 3 trials brought a value", id="every trial"),
    ],
)
def test_a_function_that_raises_is_explained_by_its_last_words(
    tune: Callable[..., katib.TuneResult], options: dict[str, Any], words: str
) -> None:
    def broken(x: float) -> float:
        raise ValueError(f"the data set is missing, x is a {type(x).__name__}")

    with pytest.raises(katib.TuneError, match=words) as caught:
        tune(broken, X, name="bad", **options)

    assert "ValueError: the data set is missing, x is a float" in str(caught.value)
    assert "bad-" in str(caught.value)


@pytest.mark.parametrize("preload", [None, ["wave"]], ids=["jobs", "warm"])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: {"accuracy": x}, 'the function returned accuracy and no loss; pass objective="accuracy"'),
        (lambda x: None, "the function neither returned loss nor called katib.report"),
        (lambda lr: lr, "the function has no argument x, so it was called with one mapping of all, which it returned"),
    ],
    ids=["another metric", "nothing", "its arguments"],
)
def test_a_function_that_brings_no_objective_is_explained(
    tune: Callable[..., katib.TuneResult], function: Callable[..., Any], words: str, preload: list[str] | None
) -> None:
    with pytest.raises(katib.TuneError, match=re.escape(words)):
        tune(function, X, objective="loss", max_trials=1, preload=preload)


@pytest.mark.parametrize("preload", [None, ["wave"]], ids=["jobs", "warm"])
def test_a_reading_without_a_name_is_of_the_objective(
    tune: Callable[..., katib.TuneResult], preload: list[str] | None
) -> None:
    def loss(x: float) -> None:
        for step in range(2):
            katib.report(x + 1 - step, step)

    result = tune(loss, X, objective="loss", algorithm="grid", settings={}, preload=preload)
    assert sorted(filter(None, values(result.trials))) == [0.25, 0.5, 0.75]


# --- a warm process ---------------------------------------------------------------------------------------------------


def test_trials_of_a_warm_process_are_like_others(tune: Callable[..., katib.TuneResult]) -> None:
    def loss(x: float, kind: tuple[int, ...], width: int = 0, *, scale: int) -> float:
        import os
        import sys

        assert "wave" in sys.modules
        for step in range(3):
            katib.report(objective=x * scale + 9 - step, step=step, seen=os.getpid())
        return x * scale + width

    space = {
        **X,
        "kind": katib.search.categorical([(1,), (2, 3)]),
        "width": katib.search.int(1, 4).when("kind", (2, 3)),
        "scale": 10,
    }
    result = tune(loss, space, max_trials=8, preload=["wave"], additional_metrics=["seen"])

    assert len({trial.metrics["seen"] for trial in result.trials}) == 8
    for trial in result.trials:
        assert trial.state == "Succeeded"
        assert trial.value == trial.parameters["x"] * 10 + trial.parameters.get("width", 0)


def test_a_warm_process_outlives_what_its_trials_do(
    tune: Callable[..., katib.TuneResult], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def loss(x: float) -> float:
        import os

        if x == 0.25:
            os.kill(os.getpid(), 9)
        if x == 0.5:
            raise ValueError("the data set is missing")
        return x

    first = [{"x": 1}, {"x": 0.25}, {"x": 0.5}, {"x": 0.75}]
    result = tune(loss, X, name="mine", max_trials=4, parallel=1, initial_trials=first, preload=[])
    trials = open_offline(tmp_path).trials("default", "mine").items

    assert [failure_of(trial) for trial in trials] == [
        "",
        "its process ended with exit code -9",
        "ValueError: the data set is missing",
        "",
    ]
    assert result.best.value == 0.75
    assert "ValueError: the data set is missing" in capfd.readouterr().err


def test_a_bad_trial_of_a_warm_process_is_stopped_early(tune: Callable[..., katib.TuneResult]) -> None:
    def curve(x: float) -> None:
        for step in range(10_000 if x == 1 else 3):
            katib.report(loss=100 * x, step=step)

    result = tune(
        curve,
        X,
        objective="loss",
        max_trials=4,
        parallel=1,
        initial_trials=[{"x": 0.25}, {"x": 0.5}, {"x": 0.75}, {"x": 1}],
        preload=[],
        early_stopping="medianstop",
        early_stopping_settings={"min_trials_required": 3, "start_step": 1},
    )

    assert [trial.state for trial in result.trials] == ["Succeeded"] * 3 + ["EarlyStopped"]


def test_a_warm_process_that_cannot_be_is_explained(
    tune: Callable[..., katib.TuneResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused("preload"):
        tune(lambda x: x, X, preload=["nonesuch"])
    (tmp_path / "broken_at_import.py").write_text("raise OSError('no card')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    with pytest.raises(katib.TuneError, match="broken_at_import"):
        tune(lambda x: x, X, preload=["broken_at_import"])


@pytest.mark.parametrize(
    ("space", "options", "words"),
    [
        pytest.param({"x": katib.search.double(2, 1)}, {}, "2 is above max 1; swap the bounds", id="bounds"),
        pytest.param({"x": katib.search.double(0, 1, log=True)}, {}, r"parameters\[.x.\].min", id="log of zero"),
        pytest.param({"x": katib.search.categorical([])}, {}, "it is empty; give a list", id="no choices"),
        pytest.param(X, {"direction": "max"}, "did you mean maximize", id="direction"),
        pytest.param(X, {"algorithm": "tpee"}, "tpe", id="algorithm"),
        pytest.param(X, {"name": "../Mine"}, "^name: ", id="name"),
        pytest.param(X, {"settings": {"sped": 1}}, "sped", id="setting"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_runs(
    tune: Callable[..., katib.TuneResult], space: dict[str, Any], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidError, match=words):
        tune(lambda x: x, space, **options)

    assert not (tmp_path / "functions").exists()
    assert not list((tmp_path / "trials").iterdir())


# --- scripts ----------------------------------------------------------------------------------------------------------

GUARDED = """
    import helper, katib

    def loss(x):
        return helper.twice(x)

    if __name__ == "__main__":
        print("script", flush=True)
        result = katib.tune(loss, {"x": katib.search.int(1, 4)}, algorithm="grid", parallel=2, max_trials=4, name="s")
        print(result.best.parameters)
"""
PLAIN = """
    import ctypes, gc, os, signal, sys, threading
    import helper, katib

    def state():
        subreaper = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
        signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        return (
            gc.get_freeze_count(), gc.get_threshold(), gc.isenabled(), sys.getswitchinterval(), subreaper.value,
            signals, dict(os.environ), os.getcwd(), threading.active_count(),
        )

    print("script", flush=True)
    before = state()
    space = {"x": katib.search.int(1, 4)}
    result = katib.tune(helper.twice, space, algorithm="grid", parallel=2, max_trials=4, name="s", verbose=False)
    changed = [pair for pair in zip(before, state()) if pair[0] != pair[1]]
    assert not changed, changed  # the interpreter of the caller stays as it was
    print(result.best.parameters)
"""
HELPER = "FACTOR = 2\n\ndef twice(x):\n    return FACTOR * x\n"


def script(launch: Launch, directory: Path, text: str, **env: str) -> subprocess.Popen[str]:
    (directory / "helper.py").write_text(HELPER)
    (directory / "script.py").write_text(textwrap.dedent(text))
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    return launch(
        [sys.executable, "../script.py"],
        cwd=elsewhere,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(("text", "times"), [(GUARDED, 2), (PLAIN, 1)], ids=["with a main guard, twice", "plain"])
def test_a_script_is_run_once_and_its_trials_do_not_run_it_again(
    text: str, times: int, tmp_path: Path, launch: Launch
) -> None:
    for _ in range(times):  # run again, it shows the same result
        process = script(launch, tmp_path, text)
        output, _ = process.communicate(timeout=180)

        assert process.returncode == 0, output
        assert output.splitlines().count("script") == 1
        assert output.splitlines()[-1] == "{'x': 1}"
        logs = list((tmp_path / "elsewhere" / ".katib" / "trials").rglob("*.log"))
        assert sorted(log.read_text() for log in logs) == [f"objective={2.0 * x}\n" for x in range(1, 5)]


def test_beside_a_search_of_the_directory_it_waits_and_says_so(
    tmp_path: Path, launch: Launch, tune: Callable[..., katib.TuneResult], capsys: pytest.CaptureFixture[str]
) -> None:
    other = script(
        launch,
        tmp_path,
        "import katib, time; katib.tune(lambda x: time.sleep(5), {'x': katib.search.double(0, 1)}, data_dir='..', "
        "max_trials=1)",
    )
    eventually(lambda: holder_of(tmp_path) is not None)

    result = tune(lambda x: x, X)

    assert other.poll() is not None or holder_of(tmp_path) is None
    assert len(values(result.trials)) == 3
    said = capsys.readouterr().err
    words = rf"waiting for script.py \(process {other.pid}\), which works in .*; data_dir= with .*\n"
    assert re.fullmatch(words, said), said


def test_a_search_that_was_left_does_not_go_on_beside_another(tmp_path: Path, launch: Launch) -> None:
    space = "{'x': katib.search.double(0, 1)}"
    text = f"import katib, time; katib.tune(lambda x: time.sleep(%d) or x, {space}, max_trials=1)"
    left = script(launch, tmp_path, text % 600, PYTHONUNBUFFERED="1")
    assert left.stdout is not None
    name = next(line.split()[1] for line in left.stdout if " started" in line).rpartition("-")[0]
    left.kill()
    left.communicate()

    output, _ = script(launch, tmp_path, text % 2).communicate(timeout=180)

    assert name not in output
    assert state_of(open_offline(tmp_path / "elsewhere" / ".katib").get(Experiment, "default", name)) == "Interrupted"


@pytest.mark.parametrize("preload", [None, ["wave"]], ids=["jobs", "warm"])
def test_beside_a_server_of_the_directory_that_server_runs_it(
    tmp_path: Path, preload: list[str] | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "offset").write_text("2")
    monkeypatch.chdir(tmp_path / "here")
    data_dir = tmp_path / ".katib"

    def search(factor: int, most: int, trials: int, **options: Any) -> katib.TuneResult:
        def loss(x: int) -> int:
            return factor * x + int(Path("offset").read_text())

        space = {"x": katib.search.int(1, most)}
        return katib.tune(
            loss, space, data_dir=data_dir, name="s", algorithm="grid", max_trials=trials, preload=preload, **options
        )

    with a_server(tmp_path):
        result = search(1, 4, 2)
        with pytest.raises(InvalidError, match=r'parameters\["x"\]\.'):
            search(1000, 5, 4)
        further = search(10, 4, 4)

    assert sorted(filter(None, values(result.trials))) == [3, 4]
    assert sorted(filter(None, values(further.trials))) == [3, 4, 32, 42]
    assert ("Ctrl-C" in capsys.readouterr().err) is (preload is None)


INTERRUPTED = "interrupted: what s has found is kept in .katib; the same call with name='s' continues from there"


def test_an_interrupt_leaves_nothing_of_a_warm_process_running_and_the_next_run_goes_on(
    tmp_path: Path, launch: Launch
) -> None:
    text = """
        import os, time, katib

        def loss(x, slow):
            print("started", flush=True)
            if slow:
                time.sleep(60)
            return x

        result = katib.tune(
            loss, {"x": katib.search.int(1, 4), "slow": os.environ.get("SLOW")}, algorithm="grid", parallel=2,
            max_trials=2, name="s", preload=["wave"],
        )
        print(len(result.trials))
    """
    mark = f"test-{os.urandom(8).hex()}"
    process = script(launch, tmp_path, text, TEST_MARKER=mark, SLOW="1")
    assert process.stdout is not None
    while "started" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=180)

    assert process.returncode != 0
    assert "KeyboardInterrupt" in output
    assert INTERRUPTED in output
    eventually(lambda: not marked_processes(f"TEST_MARKER={mark}"))

    process = script(launch, tmp_path, text)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    assert output.splitlines()[-1] == "2"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_a_trial_that_is_cut_off_goes_on_from_its_checkpoint_when_the_same_call_is_made_again(
    tmp_path: Path, launch: Launch, end: signal.Signals
) -> None:
    text = """
        import time, katib
        from pathlib import Path

        def train(x):
            folder = katib.checkpoint_dir()
            file, starts = folder / "step", folder / "starts"
            step = int(file.read_text()) if file.exists() else 0
            with starts.open("a") as lines:
                lines.write(f"{step} ")
            while step < 6:
                step += 1
                katib.report(loss=x - step, step=step)
                if step == 2:
                    file.write_text("2")
                while step == 4 and not Path("../go").exists():
                    time.sleep(0.02)

        assert katib.checkpoint_dir() is None
        katib.tune(
            train, {"x": katib.search.int(1, 3)}, objective="loss", algorithm="grid", max_trials=3, parallel=2,
            name="s", checkpoint=True,
        )
    """
    mark = f"test-{os.urandom(8).hex()}"
    process = script(launch, tmp_path, text, TEST_MARKER=mark)
    home = tmp_path / "elsewhere" / ".katib"
    logs = partial((home / "trials").rglob, "function.log")
    eventually(lambda: sum("step=4" in log.read_text() for log in logs()) == 2, "four steps of two")
    first, waiting = (path.name for path in (home / "checkpoints/default/s").glob("[!.]*"))
    paused = katib_here("pause", waiting, "--data-dir", str(home), cwd=tmp_path)
    eventually(lambda: len(list(logs())) == 3, "a trial in the place of the paused one")
    process.send_signal(end)
    output, _ = process.communicate(timeout=180)
    assert ("KeyboardInterrupt" in output and INTERRUPTED in output) == (end == signal.SIGINT), output
    assert "in _follow" not in output
    left = open_offline(home)
    eventually(lambda: state_of(left.get(Experiment, "default", "s")) == "Interrupted")
    eventually(lambda: not marked_processes(f"TEST_MARKER={mark}"))
    (tmp_path / "go").touch()

    process = script(launch, tmp_path, text)
    service = open_offline(home)
    eventually(lambda: service.get(Trial, "default", first).status.completion_time, "the end of the first trial")
    resumed = katib_here("resume", waiting, "--data-dir", str(home), cwd=tmp_path)
    output, _ = process.communicate(timeout=180)

    assert (paused.returncode, resumed.returncode, process.returncode) == (0, 0, 0), output
    starts = {path.parent.name: path.read_text().split() for path in (home / "checkpoints").rglob("starts")}
    assert (starts[first], starts[waiting]) == (["0", "2"], ["0", "2"])
    for trial in starts:
        assert [reading.step for reading in service.metrics("default", trial, metric="loss")] == [1, 2, 3, 4, 5, 6]


def test_trials_of_a_warm_process_have_no_checkpoint(tune: Callable[..., katib.TuneResult]) -> None:
    with refused("preload"):
        tune(lambda x: x, X, preload=[], checkpoint=True)


# --- examples ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_example_of_a_function_finds_a_good_forest(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    example = tmp_path / "tune_function.py"
    text = (ROOT / "examples" / "python" / "tune_function.py").read_text()
    assert "max_trials=12" in text
    example.write_text(text.replace("max_trials=12", "max_trials=2"))  # the other ten take time and prove no more
    done = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("best accuracy 0."), last
    assert float(last.split()[2]) > 0.8, last


def test_a_function_reports_a_curve_by_steps_and_what_it_returns_ends_it(
    tune: Callable[..., katib.TuneResult], tmp_path: Path
) -> None:
    def train(x: float) -> float:
        for step in (1, 2):
            katib.report(loss=x / step, step=step)
        return x / 4

    result = tune(train, X, objective="loss", max_trials=1)
    readings = open_offline(tmp_path).metrics("default", result.best.name, metric="loss")

    assert [reading.step for reading in readings] == [1, 2, 2]
    assert float(readings[-1].value) == result.best.value


def test_the_argument_of_an_absent_parameter_is_not_passed(tune: Callable[..., katib.TuneResult]) -> None:
    def loss(optimizer: str, momentum: float | None = None, **nested: bool) -> float:
        assert (momentum is not None) == (optimizer == "sgd")
        assert bool(nested) == (momentum == 0.9)
        return 1.0 if momentum is None else 1 - momentum

    space = {
        "nesterov": katib.search.categorical([True, False]).when("momentum", 0.9),
        "momentum": katib.search.discrete([0, 0.5, 0.9]).when("optimizer", "sgd"),
        "optimizer": katib.search.categorical(["adam", "sgd"]),
    }
    result = tune(loss, space, algorithm="grid", settings={}, max_trials=5, parallel=2)

    assert sorted(tuple(trial.parameters.items()) for trial in result.trials) == [
        (("momentum", 0), ("optimizer", "sgd")),
        (("momentum", 0.5), ("optimizer", "sgd")),
        (("nesterov", False), ("momentum", 0.9), ("optimizer", "sgd")),
        (("nesterov", True), ("momentum", 0.9), ("optimizer", "sgd")),
        (("optimizer", "adam"),),
    ]
    assert {trial.state for trial in result.trials} == {"Succeeded"}


def test_a_wrong_condition_of_a_function_is_refused_before_anything_runs(
    tune: Callable[..., katib.TuneResult], golden: Golden
) -> None:
    space = {"optimizer": katib.search.categorical(["adam", "sgd"]), "x": X["x"].when("optimizer", "sdg")}

    with refused("condition-value-unknown"):
        tune(lambda optimizer, x=0: x, space)
    with golden.raises(TypeError):
        tune(lambda optimizer, x: x, space)
