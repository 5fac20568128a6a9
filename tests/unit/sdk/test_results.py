"""What `import katib` offers, parameters of functions, and what an experiment found."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import katib
from katib.doors.cli import options
from katib.errors import InvalidError
from katib.sdk import homes, search
from katib.sdk.homes import ExperimentPlace
from katib.sdk.results import TrialResult, TuneResult
from tests.support.golden import Golden

BEST = TrialResult("demo-b", "Succeeded", {"lr": 0.125, "act": "relu"}, 0.9, {"accuracy": 0.9}, {"loss": 0.25})
OTHER = TrialResult("demo-a", "Succeeded", {"lr": 0.5, "act": "tanh"}, 0.75, {"accuracy": 0.75}, {"loss": 0.5})
FAILED = TrialResult("demo-c", "Failed", {"lr": 1.0, "act": "<b>"}, None, {"accuracy": None}, {"loss": None})


def result(**more: Any) -> TuneResult:
    fields: dict[str, Any] = {
        "name": "demo",
        "reason": "done",
        "objectives": {"accuracy": "maximize"},
        "trials": (OTHER, BEST, FAILED),
        "place": ExperimentPlace(Path("data")),
        "_best": BEST,
    }
    return TuneResult(**{**fields, **more})


def test_a_result_is_printed_as_its_best_trials_or_with_the_reason(golden: Golden) -> None:
    golden(repr(result()).splitlines())

    nothing = result(trials=(FAILED,), nothing="demo: none of 1 trials brought a value", _best=None)

    golden(repr(nothing))
    with golden.raises(katib.TuneError):
        nothing.best  # noqa: B018 - reading it is the test


def test_several_objectives_are_shown_by_the_pareto_set_and_texts_are_no_markup() -> None:
    first = TrialResult("demo-d", "Succeeded", {"lr": 0.25}, 0.5, {"accuracy": 0.5, "seconds": 1.0})
    several = result(objectives={"accuracy": "maximize", "seconds": "minimize"}, pareto=(first,), _best=first)

    assert repr(several).splitlines()[1:] == ["  trial   accuracy  seconds  lr", "  demo-d  0.5       1        0.25"]

    worst = TrialResult("demo-c", "Succeeded", {"act": "<b>"}, 0.5, {"accuracy": 0.5})
    shown = result(trials=(worst,), _best=worst)._repr_html_()

    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_the_trials_are_a_table_of_pandas() -> None:
    pytest.importorskip("pandas")
    table = result().dataframe()

    assert list(table.columns) == ["trial", "state", "accuracy", "loss", "params_lr", "params_act"]
    assert list(table["trial"]) == ["demo-a", "demo-b", "demo-c"]
    assert list(table["params_lr"]) == [0.5, 0.125, 1.0]
    assert table["accuracy"].isna().tolist() == [False, False, True]


def test_a_notebook_shows_the_history_as_a_picture_without_scripts() -> None:
    shown = result()._repr_html_()

    assert 'aria-label="History: best so far 0.9"' in shown
    assert shown.count("<circle") == 2
    assert "<script" not in shown
    assert "<svg" not in result(trials=(BEST,))._repr_html_()


def test_notebooks_look_for_a_server_where_the_command_line_does() -> None:
    assert homes.DEFAULT_SERVER == options.DEFAULT_SERVER


@pytest.mark.parametrize(
    ("parameter", "kind", "space"),
    [
        pytest.param(search.double(1e-5, 1), "double", {"min": "1e-05", "max": "1"}, id="double"),
        pytest.param(search.double(0, 1, step=0.25), "double", {"min": "0", "max": "1", "step": "0.25"}, id="step"),
        pytest.param(
            search.double(0.1, 1, log=True),
            "double",
            {"min": "0.1", "max": "1", "distribution": "logUniform"},
            id="log",
        ),
        pytest.param(search.int(1, 9), "int", {"min": "1", "max": "9"}, id="int"),
        pytest.param(search.int(0, 9, step=3), "int", {"min": "0", "max": "9", "step": "3"}, id="int with step"),
        pytest.param(search.categorical(["a", 2]), "categorical", {"list": ["a", "2"]}, id="categorical"),
        pytest.param(search.discrete([0.5, 1]), "discrete", {"list": ["0.5", "1"]}, id="discrete"),
    ],
)
def test_a_parameter_is_written_as_katib_has_it(parameter: search.Parameter, kind: str, space: dict[str, Any]) -> None:
    assert parameter.spec("x") == {"name": "x", "parameterType": kind, "feasibleSpace": space}


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        pytest.param(search.double(0, 1), "0.5", 0.5, id="double"),
        pytest.param(search.double(0, 1), "1", 1.0, id="whole double"),
        pytest.param(search.int(0, 9), "7", 7, id="int"),
        pytest.param(search.discrete([0.5, 1]), "1", 1, id="discrete"),
        pytest.param(search.categorical([None, "x"]), "None", None, id="None"),
        pytest.param(search.categorical([True, False]), "False", False, id="bool"),
        pytest.param(search.categorical([(64, 32), (8,)]), "(64, 32)", (64, 32), id="tuple"),
        pytest.param(search.categorical([Fraction(1, 3)]), "1/3", Fraction(1, 3), id="object"),
    ],
)
def test_a_value_comes_back_with_its_type(parameter: search.Parameter, text: str, value: Any) -> None:
    found = parameter.value(text)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("choices", [(1, "1"), ("None", None), ("a", "a")], ids=["number", "none", "twice"])
def test_choices_that_read_the_same_are_refused(choices: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidError, match="same text") as caught:
        search.categorical(choices)

    assert repr(choices[0]) in str(caught.value)
    assert repr(choices[1]) in str(caught.value)


def test_a_condition_is_written_as_an_experiment_has_it() -> None:
    free = search.int(1, 9)
    parameter = free.when("widths", (64, 32), (8,))

    assert parameter.spec("x") == {**free.spec("x"), "when": {"parameter": "widths", "values": ["(64, 32)", "(8,)"]}}
    assert "when" not in free.spec("x")


def test_every_name_is_what_it_says_whichever_is_asked_for_first() -> None:
    """In a process each that has imported what we build on, and nothing of ours."""
    code = (
        "import gc; gc.disable()\n"
        "import os, types, cloudpickle, grpc, msgspec, numpy, pydantic, re2, sqlalchemy, yaml\n"
        "names = ('TuneError', 'TuneResult', 'callbacks', 'open', 'plots', 'report', 'search', 'tune')\n"
        "first = next((name for name in names if not os.fork()), None)\n"
        "if first is None:\n"
        "    raise SystemExit(any([os.wait()[1] for _ in names]))\n"
        "import katib as k; getattr(k, first)\n"
        "assert callable(k.tune) and callable(k.report), first\n"
        "assert isinstance(k.search, types.ModuleType) and isinstance(k.callbacks, types.ModuleType), first\n"
        "assert isinstance(k.plots, types.ModuleType), first\n"
        "assert issubclass(k.TuneError, Exception) and isinstance(k.TuneResult, type), first\n"
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_a_name_is_listed_before_it_is_used_or_an_attribute_error() -> None:
    code = "import katib, katib.sdk; print(dir(katib), dir(katib.sdk))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "'open', 'plots', 'report', 'search', 'tune'" in done.stdout

    import katib
    import katib.sdk

    for module in (katib, katib.sdk):
        with pytest.raises(AttributeError, match="has no attribute 'tunes'"):
            module.tunes  # noqa: B018 - reading it is the test
