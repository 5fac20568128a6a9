from __future__ import annotations

from tools.plot_functions import MODULE, source


def test_every_figure_of_the_catalogue_has_its_function_and_its_method() -> None:
    assert source() == MODULE.read_text(), "run python -m tools.plot_functions"
