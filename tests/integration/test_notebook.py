"""Tuning in a notebook, run cell by cell in a kernel of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

TUNE = """
import katib

def loss(x, act):
    return (x - 0.5) ** 2 + (act == "tanh")

result = katib.tune(
    loss, {"x": katib.search.double(0, 1), "act": katib.search.categorical(["relu", "tanh"])},
    max_trials=4, parallel=2, algorithm="random", settings={"random_state": 1}, name="cells", data_dir=DATA,
)
"""


def run(directory: Path, *cells: str) -> list[list[Any]]:
    """Run cells and return the outputs of each."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(directory)}}).execute()
    return [cell.outputs for cell in book.cells]


def test_a_run_shows_one_bar_and_its_result_a_table_and_the_history(tmp_path: Path) -> None:
    data = f"DATA = {str(tmp_path / 'data')!r}"
    without_widgets = "import sys; sys.modules['ipywidgets'] = None"
    _, bar, shown, opened = run(
        tmp_path,
        f"{data}; {without_widgets}",
        TUNE,
        "result",
        "again = katib.open('cells', data_dir=DATA); print(again.best == result.best, len(again.dataframe()))",
    )

    (output,) = bar
    page = output["data"]["text/html"]
    assert "4 of 4 trials" in page
    assert 'value="4" max="4"' in page
    assert "best so far is cells-" in page
    (table,) = shown
    assert "cells: minimize objective, 4 trials" in table["data"]["text/html"]
    assert "History: best so far" in table["data"]["text/html"]
    assert table["data"]["text/plain"].startswith("cells: minimize objective, 4 trials\n  trial ")
    assert opened[0]["text"] == "True 4\n"


def test_the_bar_is_a_widget_where_widgets_are_installed(tmp_path: Path) -> None:
    pytest.importorskip("ipywidgets")
    _, bar = run(tmp_path, f"DATA = {str(tmp_path / 'data')!r}", TUNE)

    (output,) = bar
    assert "application/vnd.jupyter.widget-view+json" in output["data"]


def test_a_wrong_call_ends_in_one_line_about_its_argument(tmp_path: Path) -> None:
    with pytest.raises(
        nbclient.exceptions.CellExecutionError, match=r'parameters\["x"\]: \(0, 1\) is not a search space'
    ):
        run(tmp_path, "import katib\nkatib.tune(lambda x: x, {'x': (0, 1)})")
