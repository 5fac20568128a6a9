"""Tuning in a notebook, run cell by cell in a kernel of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import katib

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


def test_cells_that_fail_show_no_lines_of_ours_and_may_run_again(tmp_path: Path) -> None:
    loop = """
for trial in katib.create("asked", {"x": katib.search.double(0, 1)}, max_trials=3, data_dir=DATA).ask_until_done():
    trial.tell(value(trial.parameters["x"]))
print(katib.open(data_dir=DATA).trials)
"""
    cells = (
        f"DATA = {str(tmp_path / 'data')!r}; import katib",
        "katib.tune('train.py', {'x': katib.search.double(0, 1)}, data_dir=DATA)",
        "katib.open('nope', data_dir=DATA)",
        loop,
        f"value = float\n{loop}",
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=120, resources=resources, allow_errors=True).execute()

    (wrong,), (missing,), (failed,), (fixed,) = (cell.outputs for cell in book.cells[1:])
    errors = (wrong, missing, failed)
    assert [one["ename"] for one in errors] == ["CallError", "UnavailableError", "NameError"]
    for one in errors:
        assert "site-packages" not in (shown := "\n".join(one["traceback"]))
        assert str(Path(katib.__file__).parent) not in shown, shown
    assert fixed["text"].count("Succeeded") == 3


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
    assert " cells-" in page
    assert "cells: minimize objective" in table["data"]["text/html"]
    assert "History: best so far" in table["data"]["text/html"]
    assert table["data"]["text/plain"].startswith("cells: minimize objective")
    assert opened["text"] == "True 4\n"
    assert refusal["evalue"].startswith('parameters["x"]: (0, 1) ')
