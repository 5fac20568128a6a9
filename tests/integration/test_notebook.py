"""Tuning in a notebook, run cell by cell in a kernel of its own."""

from __future__ import annotations

from pathlib import Path

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


def test_cells_show_one_bar_a_table_and_the_history_and_a_wrong_call_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ipywidgets")
    cells = (
        f"DATA = {str(tmp_path / 'data')!r}; import sys",
        TUNE.replace("cells", "widget"),
        "sys.modules['ipywidgets'] = None",
        TUNE,
        "result",
        "again = katib.open('cells', data_dir=DATA); print(again.best == result.best, len(again.dataframe()))",
        "katib.tune(lambda x: x, {'x': (0, 1)})",
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=120, resources=resources, allow_errors=True).execute()

    (widget,), _, (bar,), (table,), (opened,), (refusal,) = (cell.outputs for cell in book.cells[1:])
    assert "application/vnd.jupyter.widget-view+json" in widget["data"]
    page = bar["data"]["text/html"]
    assert "4 of 4 trials" in page
    assert 'value="4" max="4"' in page
    assert "best so far is cells-" in page
    assert "cells: minimize objective, 4 trials" in table["data"]["text/html"]
    assert "History: best so far" in table["data"]["text/html"]
    assert table["data"]["text/plain"].startswith("cells: minimize objective, 4 trials\n  trial ")
    assert opened["text"] == "True 4\n"
    assert refusal["evalue"].startswith('parameters["x"]: (0, 1) is not a search space')
