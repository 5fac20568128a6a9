from __future__ import annotations

from katib.cli import options
from katib.sdk import homes
from tools.plot_functions import STUB, source


def test_every_figure_of_the_catalogue_has_its_function_and_its_method() -> None:
    assert source() == STUB.read_text(), "run python -m tools.plot_functions"


def test_notebooks_look_for_a_server_where_the_command_line_does() -> None:
    assert homes.DEFAULT_SERVER == options.DEFAULT_SERVER
