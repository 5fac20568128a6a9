"""Write katib/sdk/plots.pyi, the signatures of the functions and methods that `katib.sdk.plots` makes.

python -m tools.plot_functions           write it
python -m tools.plot_functions --check   only say whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from katib.figures.catalogue import COMPARISON, FIGURES
from katib.sdk.plots import ARGUMENTS, PLACE

STUB = Path(__file__).parents[1] / "katib" / "sdk" / "plots.pyi"

_HEAD = """# Written by tools/plot_functions.py.
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import plotly.graph_objects as go

from katib.sdk.drawing import KeptExperiment

class ResultPlots:
    def __init__(self, result: KeptExperiment) -> None: ...
"""


def source() -> str:
    """Return the text of the stub."""
    methods = [f"    {_signature(kind.name, 'self', kind.chooses, {})}" for kind in FIGURES]
    functions = [_signature(kind.name, "experiment: str | KeptExperiment", kind.chooses, PLACE) for kind in FIGURES]
    several = "experiments: Sequence[str | KeptExperiment]"
    functions.append(_signature(COMPARISON.name, several, COMPARISON.chooses, PLACE))
    return _HEAD + "\n".join([*methods, "", *functions]) + "\n"


def _signature(name: str, first: str, chosen: tuple[str, ...], place: dict[str, tuple[str, object, str]]) -> str:
    options = {key: ARGUMENTS[key] for key in chosen} | place
    keywords = [f"{key}: {type_} = ..." for key, (type_, _, _) in options.items()]
    return f"def {name}({', '.join([first, *(['*'] if keywords else []), *keywords])}) -> go.Figure: ..."


def main() -> int:
    """Write or check the stub."""
    text = source()
    if STUB.is_file() and STUB.read_text() == text:
        return 0
    if "--check" in sys.argv:
        print(f"{STUB.name} is out of date: run python -m tools.plot_functions", file=sys.stderr)
        return 1
    STUB.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
