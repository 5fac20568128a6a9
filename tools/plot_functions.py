"""The text of katib/sdk/plots.pyi: signatures of the functions of `katib.sdk.plots` (`tools.golden` writes it)."""

from __future__ import annotations

from katib.figures.catalogue import COMPARISON, FIGURES
from katib.sdk.plots import ARGUMENTS, PLACE

_HEAD = """# Written by `make golden`.
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import plotly.graph_objects as go

from katib.sdk.drawing import KeptExperiment

class ResultPlots:
    def __init__(self, result: KeptExperiment) -> None: ...
"""


def source() -> str:
    methods = [f"    {_signature(kind.name, 'self', kind.chooses, {})}" for kind in FIGURES]
    functions = [_signature(kind.name, "experiment: str | KeptExperiment", kind.chooses, PLACE) for kind in FIGURES]
    several = "experiments: Sequence[str | KeptExperiment]"
    functions.append(_signature(COMPARISON.name, several, COMPARISON.chooses, PLACE))
    return _HEAD + "\n".join([*methods, "", *functions]) + "\n"


def _signature(name: str, first: str, chosen: tuple[str, ...], place: dict[str, tuple[str, object, str]]) -> str:
    options = {key: ARGUMENTS[key] for key in chosen} | place
    keywords = [f"{key}: {type_} = ..." for key, (type_, _, _) in options.items()]
    return f"def {name}({', '.join([first, *(['*'] if keywords else []), *keywords])}) -> go.Figure: ..."
