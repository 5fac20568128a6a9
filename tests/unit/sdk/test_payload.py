"""A function on its way to the trial's process, and how it is called there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from katib.sdk import report, search
from katib.sdk.payload import Payload, check_defaults, takes_mapping
from katib.sdk.trial import called, evaluate, file_here, lines_of
from tests.support.golden import Golden

ROOT = Path(__file__).parents[3]
SPACE = {"lr": search.double(0, 1), "act": search.categorical(["relu", None])}


def payload(function: Callable[..., Any], **more: Any) -> Payload:
    return Payload(function, more.pop("parameters", SPACE), more, more.pop("objectives", ("loss",)))


def run(function: Callable[..., Any], directory: Path, *words: str, **more: Any) -> None:
    """Run a trial of a function in this process."""
    path = directory / "f.pickle"
    Payload.save(path, payload(function, **more).pickled())
    evaluate(Payload.load(path)[0], words)


@pytest.mark.parametrize(
    ("function", "wants"),
    [
        pytest.param(lambda lr, act: 0, False, id="by name"),
        pytest.param(lambda **kw: 0, False, id="any names"),
        pytest.param(lambda lr, act, more=1: 0, False, id="with a default"),
        pytest.param(lambda config: 0, True, id="one mapping"),
    ],
)
def test_a_function_is_called_as_its_signature_asks(function: Callable[..., Any], *, wants: bool) -> None:
    assert takes_mapping(function, SPACE) is wants


def test_a_function_that_fits_neither_way_is_refused_with_its_signature() -> None:
    def train(alpha: float, beta: float) -> float:
        return alpha + beta

    with pytest.raises(TypeError, match=r"train\(alpha.*must take lr, act by name, or one mapping"):
        takes_mapping(train, SPACE)


async def awaited(lr: float, act: str) -> float:
    return lr


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param(max, "max does not say which arguments it takes", id="no signature"),
        pytest.param("train.py", "'train.py' is not a function; a program is tuned by `katib tune`", id="program"),
        pytest.param(awaited, r"awaited is a coroutine function.*asyncio.run\(awaited\(", id="coroutine"),
    ],
)
def test_what_cannot_be_called_with_arguments_is_refused(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        takes_mapping(function, SPACE)


def test_a_function_that_cannot_travel_is_refused_with_what_to_do() -> None:
    lock = threading.Lock()

    with pytest.raises(TypeError, match=r"<lambda> cannot be sent to its trials: cannot pickle .*; make locks, open"):
        payload(lambda lr, act: lock).pickled()


@pytest.mark.parametrize(
    ("result", "printed"),
    [
        pytest.param(0.5, "loss=0.5\n", id="number"),
        pytest.param(3, "loss=3.0\n", id="whole number"),
        pytest.param({"loss": 1, "acc": 0.25}, "loss=1.0 acc=0.25\n", id="mapping"),
        pytest.param(float("nan"), "loss=nan\n", id="nan"),
        pytest.param(np.array([[0.5]]), "loss=0.5\n", id="array of one number"),
    ],
)
def test_what_a_function_returns_is_reported(
    result: Any, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(lambda lr, act: result, tmp_path, "lr=0.5", "act=relu")

    assert capsys.readouterr().out == printed


def test_a_tuple_is_the_values_of_several_objectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(lambda lr, act: (1, 2), tmp_path, "lr=0.5", "act=relu", objectives=("loss", "seconds"))

    assert capsys.readouterr().out == "loss=1.0 seconds=2.0\n"


def test_a_function_that_returns_and_reports_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr("katib.sdk.reporting._known_names", set())
    run(lambda lr, act: None, tmp_path, "lr=0.5", "act=relu")
    run(lambda lr, act: report(loss=lr), tmp_path, "lr=0.5", "act=relu")
    shown = capsys.readouterr()

    golden(shown.err)
    assert shown.out == "loss=0.5\n"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        pytest.param("good", "returned str; return a number, a mapping of metrics, or None", id="text"),
        pytest.param(
            (1, 2),
            "returned tuple; return a number, .*; for several objectives pass objectives=",
            id="tuple for one objective",
        ),
        pytest.param(np.array([1, 2]), r"loss: ndarray array\(\[1, 2\]\) is not one number", id="array"),
        pytest.param({"loss": "high"}, "loss: str 'high' is not one number", id="text in a mapping"),
    ],
)
def test_any_other_result_is_an_error_that_says_what_to_return(result: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=words):
        run(lambda lr, act: result, tmp_path, "lr=0.5", "act=relu")


def test_a_mapping_that_is_taken_for_a_trial_of_optuna_says_how_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"'suggest_float'; use katib.search.double.* and trial\[\"x\"\] here"):
        run(lambda trial: trial.suggest_float("lr", 0, 1), tmp_path, "lr=0.5", "act=relu")
    with pytest.raises(AttributeError, match=r"has no attribute 'lr'; use \['lr'\]$"):
        run(lambda config: config.lr, tmp_path, "lr=0.5", "act=relu")
    with pytest.raises(AttributeError, match=r"'str' object has no attribute 'suggest_float'$"):
        run(lambda trial: trial["act"].suggest_float("lr"), tmp_path, "lr=0.5", "act=relu")


def test_a_mapping_that_is_taken_for_a_number_says_why_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"'dict'.*; the function has no argument lr, so it was called"):
        run(lambda x: x / 2, tmp_path, "lr=0.5", "act=relu")
    with pytest.raises(TypeError, match=r"^can only concatenate str \(not \"int\"\) to str$"):
        run(lambda trial: trial["act"] + 1, tmp_path, "lr=0.5", "act=relu")


def test_the_function_is_read_where_the_data_directory_of_the_trial_is_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, value in (("old", 1), ("new", 2)):
        path = tmp_path / place / "functions" / "f.pickle"
        Payload.save(path, payload(lambda lr, act, value=value: value).pickled())
    file, words = tmp_path / "old/functions/f.pickle", ["lr=0.5", "act=relu"]
    evaluate(Payload.load(file_here(file))[0], words)
    monkeypatch.setenv("KATIB_TRIAL_DIR", str(tmp_path / "new/trials/default/f-1/f-1-pod"))
    evaluate(Payload.load(file_here(file))[0], words)

    assert capsys.readouterr().out == "loss=1.0\nloss=2.0\n"


def test_the_lines_of_an_error_are_those_of_the_function(tmp_path: Path) -> None:
    def broken(lr: float, act: str) -> float:
        raise ValueError(lr)

    with pytest.raises(ValueError, match=r"^0\.5$") as caught:
        called(payload(broken), {"lr": 0.5, "act": "relu"})
    shown = lines_of(caught.value.with_traceback(caught.tb.tb_next))

    assert shown.count("  File ") == 1
    assert ", in broken\n" in shown
    assert shown.endswith("ValueError: 0.5\n")


def test_arguments_have_their_types_and_constants_come_along(tmp_path: Path) -> None:
    def check(lr: float, act: str | None, data: list[int]) -> None:
        assert (lr, act, data) == (0.5, None, [1, 2])

    run(check, tmp_path, "lr=0.5", "act=None", data=[1, 2])


CONDITIONAL = {
    "optimizer": search.categorical(["adam", "sgd"]),
    "momentum": search.double(0, 1).when("optimizer", "sgd"),
    "lr": search.double(0, 1),
}


def test_the_arguments_of_absent_parameters_are_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(**arguments: Any) -> int:
        return len(arguments)

    run(check, tmp_path, "optimizer=adam", "lr=0.5", parameters=CONDITIONAL)
    run(check, tmp_path, "optimizer=sgd", "momentum=0.9", "lr=0.5", parameters=CONDITIONAL)

    assert capsys.readouterr().out == "loss=2.0\nloss=3.0\n"


def test_a_word_of_no_parameter_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lr=1 is not an argument"):
        run(lambda **_: 0, tmp_path, "optimizer=adam", "lr=0.5", "lr=1", parameters=CONDITIONAL)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda optimizer, lr, momentum=0: 0, id="default"),
        pytest.param(lambda optimizer, **rest: 0, id="any names"),
        pytest.param(lambda config: 0, id="one mapping"),
    ],
)
def test_a_function_can_do_without_what_is_absent(function: Callable[..., Any]) -> None:
    check_defaults(function, {**CONDITIONAL})


def test_a_function_that_needs_what_may_be_absent_is_refused() -> None:
    def train(optimizer: str, momentum: float, lr: float) -> float:
        return momentum * lr * len(optimizer)

    with pytest.raises(TypeError, match=r"train\(optimizer.* needs a default for momentum: trials without a value"):
        check_defaults(train, CONDITIONAL)


@pytest.mark.parametrize("name", ["lr-max", "a.b", "a=b", "a b", "--x"])
def test_names_may_be_awkward(name: str, tmp_path: Path) -> None:
    def check(config: Mapping[str, float]) -> None:
        assert config == {name: 0.25}

    made = payload(check, parameters={name: search.double(0, 1)})
    run(check, tmp_path, *made.words(lambda _name: "0.25"), parameters={name: search.double(0, 1)})


def test_a_choice_may_contain_an_equals_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = {"flag": search.categorical(["a=1", "flag=2"])}
    run(lambda flag: 0 if flag == "flag=2" else 1, tmp_path, "flag=flag=2", parameters=space)

    assert capsys.readouterr().out == "loss=0.0\n"


def test_saving_again_replaces_the_function_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "functions" / "f.pickle"
    for number in (1, 2):
        Payload.save(path, payload(lambda lr, act, number=number: number).pickled())

    assert Payload.load(path)[0].function(0, 0) == 2
    assert [p.name for p in path.parent.iterdir()] == ["f.pickle"]


PROGRAM = """
import multiprocessing
import sys
from pathlib import Path
from katib.sdk.payload import Payload
from katib.sdk.search import categorical, double

FACTOR = 2.0

class Scale:
    def __call__(self, x):
        return x * FACTOR

class Unnamed(Scale):
    pass

def report(x):  # as a name of ours
    return Scale()(x)

def train(lr, method, given):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return sum(pool.map(report, [lr, lr]) + pool.map(Scale(), [lr]) + pool.map(given, [lr]))

if __name__ == "__main__":
    space = {"lr": double(0, 1), "method": categorical(["fork", "spawn", "forkserver"])}
    Payload.save(Path(sys.argv[1]), Payload(train, space, {"given": Unnamed()}, ("loss",)).pickled())
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_a_function_starts_find_the_names_of_its_program(tmp_path: Path, method: str) -> None:
    """As in the program itself, which may be gone, or a notebook."""
    program, file = tmp_path / "program.py", tmp_path / "f.pickle"
    program.write_text(PROGRAM)
    subprocess.run([sys.executable, program, file], check=True, cwd=ROOT)
    program.unlink()
    command = [sys.executable, "-m", "katib.sdk.trial", file, "lr=0.5", f"method={method}"]
    trial = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (trial.stdout, trial.stderr, trial.returncode) == ("loss=4.0\n", "", 0)


def test_a_trial_starts_without_importing_an_engine() -> None:
    """A trial may last a tenth of a second; what it imports is paid by each."""
    code = "import sys, katib.sdk.trial; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    assert not loaded & {
        "katib.places.machine",
        "katib.sdk.tuning",
        "katib.model.types",
        "pydantic",
        "sqlalchemy",
        "grpc",
        "click",
    }


def test_report_prints_all_metrics_in_one_line_at_full_precision(capsys: pytest.CaptureFixture[str]) -> None:
    import katib

    katib.report(loss=0.1 + 0.2, acc=1)

    assert capsys.readouterr().out == "loss=0.30000000000000004 acc=1.0\n"
