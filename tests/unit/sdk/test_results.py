"""What an experiment found, in a terminal, a notebook and a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import katib
from katib.cli import options
from katib.sdk import homes
from katib.sdk.homes import Place
from katib.sdk.results import TrialResult, TuneResult

BEST = TrialResult("demo-b", "Succeeded", {"lr": 0.125, "act": "relu"}, 0.9, {"accuracy": 0.9}, {"loss": 0.25})
OTHER = TrialResult("demo-a", "Succeeded", {"lr": 0.5, "act": "tanh"}, 0.75, {"accuracy": 0.75}, {"loss": 0.5})
FAILED = TrialResult("demo-c", "Failed", {"lr": 1.0, "act": "<b>"}, None, {"accuracy": None}, {"loss": None})


def result(**more: Any) -> TuneResult:
    fields: dict[str, Any] = {
        "name": "demo",
        "reason": "done",
        "objectives": {"accuracy": "maximize"},
        "trials": (OTHER, BEST, FAILED),
        "place": Place(Path("data")),
        "_best": BEST,
    }
    return TuneResult(**{**fields, **more})


def test_a_result_is_printed_as_its_best_trials() -> None:
    assert repr(result()).splitlines() == [
        "demo: maximize accuracy, 3 trials",
        "  trial   accuracy  lr     act",
        "  demo-b  0.9       0.125  relu",
        "  demo-a  0.75      0.5    tanh",
    ]


def test_without_a_value_it_is_printed_with_the_reason() -> None:
    nothing = result(trials=(FAILED,), nothing="demo: none of 1 trials brought a value", _best=None)

    assert repr(nothing) == "demo: maximize accuracy, 1 trial\n  demo: none of 1 trials brought a value"
    with pytest.raises(katib.TuneError, match="none of 1 trials brought a value"):
        nothing.best  # noqa: B018 - reading it is the test


def test_several_objectives_are_shown_by_the_pareto_set() -> None:
    first = TrialResult("demo-d", "Succeeded", {"lr": 0.25}, 0.5, {"accuracy": 0.5, "seconds": 1.0})
    several = result(objectives={"accuracy": "maximize", "seconds": "minimize"}, pareto=(first,), _best=first)

    assert repr(several).splitlines()[1:] == ["  trial   accuracy  seconds  lr", "  demo-d  0.5       1        0.25"]


def test_texts_of_parameters_are_no_markup() -> None:
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
